"""Configuration: every source, who overrules whom, every complaint, and what a reload may take."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from exporter import config as configuration
from exporter.config import (
    BottleneckSection,
    Config,
    PollSection,
    dump,
    format_duration,
    load,
    merge_reload,
    parse_duration,
    restart_required,
    schema,
    state_directory,
)
from exporter.config.durations import LIMIT_S
from exporter.config.keys import Key, keys, sections
from exporter.model import ConfigError
from exporter.windows.bottleneck import Thresholds

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Write a configuration file."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "node.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def complaint(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> str:
    """The one line that ends a load."""
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {}, flags or {})
    line = str(caught.value)
    assert line == line.strip()
    assert "\n" not in line
    return line


def outcome(path: Path) -> str:
    """The complaint about a file, or nothing; any other exception is the caller's failure."""
    try:
        load(path)
    except ConfigError as e:
        return str(e)
    return ""


# --- sources -------------------------------------------------------------------------------------------


def test_without_any_source_the_defaults_hold() -> None:
    loaded = load()
    assert loaded.warnings == ()
    c = loaded.config
    assert c == Config()
    assert (c.listen, c.backend, c.capture, c.state_dir) == ("127.0.0.1:9408", "auto", None, None)
    assert (c.path.sysfs, c.path.procfs, c.path.debugfs) == ("/sys", "/proc", "/sys/kernel/debug")
    assert (c.poll.interval, c.poll.deadline, c.poll.max_age) == (5, 2, 15)
    assert (c.devices.expected, c.devices.integrated) == (None, "auto")
    assert (c.windows.preset, c.windows.gauge_max_age) == ("spool", 900)
    assert (c.kernels.top, c.kernels.top_many_devices, c.kernels.forget_after) == (10, 5, 86_400)
    assert c.series.max == 12_000
    assert c.web.token_file is None


def test_a_file_gives_every_type_of_value(file: Callable[[str], Path]) -> None:
    path = file(
        "# a comment\n"
        "listen: '[::1]:9500'\n"
        "poll: {interval: 10s, deadline: 1500ms}\n"
        "devices:\n"
        "  expected: 8\n"
        "  integrated: show\n"
        "windows:\n"
        "  preset: off\n"
        "  spool_dir: /var/spool/windows\n"
        "bottleneck:\n"
        "  gpu_bound: 0.9\n"
        "  starved: 1\n"
    )
    loaded = load(path)
    c = loaded.config
    assert loaded.warnings == ()
    assert c.address == ("::1", 9500)
    assert (c.poll.interval, c.poll.deadline, c.poll.max_age) == (10, 1.5, 30)
    assert (c.devices.expected, c.devices.integrated) == (8, "show")
    assert (c.windows.preset, c.windows.spool_dir) == ("off", "/var/spool/windows")
    assert (c.bottleneck.gpu_bound, c.bottleneck.starved) == (0.9, 1)


def test_off_is_a_word_and_not_a_boolean(file: Callable[[str], Path]) -> None:
    """YAML 1.1 reads a plain off as false, which no preset is called."""
    assert load(file("windows: {preset: off}")).config.windows.preset == "off"


def test_null_is_none_where_a_key_may_be_none(file: Callable[[str], Path]) -> None:
    c = load(file("state_dir: null\ndevices: {expected: ~}\ncapture:\n")).config
    assert (c.state_dir, c.devices.expected, c.capture) == (None, None, None)


def test_a_section_without_keys_changes_nothing(file: Callable[[str], Path]) -> None:
    loaded = load(file("poll:\n  # interval: 10s\nlisten: :1\n"))
    assert loaded.config == Config(listen=":1")
    assert loaded.warnings == ()


def test_anchors_and_merges_work(file: Callable[[str], Path]) -> None:
    text = "poll: &p {interval: 7s, deadline: 1s}\nlisten: :1\nkernels: {forget_after: 1h}\n"
    assert load(file(text)).config.poll == PollSection(interval=7, deadline=1)
    merged = load(file("kernels: {<<: {top: 3, forget_after: 1h}, top: 4}")).config.kernels
    assert (merged.top, merged.forget_after) == (4, 3600)


