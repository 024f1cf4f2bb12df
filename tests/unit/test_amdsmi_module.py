"""Which module is taken, and that one of another release than its library never is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from amdsmi_made import RELEASES, ROCM, Driver, forget, value

from exporter.backends.amdsmi_module import load
from exporter.host import Root
from exporter.model import Reason, SourceError

_forget = pytest.fixture(autouse=True)(forget)
FILES = Root("/")


def refusal(environ: dict[str, str], path: list[str] | None = None) -> str:
    with pytest.raises(SourceError) as caught:
        load(environ, FILES, path or [])
    assert caught.value.reason is Reason.UNSUPPORTED
    assert "\n" not in str(caught.value)
    return str(caught.value)


def installed(tmp: Path, *, module: str, library: str | None = None, rocm: str | None = None) -> Path:
    """A ROCm folder whose files state these versions. Importing its module is a test failure."""
    package = tmp / "share/amd_smi/amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    (package / "_version.py").write_text(f'__version__ = "{module}"\n')
    (tmp / "lib").mkdir()
    if library:
        (tmp / "lib" / library).write_bytes(b"")
        (tmp / "lib/libamd_smi.so").symlink_to(library)
    if rocm:
        (tmp / ".info").mkdir()
        (tmp / ".info/version").write_text(rocm + "\n")
    return tmp


@pytest.mark.parametrize("name", ["ROCM_PATH", "ROCM_HOME"])
def test_the_module_of_the_named_rocm_is_taken(name: str) -> None:
    library = load({name: f"{ROCM}/"}, FILES, [])
    assert library.folder == f"{ROCM}/share/amd_smi"
    assert library.version == "26.0.2"
    assert sys.path.count(library.folder) == 0


def test_a_module_where_python_looks_is_taken_when_no_rocm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_AMDSMI_RELEASE", "6.4")
    assert load({}, FILES, [f"{ROCM}/share/amd_smi"]).version == "25.5.1"


def test_no_module_at_all_says_where_it_was_looked_for() -> None:
    assert "share/amd_smi of ROCM_PATH" in refusal({"ROCM_PATH": "/nonexistent"}, ["/nonexistent/too"])


@pytest.mark.parametrize(
    ("module", "library", "words"),
    [
        # 6.2 module on a 6.3 library: plausible values, then a crash in the garbage collector.
        ("24.6.3", "24.7.1", "module is of 24.6.3, the library of 24.7.1"),
        ("26.0.2", "25.5.1", "module is of 26.0.2, the library of 25.5.1"),
        ("27.0.0", "26.2.1", "module is of 27.0.0, the library of 26.2.1"),
        # Numbered after ROCm, as repackaged modules are.
        ("6.4.3", "26.0.2", "module is of ROCm 6.4.3, the installed one is 7.0.2"),
        ("7.0.1", "26.0.2", "module is of ROCm 7.0.1, the installed one is 7.0.2"),
        ("7.0.2", "27.0.0", "module is of ROCm 7.0.2, the library of 27.0.0"),
        ("0.3.0", "26.0.2", "module is of ROCm 0.3.0"),
        ("who knows", "26.0.2", "does not state its version"),
    ],
)
def test_a_module_of_another_release_is_refused_before_it_is_initialised(
    module: str, library: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AMDSMI_MODULE_VERSION", module)
    monkeypatch.setenv("FAKE_AMDSMI_LIBRARY", library)
    assert words in refusal({"ROCM_PATH": str(ROCM)})
    assert sys.modules["amdsmi"].CONTROL.calls.keys() <= {"get_lib_version", "get_rocm_version"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("other", RELEASES)
def test_of_all_pairs_of_releases_only_the_same_go_together(
    release: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"6.1": "24.5.1.0", "6.2": "24.6.3.0", "6.3": "24.7.1.0", "6.4": "25.5.1.0"}
    numbers |= {"7.0": "26.0.2", "7.2": "26.2.1", "10.0": "27.0.0"}
    monkeypatch.setenv("FAKE_AMDSMI_RELEASE", release)
    monkeypatch.setenv("FAKE_AMDSMI_LIBRARY", numbers[other])
    if release == other:
        assert load({"ROCM_PATH": str(ROCM)}, FILES, []).folder == f"{ROCM}/share/amd_smi"
    else:
        assert "module is of" in refusal({"ROCM_PATH": str(ROCM)})


def test_a_library_that_tells_its_version_only_once_initialised_is_asked_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_AMDSMI_VERSION", "after init")
    load({"ROCM_PATH": str(ROCM)}, FILES, [])
    calls = sys.modules["amdsmi"].CONTROL.calls
    assert (calls["init"], calls["shut_down"]) == (1, 1)
    monkeypatch.setenv("FAKE_AMDSMI_LIBRARY", "26.5.0")
    assert "the library of 26.5.0" in refusal({"ROCM_PATH": str(ROCM)})
    calls = sys.modules["amdsmi"].CONTROL.calls
    assert (calls["init"], calls["shut_down"]) == (1, 1)


def test_a_repackaged_module_of_the_very_release_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_AMDSMI_MODULE_VERSION", "7.0.2")
    assert load({"ROCM_PATH": str(ROCM)}, FILES, []).version == "7.0.2"


@pytest.mark.parametrize(
    ("module", "library", "rocm", "words"),
    [
        ("26.0.2+4f1c", "libamd_smi.so.25.5.60402", None, "module is of 26.0.2, the library of 25.5.60402"),
        (
            "7.0.2",
            "libamd_smi.so.25.5.60402",
            "6.4.2-120",
            "module is of ROCm 7.0.2, the installed one is 6.4.2",
        ),
        (
            "6.4.2",
            "libamd_smi.so.26.0.70002",
            "6.4.2-120",
            "module is of ROCm 6.4.2, the library of 26.0.70002",
        ),
    ],
)
def test_where_the_files_tell_it_is_refused_before_it_is_imported(
    module: str, library: str, rocm: str | None, words: str, tmp_path: Path
) -> None:
    root = installed(tmp_path, module=module, library=library, rocm=rocm)
    assert words in refusal({"ROCM_PATH": str(root)})
    assert "amdsmi" not in sys.modules


def test_a_wheel_beside_the_installed_one_does_not_come_first(tmp_path: Path) -> None:
    wheel = tmp_path / "site-packages"
    (wheel / "amdsmi").mkdir(parents=True)
    (wheel / "amdsmi/__init__.py").write_text("raise AssertionError('imported')\n")
    assert load({"ROCM_PATH": str(ROCM)}, FILES, [str(wheel)]).folder == f"{ROCM}/share/amd_smi"


def test_a_usable_module_is_found_behind_an_unusable_one(tmp_path: Path) -> None:
    broken = installed(tmp_path, module="26.0.2", library="libamd_smi.so.24.6.60204")
    found = load({"ROCM_HOME": str(broken), "ROCM_PATH": str(ROCM)}, FILES, [])
    assert found.folder == f"{ROCM}/share/amd_smi"


@pytest.mark.parametrize("way", ["KeyError", "AttributeError", "OSError", "ImportError", "SystemExit"])
def test_every_way_to_fail_at_import_is_one_line_with_what_it_printed(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    driver = Driver(monkeypatch, tmp_path, env={"FAKE_AMDSMI_IMPORT": way})
    error = driver.fails()
    assert error.reason is Reason.UNSUPPORTED
    assert way in str(error)
    assert "Unable to find libamd_smi.so" in str(error)
    assert capfd.readouterr().out == ""
    # It is not imported again at every poll, and recovers by itself once it can be.
    monkeypatch.delenv("FAKE_AMDSMI_IMPORT")
    assert str(driver.fails()) == str(error)
    driver.clock.at += 60
    assert value(driver.poll(), "power_watts", pci="0000:05:00.0") == 512
