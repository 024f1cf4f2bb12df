"""In what sizes work was launched, by the tables and databases that say it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from exporter.windows import grids

HEAD = "Kind,Dispatch_Id,Kernel_Name,Start_Timestamp,Grid_Size_X,Grid_Size_Y,Grid_Size_Z\n"


def trace(path: Path, sizes: list[tuple[int, int]]) -> Path:
    """So many launches of each size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, n = [], 0
    for size, count in sizes:
        for _ in range(count):
            n += 1
            rows.append(f'"KERNEL_DISPATCH",{n},"k(int, int)",{n},{size},1,1\n')
    path.write_text(HEAD + "".join(rows))
    return path


def test_shares_are_in_twentieths_and_the_seldom_ones_together(tmp_path: Path) -> None:
    trace(tmp_path / "out" / "1_kernel_trace.csv", [(256, 60), (1024, 38), (64, 1), (32, 1)])
    assert grids.mix([tmp_path]) == {"256x1x1": 0.6, "1024x1x1": 0.4}
    trace(tmp_path / "out" / "1_kernel_trace.csv", [(256, 60), (1024, 32), (64, 2), (32, 2), (16, 2), (8, 2)])
    assert grids.mix([tmp_path]) == {"256x1x1": 0.6, "1024x1x1": 0.3, "other": 0.1}


def test_counters_of_one_dispatch_are_one_launch(tmp_path: Path) -> None:
    file = tmp_path / "1_counter_collection.csv"
    file.write_text("Dispatch_Id,Grid_Size,Counter_Name\n1,256,A\n1,256,B\n1,256,C\n2,512,A\n")
    assert grids.mix([file]) == {"256": 0.5, "512": 0.5}


def test_a_database_is_asked_for_its_sizes(tmp_path: Path) -> None:
    file = tmp_path / "1_results.db"
    db = sqlite3.connect(file)
    db.execute(
        "CREATE TABLE rocpd_kernel_dispatch_ab (id INT, grid_size_x INT, grid_size_y INT, grid_size_z INT)"
    )
    db.executemany("INSERT INTO rocpd_kernel_dispatch_ab VALUES (?, ?, 1, 1)", [(n, 64) for n in range(4)])
    db.commit()
    db.close()
    assert grids.mix([tmp_path]) == {"64x1x1": 1.0}


def test_what_says_nothing_of_sizes_has_no_mix(tmp_path: Path) -> None:
    (tmp_path / "1_hip_api_trace.csv").write_text("Domain,Function\nHIP,hipMalloc\n")
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    (tmp_path / "odd.csv").write_bytes(b"\xff\xfe\0\0,\n" * 9)
    (tmp_path / "link.csv").symlink_to("/etc/passwd")
    assert grids.mix([tmp_path]) == {}
    assert grids.mix([tmp_path / "none.csv"]) == {}