@pytest.mark.parametrize("key", list(keys().values()), ids=lambda k: k.path)
def test_every_key_can_be_set_by_file_and_by_environment(key: Key, file: Callable[[str], Path]) -> None:
    text, value = other_value(key)
    rest = {"backend": "replay"} if key.path == "capture" else {}
    environ = {f"AMDGPU_EXPORTER_{key.path.upper().replace('.', '__')}": text}
    environ |= {f"AMDGPU_EXPORTER_{k.upper()}": v for k, v in rest.items()}
    section, _, name = key.path.rpartition(".")
    raw: object = value if key.kind != "duration" else text
    tree: dict[str, object] = {**rest, **({section: {name: raw}} if section else {name: raw})}
    for loaded in (load(None, environ), load(file(yaml.safe_dump(tree)))):
        assert loaded.warnings == ()
        found: object = loaded.config
        for part in key.path.split("."):
            found = getattr(found, part)
        assert found == value
        assert type(found) is type(value)


def other_value(key: Key) -> tuple[str, object]:
    """A text and value for ``key`` that is legal and not its default."""
    by_path: dict[str, tuple[str, object]] = {
        "listen": (":9500", ":9500"),
        "backend": ("sysfs", "sysfs"),
        "devices.integrated": ("show", "show"),
        "windows.preset": ("off", "off"),
        "log.level": ("debug", "debug"),
        "log.format": ("json", "json"),
        "series.max": ("500", 500),
        "windows.gauge_max_age": ("2h", 7200.0),
        "windows.duty_cycle": ("0.002", 0.002),
        "windows.command": ("/opt/canary, --small", ("/opt/canary", "--small")),
        "windows.allow": ("python3, vllm*", ("python3", "vllm*")),
        "windows.deny": ("gfx942:7.2*:attach", ("gfx942:7.2*:attach",)),
        "windows.max_bytes": ("2000000", 2_000_000),
        "windows.spool_user_bytes": ("2000000", 2_000_000),
        "metrics.disable": ("ras, xgmi_*", ("ras", "xgmi_*")),
        "owners.kubelet": ("off", "off"),
        "owners.resources": ("amd.com/*", ("amd.com/*",)),
        "labels.workload": ("inline", "inline"),
        "history.enabled": ("false", False),
        "history.max_bytes": ("2000000", 2_000_000),
        "history.max_age": ("2h", 7200.0),
    }
    by_kind: dict[str, tuple[str, object]] = {
        "duration": ("30s", 30.0),
        "whole number": ("7", 7),
        "number": ("0.25", 0.25),
        "path": ("/elsewhere", "/elsewhere"),
        "true or false": ("true", True),
    }
    return by_path.get(key.path) or by_kind[key.kind]


FLAGS = {
    "listen": "--listen",
    "backend": "--backend",
    "capture": "--capture",
    "path.sysfs": "--path.sysfs",
    "path.procfs": "--path.procfs",
    "path.debugfs": "--path.debugfs",
    "poll.interval": "--interval",
    "web.config_file": "--web.config.file",
}


def test_the_flags_are_those_that_serve_has() -> None:
    assert {k.path: k.flag for k in keys().values() if k.flag} == FLAGS


def test_flags_overrule_environment_overrules_file_overrules_defaults(file: Callable[[str], Path]) -> None:
    path = file("poll: {interval: 1s, deadline: 100ms, max_age: 1m}\nlisten: :1\nbackend: sysfs\n")
    environ = {"AMDGPU_EXPORTER_POLL__INTERVAL": "2s", "AMDGPU_EXPORTER_LISTEN": ":2", "HOME": "/"}
    flags = {"poll.interval": "3s", "backend": None, "path.sysfs": Path("/captured")}
    c = load(path, environ, flags).config
    assert (c.poll.interval, c.poll.deadline, c.poll.max_age) == (3, 0.1, 60)
    assert (c.listen, c.backend, c.path.sysfs, c.path.procfs) == (":2", "sysfs", "/captured", "/proc")


def test_an_overruled_value_must_still_be_right(file: Callable[[str], Path]) -> None:
    assert "node.yaml:1: listen: expected" in complaint(file("listen: nowhere"), {}, {"listen": ":1"})


