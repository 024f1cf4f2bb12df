"""The driver's text files, whole, empty, padded and nonsensical."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.catalogue import chips
from exporter.formats import sysfs_text as text
from exporter.model import Reason


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from(["", "\n", " \n", "\0\0", "\n\0"]))
def test_any_integer_reads_as_itself(number: int, ending: str) -> None:
    assert text.integer(f"{number}{ending}".encode()) == number


@pytest.mark.parametrize(
    "data",
    [b"1_000", b"0x10", b"12 34", b"nan", b"1e3", b"4.5", b"N/A", b"\xff\xfe", b"9" * 400, b"9" * 5000],
)
def test_what_is_no_integer_is_malformed(data: bytes) -> None:
    assert text.integer(data) is Reason.MALFORMED


@pytest.mark.parametrize("data", [b"", b"\n", b"\0\0\0"])
def test_an_empty_file_says_nothing(data: bytes) -> None:
    assert text.integer(data) is None
    assert text.text(data) is None
    assert text.active_megahertz(data) is None
    assert text.transfers_per_second(data) is None
    assert text.ras_counts(data) is None


@pytest.mark.parametrize(
    ("table", "mhz"),
    [
        (b"0: 500Mhz *\n1: 2660Mhz \n", 500),
        (b"0: 500Mhz\n1: 77Mhz *\n2: 2254Mhz\n", 77),  # not in order
        (b"S: 500Mhz\n1: 789Mhz *\n2: 2070Mhz\n", 789),
        (b"S: 19Mhz *\n0: 500Mhz\n", 19),  # asleep
        (b"0: 0Mhz *\n1: 0Mhz *\n", 0),  # the driver marks both of two equal levels
        (b"0: 600Mhz \n1: 1050Mhz \n", None),  # idle: no level is active
        (b"0: 600Mhz *\n1: 1050Mhz *\n", Reason.MALFORMED),
        (b"garbage\n", Reason.MALFORMED),
    ],
)
def test_the_active_level_of_a_clock_table(table: bytes, mhz: int | Reason | None) -> None:
    assert text.active_megahertz(table) == mhz


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"16.0 GT/s PCIe\n", 16e9),
        (b"2.5 GT/s PCIe\n", 2.5e9),
        (b"64.0 GT/s PCIe", 64e9),
        (b"8 GT/s\n", 8e9),
        (b"Unknown\n", Reason.UNSUPPORTED),
        (b"Unknown speed\n", Reason.UNSUPPORTED),
        (b"fast\n", Reason.MALFORMED),
    ],
)
def test_link_speed(data: bytes, value: float | Reason) -> None:
    assert text.transfers_per_second(data) == value


def test_a_link_that_is_not_there_has_no_width() -> None:
    assert text.lanes(b"16\n") == 16
    assert text.lanes(b"0\n") is Reason.UNSUPPORTED
    assert text.lanes(b"255\n") is Reason.UNSUPPORTED


def test_error_counts_with_and_without_deferred_ones() -> None:
    assert text.ras_counts(b"ue: 0\nce: 12\n") == {"ue": 0, "ce": 12}
    assert text.ras_counts(b"ue: 1\nce: 0\nde: 4\n") == {"ue": 1, "ce": 0, "de": 4}


def test_counts_are_busy_during_a_reset_not_zero() -> None:
    assert text.ras_counts(b"Query currently inaccessible\n") is Reason.BUSY
    assert text.ras_counts(b"something else\n") is Reason.MALFORMED


def test_retired_pages_by_state_and_none_is_zero() -> None:
    assert text.retired_pages(b"") == {"reserved": 0, "pending": 0, "unreservable": 0}
    pages = b"0x1 : 0x1000 : R\n0x2 : 0x1000 : R\n0x00000003 : 0x00001000 : F\n"
    assert text.retired_pages(pages) == {"reserved": 2, "pending": 0, "unreservable": 1}
    assert text.retired_pages(b"0x1 : 0x1000 : R\n0x2 :") is Reason.MALFORMED


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"0x00561a00\n", "0x00561a00"),
        (b"0xA8\n", "0x000000a8"),
        (b"0x00000000\n", None),
        (b"", None),
        (b"\0\0", None),
        (b"N/A\n", Reason.MALFORMED),
        (b"561a00\n", Reason.MALFORMED),
        (b"0x123456789\n", Reason.MALFORMED),
    ],
)
def test_a_firmware_version(data: bytes, version: str | Reason | None) -> None:
    assert text.firmware_version(data) == version


def test_properties_skip_lines_of_another_shape() -> None:
    assert text.properties(b"simd_count 1216\nname x\n\nunique_id 18446744073709551615\n") == {
        "simd_count": 1216,
        "unique_id": 2**64 - 1,
    }


@pytest.mark.parametrize(
    ("name", "pci"),
    [
        ("0000:05:00.0", "0000:05:00.0"),
        ("0000:C1:00.1", "0000:c1:00.1"),
        ("10001:03:1f.7", "10001:03:1f.7"),
        ("card0", None),
        ("0000:05:00.8", None),
        ("amdgpu_xcp.2", None),
    ],
)
def test_pci_addresses(name: str, pci: str | None) -> None:
    assert text.pci_address(name) == pci


def test_addresses_sort_by_number_not_by_letter() -> None:
    names = ["10000:01:00.0", "0000:c1:00.0", "0000:26:00.0", "ffff:00:00.0"]
    assert sorted(names, key=text.pci_order) == [
        "0000:26:00.0",
        "0000:c1:00.0",
        "ffff:00:00.0",
        "10000:01:00.0",
    ]


def test_gfx_names_follow_kfds_numbers() -> None:
    assert chips.gfx_name(90402) == "gfx942"
    assert chips.gfx_name(90010) == "gfx90a"
    assert chips.gfx_name(110003) == "gfx1103"
    assert chips.gfx_name(120001) == "gfx1201"
    assert chips.gfx_name(0) is None


def test_the_issue_peak_is_known_for_cdna_only() -> None:
    for gfx in ("gfx908", "gfx90a", "gfx942", "gfx950"):
        chip = chips.by_gfx(gfx)
        assert chip is not None
        assert chip.issue_peak == 1
    for gfx in ("gfx900", "gfx1030", "gfx1103"):
        chip = chips.by_gfx(gfx)
        assert chip is not None
        assert chip.issue_peak is None
    assert chips.by_gfx("gfx4711") is None


def test_one_id_with_several_cards_needs_the_revision() -> None:
    assert chips.by_device_id(0x687F) == chips.Chip("Radeon RX Vega", "gfx900")
    assert chips.by_device_id(0x687F, 0xC3) == chips.Chip("Radeon RX Vega 56", "gfx900", 56)
    assert chips.by_device_id(0x74A1, 0) == chips.Chip("Instinct MI300X", "gfx942", 304, 1.0)
    assert chips.by_device_id(0xFFFF) is None


@given(
    st.one_of(
        st.binary(max_size=300), st.text("0123456789.:*SMhzGT/s, ucde\n-", max_size=300).map(str.encode)
    )
)
def test_no_parser_raises_whatever_the_file_holds(data: bytes) -> None:
    for parse in (
        text.integer,
        text.hexadecimal,
        text.text,
        text.active_megahertz,
        text.transfers_per_second,
        text.lanes,
        text.ras_counts,
        text.retired_pages,
        text.properties,
        text.uevent,
    ):
        parse(data)
