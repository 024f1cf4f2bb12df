"""The ``amdsmi`` module that the installed ROCm ships: found, checked against its library, called.

The module lays its C structures out by itself. With a library of another release that corrupts memory after
some plausible values, so one that does not agree with its library is refused, before it is imported where
the files tell, and before any structure is exchanged in every case.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from exporter.host import Root, reason_of
from exporter.model import Raw, Reason, SourceError

# What a module of plain Python over ctypes raises when it meets data or a library it does not expect.
_FAULTS: tuple[type[BaseException], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    ctypes.ArgumentError,
)

_IMPORT_FAULTS: tuple[type[BaseException], ...] = (*_FAULTS, SystemExit)

# By name: the numbers moved between releases.
_STATUS = {
    "INVAL": Reason.UNSUPPORTED,
    "NOT_SUPPORTED": Reason.UNSUPPORTED,
    "NOT_YET_IMPLEMENTED": Reason.UNSUPPORTED,
    "FAIL_LOAD_MODULE": Reason.UNSUPPORTED,
    "FAIL_LOAD_SYMBOL": Reason.UNSUPPORTED,
    "DIRECTORY_NOT_FOUND": Reason.UNSUPPORTED,
    "FILE_NOT_FOUND": Reason.UNSUPPORTED,
    "SETTING_UNAVAILABLE": Reason.UNSUPPORTED,
    "NO_PERM": Reason.DENIED,
    "TIMEOUT": Reason.TIMEOUT,
    "BUSY": Reason.BUSY,
    "RETRY": Reason.BUSY,
    "INTERRUPT": Reason.BUSY,
    "IO": Reason.BUSY,
    "OUT_OF_RESOURCES": Reason.BUSY,
    "NOT_FOUND": Reason.GONE,
    "NOT_INIT": Reason.GONE,
    "INIT_ERROR": Reason.GONE,
    "NO_DRV": Reason.GONE,
    "DRIVER_NOT_LOADED": Reason.GONE,
    "NO_DATA": Reason.NO_DATA,
    "DRM_ERROR": Reason.NO_DATA,  # also what a container without the render node gives
    "API_FAILED": Reason.NO_DATA,
    "FILE_ERROR": Reason.NO_DATA,
}
_STATUS_NAME = re.compile(r"AMDSMI_STATUS_(\w+)")

# Which ROCm a library belongs to: the library's first number -> ROCm's first two, from and to.
_GENERATIONS = {24: ((6, 0), (6, 3)), 25: ((6, 4), (6, 9)), 26: ((7, 0), (7, 99)), 27: ((10, 0), (10, 99))}
_FIRST_LIBRARY = 20  # a module numbered below this follows ROCm, as repackaged ones do

_PARTS = ("year", "major", "minor", "release")

_STATED = re.compile(r"""__version__\s*=\s*["']([^"']+)["']""")
_SONAME = re.compile(r"libamd_smi\.so\.(\d+(?:\.\d+)*)\Z")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A folder that holds a package ``amdsmi``, and the ROCm whose library it would load."""

    folder: str
    prefix: str


class Library:
    """The loaded module. ``answered`` counts the calls that gave an answer."""

    def __init__(self, module: ModuleType, folder: str) -> None:
        self.folder = folder
        self.version = _dotted(_stated(module))
        self.answered = 0
        self._module = module
        wrapper = getattr(module, "amdsmi_wrapper", None)
        self._names = {
            value: name.removeprefix("AMDSMI_STATUS_")
            for name, value in vars(wrapper or object).items()
            if name.startswith("AMDSMI_STATUS_") and isinstance(value, int)
        }
        self._faults: tuple[type[BaseException], ...] = (*_FAULTS, *_own_exceptions(module))

    def call(self, name: str, *args: Any) -> Raw:
        """What ``amdsmi_NAME`` returns; a Reason where there is no such function or it failed."""
        function: Callable[..., Raw] | None = getattr(self._module, f"amdsmi_{name}", None)
        if function is None:
            return Reason.UNSUPPORTED
        try:
            value = function(*args)
        except self._faults as e:
            return self._reason(e)
        self.answered += 1
        return value

    def demand(self, name: str, *args: Any) -> Raw:
        """The same for a call that nothing goes on without: its failure is a SourceError."""
        function = getattr(self._module, f"amdsmi_{name}", None)
        if function is None:
            raise SourceError(Reason.UNSUPPORTED, f"{self.folder}: the module has no amdsmi_{name}")
        try:
            return function(*args)
        except self._faults as e:
            status = self._status(e)
            said = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
            hint = (
                "; is the amdgpu driver loaded? (lsmod | grep amdgpu)" if "DRIVER" in (status or "") else ""
            )
            raise SourceError(self._reason(e), f"amdsmi_{name} failed with {status or said}{hint}") from None

    def own_version(self) -> tuple[int, ...] | None:
        """What the C library says of itself: year, major, minor up to ROCm 6.4; the year was dropped in 7.0.

        The function of ROCm 6.4 leaves out the year that its structure has, so the structure is asked first.
        """
        wrapper = getattr(self._module, "amdsmi_wrapper", None)
        kind, ask = (getattr(wrapper, n, None) for n in ("amdsmi_version_t", "amdsmi_get_lib_version"))
        if kind is not None and ask is not None:
            version = kind()
            try:
                if ask(ctypes.byref(version)) == 0:
                    return _parts({n: getattr(version, n) for n in _PARTS if hasattr(version, n)})
            except self._faults:
                pass  # a wrapper of another make
        return _parts(self.call("get_lib_version"))

    def constant(self, enum: str, name: str) -> Any:
        """One member of an enumeration, by name; None where this release does not have it."""
        return getattr(getattr(self._module, enum, None), name, None)

    def _reason(self, error: BaseException) -> Reason:
        if isinstance(error, OSError):
            return reason_of(error)
        return _STATUS.get(self._status(error) or "", Reason.MALFORMED)

    def _status(self, error: BaseException) -> str | None:
        """The name of the library's status; the module's own numbering first, then what it says in words."""
        code = getattr(error, "err_code", None)
        if isinstance(code, int) and code in self._names:
            return self._names[code]
        found = _STATUS_NAME.search(str(getattr(error, "err_info", "")))
        return found[1] if found else None