def test_an_empty_variable_is_none_where_a_key_may_be_none_and_an_error_elsewhere() -> None:
    assert load(None, {"AMDGPU_EXPORTER_CAPTURE": ""}).config.capture is None
    assert complaint(None, {"AMDGPU_EXPORTER_KERNELS__TOP": ""}).startswith(
        "AMDGPU_EXPORTER_KERNELS__TOP: kernels.top: expected a whole number"
    )


def test_variables_that_kubernetes_adds_for_a_service_of_our_name_are_not_configuration() -> None:
    link = {
        "AMDGPU_EXPORTER_SERVICE_HOST": "10.0.0.1",
        "AMDGPU_EXPORTER_SERVICE_PORT": "9408",
        "AMDGPU_EXPORTER_SERVICE_PORT_METRICS": "9408",
        "AMDGPU_EXPORTER_PORT": "tcp://10.0.0.1:9408",
        "AMDGPU_EXPORTER_PORT_9408_TCP": "tcp://10.0.0.1:9408",
        "AMDGPU_EXPORTER_PORT_9408_TCP_ADDR": "10.0.0.1",
    }
    loaded = load(None, link)
    assert loaded.warnings == ()
    assert loaded.config == Config()


# --- unknown keys are warnings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "x: 1\npoll:\n  intervall: 4s",
            "node.yaml:3: unknown key poll.intervall, ignored; did you mean poll.interval?",
        ),
        ("polll: {interval: 4s}", "node.yaml:1: unknown key polll, ignored; did you mean poll?"),
        ("interval: 4s", "node.yaml:1: unknown key interval, ignored; did you mean poll.interval?"),
        ("poll: {listen: ':1'}", "node.yaml:1: unknown key poll.listen, ignored; did you mean listen?"),
        (
            "windows: {spool-dir: /x}",
            "unknown key windows.spool-dir, ignored; did you mean windows.spool_dir?",
        ),
        ("zebra: 1", "node.yaml:1: unknown key zebra, ignored; docs/CONFIG.md lists all keys"),
        ("1: 2", "node.yaml:1: unknown key 1, ignored"),
        ("[1, 2]: 2", "node.yaml:1: unknown key (not a word), ignored"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    text: str, warning: str, file: Callable[[str], Path]
) -> None:
    loaded = load(file(text))
    assert loaded.config == Config()
    assert warning in loaded.warnings[-1]


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("POLL__INTERVALL", "did you mean AMDGPU_EXPORTER_POLL__INTERVAL?"),
        ("POLL_INTERVAL", "did you mean AMDGPU_EXPORTER_POLL__INTERVAL?"),
        ("POLL", "it is a section, with keys such as AMDGPU_EXPORTER_POLL__INTERVAL"),
        ("ZEBRA", "docs/CONFIG.md lists all keys"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_known_one(variable: str, hint: str) -> None:
    [warning] = load(None, {f"AMDGPU_EXPORTER_{variable}": "hunter2"}).warnings
    assert f"AMDGPU_EXPORTER_{variable}" in warning
    assert hint in warning
    assert "hunter2" not in warning


def test_an_empty_file_says_that_the_defaults_hold(file: Callable[[str], Path]) -> None:
    for text in ("", "# nothing\n", "---\n"):
        assert load(file(text)).warnings[0].endswith("node.yaml: sets nothing, so the defaults hold")


def test_what_stands_under_an_unknown_or_secret_key_is_never_repeated(file: Callable[[str], Path]) -> None:
    [warning] = load(file("web: {token: hunter2}")).warnings
    assert "web.token" in warning
    assert "hunter2" not in warning
    assert "hunter2" not in complaint(file("web: {token_file: [hunter2]}"))


# --- anything else is an error -------------------------------------------------------------------------

DURATION = "a duration with its unit, such as 500ms, 15s, 2m or 24h"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "x: 1\nlisten: 9408",
            "2: listen: expected ADDRESS:PORT, such as 127.0.0.1:9408, [::1]:9408 or :9408, got 9408",
        ),
        ("listen: localhost", "1: listen: expected ADDRESS:PORT"),
        ("listen: '::1:9408'", "1: listen: expected ADDRESS:PORT"),
        ("listen: localhost:99999", "1: listen: expected ADDRESS:PORT"),
        ("listen: null", "got null"),
        ("backend: cuda", "1: backend: expected one of auto, amdsmi, sysfs, smi_cli, replay, got 'cuda'"),
        (
            "windows: {preset: deep}",
            "1: windows.preset: expected one of off, spool, counters, canary, attach, got 'deep'",
        ),
        ("windows: {preset: canary}", "1: windows.preset: canary needs windows.command"),
        ("windows: {preset: attach}", "1: windows.preset: attach needs windows.allow"),
        ("windows: {deny: [gfx942]}", "expected a list of CHIP:ROCM:MODE, such as gfx942:7.2*:attach"),
        ("windows: {duty_cycle: 0.5}", "at most 0.1, got 0.5"),
        (
            "poll:\n  interval: 5",
            f"2: poll.interval: expected {DURATION}, at least 50ms and at most 1h, got 5",
        ),
        ("poll: {interval: 5.5}", "got 5.5"),
        ("poll: {interval: true}", "got true"),
        ("poll: {interval: 1ms}", "at least 50ms and at most 1h, got '1ms'"),
        ("poll: {interval: 5 apples}", "got '5 apples'"),
        ("poll: {interval: [5s]}", "got a list"),
        ("poll: {interval: {s: 5}}", "got a section"),
        ("poll: 5s", "1: poll: expected a section with keys such as interval, deadline, max_age, got '5s'"),
        (
            "kernels: {top: '5'}",
            "1: kernels.top: expected a whole number, at least 0 and at most 1000, got '5'",
        ),
        ("kernels: {top: 2.5}", "got 2.5"),
        ("kernels: {top: true}", "got true"),
        ("kernels: {top: -1}", "got -1"),
        ("devices: {expected: many}", "at most 4096, or null for none, got 'many'"),
        ("bottleneck: {gpu_bound: 85}", "expected a number, at least 0 and at most 1, got 85"),
        ("bottleneck: {gpu_bound: .nan}", "got nan"),
        ("bottleneck: {gpu_bound: -.inf}", "got -inf"),
        ("bottleneck: {gpu_bound: '0.5'}", "got '0.5'"),
        ("path: {sysfs: ''}", "1: path.sysfs: expected a path, got ''"),
        ("series: {max: 99}", "at least 100 and at most 1000000, got 99"),
        ("log: {level: loud}", "expected one of debug, info, warning, error, got 'loud'"),
        ("listen: " + "x" * 500, "xxx..."),
        ("- a\n- b", "1: expected keys with values, such as listen: 127.0.0.1:9408"),
        ("just words", "1: expected keys with values"),
        ("a: 1\nlisten: [", "2: not valid YAML: "),
        ("a: 1\nb: c: d", "2: not valid YAML: "),
        ("a: 1\n---\nb: 2", "2: not valid YAML: "),
        ("listen: !!python/name:os.system", "1: not valid YAML: "),
        ("poll: &p {interval: *p}", "1: not valid YAML: "),
        ("a: *nothing", "1: not valid YAML: "),
        ("a: !!timestamp x", "1: not valid YAML: "),
        ("series: {max: !!int x}", "not valid YAML: invalid literal"),
        ("a: !!float ''", "not valid YAML: could not convert"),
        ("a: " + "9" * 5000, "not valid YAML: "),
        ("a: 1\nb: \x01", "2: not valid YAML: "),
        ("a: 1\nlisten: :1\nlisten: :2", "3: listen: given twice, first in line 2"),
        ("poll:\n  interval: 1s\n  interval: 2s", "3: poll.interval: given twice, first in line 2"),
        ("poll: {max_age: 1s}", "1: poll.max_age: expected at least poll.interval"),
        ("windows: {gauge_max_age: 1m}", "1: windows.gauge_max_age: expected at least windows.interval"),
        ("capture: /captured", "1: capture: only backend replay reads a capture, and backend is auto"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_file_line_and_key(
    text: str, line: str, file: Callable[[str], Path]
) -> None:
    path = file(text)
    said = complaint(path)
    assert said.startswith(f"{path}:")
    assert line in said
    assert len(said) < 400


def test_a_file_that_nests_too_deep_is_one_line(file: Callable[[str], Path]) -> None:
    assert complaint(file("a: " + "[" * 20_000)).endswith("nested too deep")


def test_bytes_that_are_no_text_are_one_line(file: Callable[[bytes], Path]) -> None:
    assert "node.yaml:2: not valid YAML" in complaint(file(b"a: 1\nb: \xff\xfe"))


def test_a_file_that_is_not_there_or_a_folder_or_too_large_is_one_line(
    tmp_path: Path, file: Callable[[str], Path]
) -> None:
    assert (
        complaint(tmp_path / "none.yaml")
        == f"{tmp_path}/none.yaml: cannot be read: No such file or directory"
    )
    assert complaint(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert "larger than 1048576 bytes" in complaint(file("#" * 1_100_000))


def test_a_wrong_variable_or_flag_is_named() -> None:
    variable = "AMDGPU_EXPORTER_POLL__INTERVAL"
    assert complaint(None, {variable: "5"}) == (
        f"{variable}: poll.interval: expected {DURATION}, at least 50ms and at most 1h, got '5'"
    )
    assert complaint(None, {}, {"poll.interval": "soon"}).startswith(
        "flag --interval: poll.interval: expected"
    )
    assert complaint(None, {}, {"kernels.top": "x"}).startswith("flag --kernels.top: kernels.top: expected")
    assert complaint(None, {}, {"poll.intervall": "5s"}) == (
        "flag --poll.intervall: unknown key poll.intervall; did you mean poll.interval?"
    )


def test_a_conflict_is_laid_to_the_source_of_the_value() -> None:
    said = complaint(None, {"AMDGPU_EXPORTER_POLL__MAX_AGE": "3s"}, {"poll.interval": "10s"})
    assert said.startswith("AMDGPU_EXPORTER_POLL__MAX_AGE: poll.max_age: expected at least poll.interval")


@given(st.binary(max_size=200))
def test_no_file_content_ends_in_anything_but_a_configuration_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, blob: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(blob)
    assert "\n" not in outcome(path)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*keys(), *sections(), "interval", "top", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(TREES)
def test_no_tree_of_values_ends_in_anything_but_a_configuration_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, tree: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "tree.yaml"
    path.write_text(yaml.safe_dump(tree))
    assert "\n" not in outcome(path)


# --- durations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("250us", 250e-6),
        ("500ms", 0.5),
        ("15s", 15),
        ("1.5s", 1.5),
        ("2m", 120),
        ("1h30m", 5400),
        ("24h", 86_400),
        ("7d", 604_800),
        (" 5s ", 5),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 s", "5S", "1e3s", "inf", "5s5", "1w", "٥s", "0.1us", "367d"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "500ms"), (90, "90s"), (3600, "1h"), (86_400, "24h"), (172_800, "2d")],
)
def test_a_duration_is_written_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, LIMIT_S * 1_000_000))
def test_every_whole_microsecond_survives_writing_and_reading(microseconds: int) -> None:
    seconds = parse_duration(f"{microseconds}us")
    assert seconds == microseconds / 1e6
    assert parse_duration(format_duration(seconds)) == seconds


