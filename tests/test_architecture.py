"""The shape of the code: layers, purity, sizes, who may start processes and who may catch everything.

Imports are read from the source, also those inside functions; ``if TYPE_CHECKING`` counts as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "exporter"

# What of windows touches files, children or time. The rest is pure: from rows to what they say of a GPU.
_WINDOWS_IMPURE = (
    "arrival book bulk delivery feed grids intake kin ledger lookout manifests place quota reducer rocpd "
    "runner sampler spool taker wire"
)
_WINDOWS = tuple(f"windows.{name}" for name in _WINDOWS_IMPURE.split())

# What of probes starts tools or touches files. The rest is pure.
_PROBES = ("probes.inuse", "probes.tools")
_COMPARE = tuple(f"compare.{name}" for name in ["folders", "past", "prometheus", "verb", "usage", "worker"])

# Top first: each may import its own layer and those below it. The longest matching name decides.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        *("cli", "options", "probes.usage", "service", "profiling", "sources", "node_status", "pod_labels"),
        "__main__",
    ),
    (
        "web",
        "pages",
        "listener",
        "guard",
        "access",
        "checks",
        *_COMPARE,
        "probes.verb",
        "cards.verb",
    ),
    (
        *("collect", "owners.feed", "reader", "vitals", "history", "textfile"),
        *("probes.feed", "probes.shelf", "cards.meter", *_PROBES, *_WINDOWS),
    ),
    ("backends", "profilers", "owners"),
    ("host", "child", "worker", "command", "slots"),
    ("config",),
    (
        "exposition",
        "fingerprint",
        "windows",
        "compare",
        "probes",
        "cards",
        "history.schema",
        "history.context",
        "history.amounts",
    ),
    ("formats",),
    ("catalogue",),
    ("model", "logs"),
)

PURE = (
    "model",
    "catalogue",
    "formats",
    "exposition",
    "fingerprint",
    "windows",
    "compare.rows",
    "compare.stats",
    "compare.context",
    "compare.judge",
    "compare.report",
    "compare.advice",
    "compare.scraped",
    "history.schema",
    "history.context",
    "cards.card",
    "cards.samples",
    "history.amounts",
    "probes.plans",
    "probes.record",
    "probes.reduce",
    "probes.show",
    "probes.since",
    "profilers.device_counting",
    "profilers.plan",
    "profilers.rocprofv3_window",
    "profilers.legacy_window",
    "profilers.toolbox",
    "profilers.job",
)
IMPURE_IMPORTS = frozenset(
    (
        "asyncio",
        "glob",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "psutil",
        "random",
        "requests",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
    )
)
# What a pure module may still take from the list above.
PURE_EXCEPTIONS = {
    "io": "in-memory and wrapping streams over what the caller handed in",
}

# Where everything may be caught, and why there.
CATCH_ALL = {
    "worker": "a child's errors become answers, so that one bad poll does not end it",
    "checks.run": "a job that is to be profiled runs without, whatever we did wrong",
    "cards.verb": "a job that was measured keeps its exit code, whatever is wrong with our report",
    "cli": "the outermost frame: a fault of ours is one line and exit code, not a traceback",
}
STARTS_PROCESSES = {
    "child": "a child that answers requests",
    "command": "a command that is run to its end",
    "worker": "a worn-out child becomes a new image of itself",
}
PROCESS_NAMES = frozenset({"subprocess", "multiprocessing", "pty"})
PROCESS_CALLS = ("create_subprocess_exec", "create_subprocess_shell")
OS_PROCESS_CALLS = ("exec", "fork", "popen", "posix_spawn", "spawn", "system")  # beginnings of names
# The reader child stays small and may load a driver library: nothing of the web or of configuration in it.
READER_MAY_NOT_LOAD = (
    "asyncio",
    "fastapi",
    "uvicorn",
    "starlette",
    "pydantic",
    "typer",
    "rich",
    "yaml",
    "prometheus_client",
)
LONGEST = 400


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its name below ``exporter``; packages without ``__init__``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(p for p in parts if p != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def imports(name: str, tree: ast.Module | None = None) -> Iterator[tuple[str, int]]:
    """Every module that ``name`` imports, in full, with the line."""
    for node in ast.walk(tree or modules()[name]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix("exporter.")
                yield (f"{base}.{alias.name}" if inner in modules() else base), node.lineno


def inside(name: str, family: str) -> bool:
    return name == family or name.startswith(f"{family}.")


def layer(name: str) -> int:
    """The number of the layer ``name`` lives in, from the top; the longest match decides."""
    fits = [(len(entry), i) for i, row in enumerate(LAYERS) for entry in row if inside(name, entry)]
    assert fits, f"{name} is in no layer: give it one in {Path(__file__).name}"
    return max(fits)[1]


def arrows(name: str) -> set[str]:
    ours = (m for m, _ in imports(name) if m.startswith("exporter."))
    return {m.removeprefix("exporter.") for m in ours}


def wrong_way(name: str, tree: ast.Module | None = None) -> list[str]:
    """Imports of ``name`` that point up."""
    if not name:
        return []
    return [
        f"{name}:{line} imports {target.removeprefix('exporter.')}, a layer above it"
        for target, line in imports(name, tree)
        if target.startswith("exporter.") and layer(target.removeprefix("exporter.")) < layer(name)
    ]


def impurities(name: str, tree: ast.Module | None = None) -> list[str]:
    """What a pure module does that it may not."""
    found = []
    for target, line in imports(name, tree):
        top = target.partition(".")[0]
        if top in IMPURE_IMPORTS and top not in PURE_EXCEPTIONS:
            found.append(f"{name}:{line} imports {top}")
    for node in ast.walk(tree or modules()[name]):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print")
        ):
            found.append(f"{name}:{node.lineno} calls {node.func.id}")
        if (
            isinstance(node, ast.Attribute)
            and _of("io", node)
            and node.attr in ("open", "open_code", "FileIO")
        ):
            found.append(f"{name}:{node.lineno} uses io.{node.attr}")
    return found


def catches_all(tree: ast.Module) -> list[int]:
    """Lines of handlers for everything: bare, Exception or BaseException, alone or in a tuple."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(k is None or getattr(k, "id", None) in ("Exception", "BaseException") for k in kinds):
            lines.append(node.lineno)
    return lines