def load(environ: Mapping[str, str], files: Root, path: Sequence[str]) -> Library:
    """Import the module of the installed ROCm.

    ``files`` is the root of the file system, ``path`` where Python looks for modules.
    Errors: SourceError with one reason: no module, no library, or the two do not agree.
    """
    first: SourceError | None = None
    for candidate in _candidates(environ, files, path):
        try:
            _check(candidate, _stated_in(files, candidate), _library_in(files, candidate), files, final=False)
            return _open(candidate, files)
        except SourceError as e:
            first = first or e
            if e.reason is not Reason.UNSUPPORTED:
                break
    if first is None:
        first = SourceError(
            Reason.UNSUPPORTED,
            "no amdsmi module: none in share/amd_smi of ROCM_PATH, ROCM_HOME or /opt/rocm*, none where "
            "Python looks; install amd-smi-lib of the installed ROCm",
        )
    raise first


def present(environ: Mapping[str, str], files: Root, path: Sequence[str]) -> bool:
    """Whether there is a module to try, as far as files tell; loads nothing."""
    return next(_candidates(environ, files, path), None) is not None


def _candidates(environ: Mapping[str, str], files: Root, path: Sequence[str]) -> Iterator[Candidate]:
    named = [p.rstrip("/") for key in ("ROCM_HOME", "ROCM_PATH") if (p := environ.get(key))]
    versioned = sorted((n for n in files.listdir("opt") if n.startswith("rocm-")), key=_numbers, reverse=True)
    prefixes = list(dict.fromkeys([*named, "/opt/rocm", *(f"/opt/{n}" for n in versioned)]))
    places = [Candidate(f"{prefix}/share/amd_smi", prefix) for prefix in prefixes]
    # Elsewhere the module takes the library of the first ROCm there is.
    there = next((p for p in prefixes if files.exists(f"{p}/lib".lstrip("/"))), "/opt/rocm")
    places += [Candidate(folder.rstrip("/"), there) for folder in path if folder]
    for place in dict.fromkeys(places):
        if files.exists(f"{place.folder}/amdsmi/__init__.py".lstrip("/")):
            yield place


def _stated_in(files: Root, candidate: Candidate) -> tuple[int, ...] | None:
    """The version a module's files state, without running them."""
    found = _STATED.search(files.text(f"{candidate.folder}/amdsmi/_version.py".lstrip("/")) or "")
    return _numbers(found[1]) if found else None


def _library_in(files: Root, candidate: Candidate) -> tuple[int, ...] | None:
    """The version in the real name of the ROCm's library, as in ``libamd_smi.so.26.0.70002``."""
    with contextlib.suppress(OSError):
        real = files.resolve(f"{candidate.prefix}/lib/libamd_smi.so".lstrip("/"))
        if found := _SONAME.search(real.rpartition("/")[2]):
            return _numbers(found[1])
    return None