# --- what is written, what is kept ---------------------------------------------------------------------


def test_what_is_printed_reads_back_as_the_same_configuration(file: Callable[[str], Path]) -> None:
    flags = {"listen": "[::1]:1", "backend": "replay", "capture": "/c: d#e", "poll.interval": "250ms"}
    environ = {"AMDGPU_EXPORTER_WINDOWS__PRESET": "off", "AMDGPU_EXPORTER_DEVICES__EXPECTED": "8"}
    before = load(None, environ, flags).config
    text = dump(before)
    assert "interval: 250ms" in text
    after = load(file(text))
    assert after.config == before
    assert after.warnings == ()
    # Also for readers that follow YAML 1.1, where a plain off would be false.
    assert yaml.safe_load(text)["windows"]["preset"] == "off"


def test_what_is_printed_holds_every_key() -> None:
    tree = yaml.safe_load(dump(Config()))
    flat = {f"{s}.{k}" for s, v in tree.items() if isinstance(v, dict) for k in v}
    assert flat | {k for k, v in tree.items() if not isinstance(v, dict)} == set(keys())


RESTART = {
    "amdsmi.error_records",
    "listen",
    "backend",
    "capture",
    "state_dir",
    "path.sysfs",
    "path.procfs",
    "path.debugfs",
    "devices.integrated",
    "metrics.disable",
    "metrics.dies",
    "smi_cli.tool",
    "smi_cli.deadline",
    "textfile.folder",
    "textfile.max_bytes",
    "web.config_file",
    "owners.kubelet",
    "owners.kubelet_socket",
    "owners.resources",
    "owners.container_logs",
    "owners.job_files",
    "history.enabled",
    "history.max_bytes",
    "history.max_age",
}


