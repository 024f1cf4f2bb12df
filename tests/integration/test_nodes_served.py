"""The daemon on the nodes where others get devices and labels wrong: what /metrics says of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit import made_nodes, trees

from .daemon import Daemon, serving, until

_SERIES = re.compile(r'(\w+)\{gpu="(\d+)",pci="([0-9a-f:.]+)"(?:,partition="(\d+)")?')


def _serve(tmp_path: Path, root: Path, *more: str) -> Any:
    return serving(tmp_path, "--backend", "sysfs", "--path.sysfs", str(root), "--interval", "100ms", *more)


def _of(daemon: Daemon, metric: str) -> dict[tuple[int, str, str | None], float]:
    """Values by gpu, pci and partition."""
    found = {}
    for name, value in daemon.series().items():
        if (match := _SERIES.match(name)) and match[1] == metric:
            key = int(match[2]), match[3], match[4]
            assert key not in found or "{" in name, name
            found[key] = value
    return found


def test_the_second_die_of_an_mi250x_is_a_gpu_without_power_and_not_one_of_0_watts(tmp_path: Path) -> None:
    first, second = (d.name for d in made_nodes.mi250x(tmp_path / "sys"))
    with _serve(tmp_path, tmp_path / "sys") as daemon:
        assert _of(daemon, "amdgpu_up") == {(0, first, None): 1, (1, second, None): 1}
        assert _of(daemon, "amdgpu_power_watts") == {(0, first, None): 489}
        assert set(_of(daemon, "amdgpu_energy_joules_total")) == {(0, first, None)}
        assert len(_of(daemon, "amdgpu_busy_ratio")) == 2


def test_eight_sockets_in_cpx_are_64_devices_with_socket_values_once(tmp_path: Path) -> None:
    trees.mi300x(tmp_path / "sys", sockets=8, partitions=8, forbidden=False)
    with _serve(tmp_path, tmp_path / "sys") as daemon:
        up = _of(daemon, "amdgpu_up")
        assert (len(up), set(up.values())) == (64, {1})
        assert {(gpu, part) for gpu, _, part in up} == {(g, str(p)) for g in range(8) for p in range(8)}
        assert daemon.value("^amdgpu_devices$") == 8
        power = _of(daemon, "amdgpu_power_watts")
        assert {(gpu, part) for gpu, _, part in power} == {(g, None) for g in range(8)}
        busy = {
            name: value
            for name, value in daemon.series().items()
            if name.startswith("amdgpu_busy_ratio") and 'gpu="3"' in name and 'engine="gfx"' in name
        }
        assert sorted(busy.values()) == pytest.approx([0.1 * p for p in range(8)])
        listed = json.loads(daemon.get("/api/v1/devices")[1])
        assert len(listed["devices"] if isinstance(listed, dict) else listed) == 64
        # A change of mode is no loss of GPUs.
        assert daemon.value("^amdgpu_expected_devices$") == 8


def test_other_makers_are_not_listed_and_a_sleeping_gpu_in_the_cpu_is_left_asleep(tmp_path: Path) -> None:
    first, second = (d.name for d in made_nodes.mixed(tmp_path / "sys")[:2])
    with _serve(tmp_path, tmp_path / "sys") as daemon:
        assert _of(daemon, "amdgpu_up") == {(0, first, None): 1, (1, second, None): 1}
        page = daemon.get("/metrics")[1]
        text = page.decode() if isinstance(page, bytes) else page
        for stranger in ("0000:01:00.0", "0000:02:00.0", "0000:c4:00.0"):
            assert stranger not in text


def test_a_guest_without_identity_says_what_it_knows_and_nothing_else(tmp_path: Path) -> None:
    name = made_nodes.guest(tmp_path / "sys").name
    with _serve(tmp_path, tmp_path / "sys") as daemon:
        assert _of(daemon, "amdgpu_up") == {(0, name, None): 1}
        series = daemon.series()
        [info] = [s for s in series if s.startswith("amdgpu_info{")]
        assert "uuid=" not in info
        assert _of(daemon, "amdgpu_power_watts") == {}
        assert not [s for s in series if s.startswith(("amdgpu_ecc_", "amdgpu_temperature_"))]
        assert series[f'amdgpu_busy_ratio{{gpu="0",pci="{name}",engine="gfx"}}'] == 0.37


def test_gpus_keep_the_order_of_their_addresses_where_kfd_lists_them_backwards(
    tmp_path: Path, samples: Path
) -> None:
    with _serve(tmp_path, samples / "cases/22-kfd-order-reversed/sys") as daemon:
        up = sorted(_of(daemon, "amdgpu_up"))
        assert [gpu for gpu, _, _ in up] == list(range(len(up)))
        assert [pci for _, pci, _ in up] == sorted(pci for _, pci, _ in up)
        listed = json.loads(daemon.get("/api/v1/devices")[1])
        rows = listed["devices"] if isinstance(listed, dict) else listed
        hip = {row["pci"]: row["hip_index"] for row in rows if row.get("hip_index") is not None}
        assert [hip[pci] for _, pci, _ in up] == list(reversed(range(len(up))))


def test_a_change_of_partitions_under_the_daemon_is_followed_without_a_lost_gpu(tmp_path: Path) -> None:
    live, other = tmp_path / "sys", tmp_path / "other"
    trees.mi300x(live, sockets=2, forbidden=False)
    trees.mi300x(other, sockets=2, partitions=8, forbidden=False)
    link = tmp_path / "now"
    link.symlink_to(live)
    with _serve(tmp_path, link) as daemon:
        assert len(_of(daemon, "amdgpu_up")) == 2
        fresh = tmp_path / "fresh"
        fresh.symlink_to(other)
        fresh.rename(link)
        until(lambda: sum(v == 1 for v in _of(daemon, "amdgpu_up").values()) == 16, what="16 partitions")
        assert daemon.value("^amdgpu_devices$") == daemon.value("^amdgpu_expected_devices$") == 2
        assert {part for _, _, part in _of(daemon, "amdgpu_power_watts")} == {None}