def _check(
    candidate: Candidate,
    stated: tuple[int, ...] | None,
    library: tuple[int, ...] | None,
    files: Root,
    *,
    final: bool,
    rocm: tuple[int, ...] | None = None,
) -> None:
    """Raise SourceError unless module and library are of one release; what is unknown passes until final."""
    rocm = rocm or _numbers(files.text(f"{candidate.prefix}/.info/version".lstrip("/")) or "") or None
    problem = _disagreement(stated, library, rocm, final)
    if problem:
        raise SourceError(
            Reason.UNSUPPORTED,
            f"{candidate.folder}: {problem}; two releases mixed corrupt memory, so it is not used: "
            "remove that module, or install amd-smi-lib of the installed ROCm",
        )


def _disagreement(
    stated: tuple[int, ...] | None,
    library: tuple[int, ...] | None,
    rocm: tuple[int, ...] | None,
    final: bool,
) -> str | None:
    if stated is None:
        return "the module does not state its version" if final else None
    if library is None and final:
        return "the library does not state its version"
    if stated[0] >= _FIRST_LIBRARY:
        if library is not None and stated[:2] != library[:2]:
            return f"the module is of {_dotted(stated)}, the library of {_dotted(library)}"
        return None
    if rocm is None:
        return f"the module is of ROCm {_dotted(stated)}, the installed ROCm does not tell" if final else None
    if stated[:3] != rocm[:3]:
        return f"the module is of ROCm {_dotted(stated)}, the installed one is {_dotted(rocm[:3])}"
    span = _GENERATIONS.get(library[0]) if library else None
    if library is not None and (span is None or not span[0] <= stated[:2] <= span[1]):
        return f"the module is of ROCm {_dotted(stated)}, the library of {_dotted(library)}"
    return None


def _open(candidate: Candidate, files: Root) -> Library:
    module = _import(candidate.folder)
    library = Library(module, candidate.folder)
    told = library.own_version()
    # A library may answer only once initialised, which exchanges no structure.
    initialised = told is None
    if initialised:
        library.demand("init")
        told = library.own_version()
    rocm = library.call("get_rocm_version")
    known = isinstance(rocm, tuple) and len(rocm) == 2 and rocm[0] is True
    try:
        _check(
            candidate,
            _stated(module),
            told,
            files,
            final=True,
            rocm=_numbers(str(rocm[1])) if known else None,
        )
    finally:
        if initialised:
            library.call("shut_down")
    return library


def _import(folder: str) -> ModuleType:
    _forget()
    said = io.StringIO()
    sys.path.insert(0, folder)
    try:
        # Where the library is missing the module prints why and then fails with something else.
        with contextlib.redirect_stdout(said):
            module = importlib.import_module("amdsmi")
    except _IMPORT_FAULTS as e:
        _forget()
        words = " ".join(said.getvalue().split())
        raise SourceError(
            Reason.UNSUPPORTED,
            f"{folder}: the amdsmi module cannot be imported: {type(e).__name__}: {e}"
            + (f"; it says: {words[:200]}" if words else ""),
        ) from None
    finally:
        sys.path.remove(folder)
    return module


def _forget() -> None:
    """Drop whatever earlier attempt is half loaded; another folder may be the one to use now."""
    for name in [n for n in sys.modules if n == "amdsmi" or n.startswith("amdsmi.")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _own_exceptions(module: ModuleType) -> list[type[Exception]]:
    found = [*vars(module).values(), *vars(getattr(module, "amdsmi_exception", object)).values()]
    return [v for v in found if isinstance(v, type) and issubclass(v, Exception)]


def _stated(module: ModuleType) -> tuple[int, ...] | None:
    version = getattr(module, "__version__", None)
    return _numbers(version) or None if isinstance(version, str) else None


def _parts(version: Raw) -> tuple[int, ...] | None:
    if not isinstance(version, Mapping):
        return None
    parts = [version[k] for k in _PARTS if k in version]
    return tuple(parts) if len(parts) >= 2 and all(type(p) is int for p in parts) else None


def _numbers(text: str) -> tuple[int, ...]:
    """The leading dotted numbers in a version: ``26.0.2+4f1c``, ``rocm-7.0.2`` and ``7.0.2-56`` alike."""
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def _dotted(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version)) if version else "unknown"


def examine(environ: Mapping[str, str], files: Root, path: Sequence[str]) -> tuple[bool, str]:
    """Whether a module may be tried, and in words what its files and its library's tell; loads nothing."""
    first: str | None = None
    for candidate in _candidates(environ, files, path):
        stated, library = _stated_in(files, candidate), _library_in(files, candidate)
        try:
            _check(candidate, stated, library, files, final=False)
        except SourceError as e:
            first = first or str(e)
            continue
        return True, f"{candidate.folder}: module {_dotted(stated)}, library {_dotted(library)}"
    return False, first or "no amdsmi module of an installed ROCm"