def test_a_reload_takes_all_but_the_keys_that_need_a_restart() -> None:
    assert {k.path for k in keys().values() if not k.reloadable} == RESTART
    old = Config()
    new = load(
        None,
        {},
        {
            "amdsmi.error_records": "1m",
            "listen": ":1",
            "backend": "replay",
            "capture": "/c",
            "state_dir": "/s",
            "path.sysfs": "/a",
            "path.procfs": "/b",
            "path.debugfs": "/d",
            "devices.integrated": "show",
            "metrics.disable": "ras",
            "metrics.dies": "true",
            "smi_cli.tool": "/t",
            "smi_cli.deadline": "9s",
            "textfile.folder": "/x",
            "textfile.max_bytes": "9",
            "web.config_file": "/w",
            "owners.kubelet": "off",
            "owners.kubelet_socket": "/k",
            "owners.resources": "amd.com/*",
            "owners.container_logs": "/l",
            "owners.job_files": "/j",
            "history.enabled": "false",
            "history.max_bytes": "2000000",
            "history.max_age": "2h",
            "poll.interval": "1s",
            "kernels.top": "3",
        },
    ).config
    assert set(restart_required(old, new)) == RESTART
    merged = merge_reload(old, new)
    assert restart_required(old, merged) == ()
    assert (merged.poll, merged.kernels) == (new.poll, new.kernels)
    assert (merged.listen, merged.backend, merged.capture) == (old.listen, old.backend, old.capture)
    assert (merged.path, merged.state_dir) == (old.path, old.state_dir)
    assert restart_required(old, old) == ()


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config().listen = ":1"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        PollSection(intervall=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9408", ("127.0.0.1", 9408)),
        (":0", ("", 0)),
        ("[::]:1", ("::", 1)),
        ("node-1:65535", ("node-1", 65535)),
    ],
)
def test_an_address_is_split(text: str, address: tuple[str, int]) -> None:
    assert Config(listen=text).address == address