def process_starts(name: str, tree: ast.Module | None = None) -> list[str]:
    """Places in ``name`` that could start a process."""
    found = [
        f"{name}:{line} imports {target}"
        for target, line in imports(name, tree)
        if target.partition(".")[0] in PROCESS_NAMES
    ]
    attributes = [n for n in ast.walk(tree or modules()[name]) if isinstance(n, ast.Attribute)]
    return found + [f"{name}:{n.lineno} uses {n.attr}" for n in attributes if _starts_a_process(n)]


def _starts_a_process(node: ast.Attribute) -> bool:
    return node.attr in PROCESS_CALLS or (_of("os", node) and node.attr.startswith(OS_PROCESS_CALLS))


def _of(module: str, node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == module


def in_turn(name: str) -> Iterator[list[str]]:
    """Every import cycle through ``name``; imports inside functions do not close one."""

    def top_level(module: str) -> set[str]:
        body = [n for n in modules()[module].body if isinstance(n, ast.Import | ast.ImportFrom)]
        return {
            t.removeprefix("exporter.") for t, _ in imports(module, ast.Module(body, []))
        } & modules().keys()

    def walk(at: str, path: list[str], seen: set[str]) -> Iterator[list[str]]:
        for target in sorted(top_level(at)):
            if target == name:
                yield [*path, name]
            elif target not in seen:
                seen.add(target)
                yield from walk(target, [*path, target], seen)

    yield from walk(name, [name], set())


# --- the laws, on the real code ------------------------------------------------------------------------


def test_imports_point_down() -> None:
    assert [problem for name in modules() for problem in wrong_way(name)] == []


def test_no_backend_imports_another() -> None:
    def source(name: str) -> str:
        return name.removeprefix("backends.").split("_")[0]  # sysfs_cards belongs to sysfs

    crossed = {
        (source(name), source(target))
        for name in modules()
        for target in arrows(name)
        if name.startswith("backends.") and target.startswith("backends.")
    }
    # A replay is the kernel's files on another root.
    assert {(a, b) for a, b in crossed if a != b} <= {("replay", "sysfs")}


def test_no_module_imports_itself_in_a_circle() -> None:
    assert [cycle for name in modules() if name for cycle in in_turn(name)] == []


def test_pure_modules_touch_nothing_outside() -> None:
    pure = [n for n in modules() if n not in _WINDOWS and any(inside(n, p) for p in PURE)]
    assert {"model", "exposition", "catalogue.extract"} <= set(pure)
    assert [problem for name in pure for problem in impurities(name)] == []


def test_modules_are_short_enough_to_read() -> None:
    lengths = {p.relative_to(REPO): len(p.read_text().splitlines()) for p in PACKAGE.rglob("*.py")}
    assert {p: n for p, n in lengths.items() if n > LONGEST} == {}


def test_only_the_listed_places_catch_everything() -> None:
    catching = {n: lines for n, tree in modules().items() if (lines := catches_all(tree))}
    assert set(catching) <= set(CATCH_ALL), catching
    assert {n: len(lines) for n, lines in catching.items() if len(lines) > 1} == {}


def test_only_the_listed_places_start_processes() -> None:
    assert [p for n in modules() if n not in STARTS_PROCESSES for p in process_starts(n)] == []
    for name in STARTS_PROCESSES:
        assert process_starts(name), f"{name} no longer starts any"


def test_the_reader_child_loads_nothing_of_the_web() -> None:
    backends = sorted(n for n in modules() if n.startswith("backends."))
    script = (
        "import importlib, sys\n"
        f"for name in {['reader', *backends]!r}: importlib.import_module('exporter.' + name)\n"
        f"print([m for m in {READER_MAY_NOT_LOAD!r} if m in sys.modules])\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


# --- the checks themselves can fail --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (wrong_way, "from exporter import collect"),
        (wrong_way, "def late():\n    from exporter.web import App"),
        (impurities, "import os"),
        (impurities, "def late():\n    import time.sleep as s"),
        (impurities, "open('x')"),
        (impurities, "import io\nio.open('x')"),
        (process_starts, "import subprocess"),
        (process_starts, "import os\nos.execv('x', [])"),
        (process_starts, "import asyncio\nasyncio.create_subprocess_exec('x')"),
    ],
)
def test_a_broken_law_is_seen(check: object, source: str) -> None:
    assert callable(check)
    assert check("formats.invented", ast.parse(source)) != []


@pytest.mark.parametrize(
    "handler", ["except:", "except Exception:", "except (ValueError, BaseException) as e:"]
)
def test_a_handler_for_everything_is_seen(handler: str) -> None:
    assert catches_all(ast.parse(f"try:\n    pass\n{handler}\n    pass")) == [3]


def test_a_clean_module_breaks_no_law() -> None:
    tree = ast.parse(
        "import io\nfrom exporter.model import Gap\ntry:\n    pass\nexcept ValueError:\n    pass"
    )
    name = "formats.invented"
    assert [wrong_way(name, tree), impurities(name, tree), process_starts(name, tree), catches_all(tree)] == [
        []
    ] * 4