def test_the_state_folder_is_the_configured_one_then_systemds_then_the_systems_then_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"STATE_DIRECTORY": "/run/state:/other", "HOME": "/home/a", "XDG_STATE_HOME": "/x"}
    assert state_directory(Config(state_dir="/s"), environ) == Path("/s")
    assert state_directory(Config(), environ) == Path("/run/state")
    del environ["STATE_DIRECTORY"]
    monkeypatch.setattr("os.access", lambda *_: True)
    assert state_directory(Config(), environ) == Path("/var/lib/amdgpu-exporter")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert state_directory(Config(), environ) == Path("/x/amdgpu-exporter")
    del environ["XDG_STATE_HOME"]
    assert state_directory(Config(), environ) == Path("/home/a/.local/state/amdgpu-exporter")


def test_the_schema_describes_every_section_and_durations_as_text() -> None:
    described = schema()
    json.dumps(described)
    assert set(described["properties"]) == set(Config.model_fields)
    poll = described["$defs"]["PollSection"]["properties"]["interval"]
    assert poll["type"] == "string"
    assert poll["default"] == "5s"
    assert poll["description"]


def test_every_threshold_can_be_configured_and_reaches_the_reducer() -> None:
    fields = [f.name for f in dataclasses.fields(Thresholds)]
    assert list(BottleneckSection.model_fields) == fields
    assert Config().bottleneck.thresholds == Thresholds()
    flags = {"bottleneck.gpu_bound": "0.5", "bottleneck.launches_least": "3"}
    assert load(None, {}, flags).config.bottleneck.thresholds == Thresholds(gpu_bound=0.5, launches_least=3)


def test_every_key_says_what_it_is() -> None:
    assert [k.path for k in keys().values() if not (k.info.description or "").endswith(".")] == []
    assert [n for n, s in sections().items() if not (inspect.getdoc(s) or "").endswith(".")] == []


def test_importing_the_configuration_does_not_import_yaml_or_the_web() -> None:
    script = (
        "import sys, exporter.config; print([m for m in ('yaml', 'fastapi', 'typer') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert set(configuration.__all__) <= set(dir(configuration))
