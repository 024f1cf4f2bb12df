"""What is known about a GPU from its PCI device id or gfx name. Facts only; measures nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Chip:
    """One GPU type; None where the id does not decide it.

    ``compute_units`` counts one whole unpartitioned device (one die on MI250).
    ``issue_peak`` is wave-level VALU instructions per compute unit and cycle.
    ``integrated`` marks the small GPU inside a CPU, which a node with real GPUs does not list.
    """

    model: str
    gfx: str
    compute_units: int | None = None
    issue_peak: float | None = None
    integrated: bool = False


# One wave instruction per CU and cycle; for the other families the peak is not settled, so it stays unknown.
_ISSUE_PEAK = {"gfx908": 1.0, "gfx90a": 1.0, "gfx942": 1.0, "gfx950": 1.0}


def _chip(model: str, gfx: str, units: int | None = None, *, integrated: bool = False) -> Chip:
    return Chip(model, gfx, units, _ISSUE_PEAK.get(gfx), integrated)


_BY_ID: dict[int, Chip] = {
    # Instinct
    0x6860: _chip("Instinct MI25", "gfx900", 64),
    0x66A0: _chip("Instinct MI50/MI60", "gfx906"),
    0x66A1: _chip("Instinct MI50/MI60", "gfx906"),
    0x7388: _chip("Instinct MI100", "gfx908", 120),
    0x738C: _chip("Instinct MI100", "gfx908", 120),
    0x738E: _chip("Instinct MI100", "gfx908", 120),
    0x7390: _chip("Instinct MI100 VF", "gfx908"),
    0x7408: _chip("Instinct MI250X", "gfx90a", 110),
    0x740C: _chip("Instinct MI250/MI250X", "gfx90a"),
    0x740F: _chip("Instinct MI210", "gfx90a", 104),
    0x7410: _chip("Instinct MI210 VF", "gfx90a"),
    0x74A0: _chip("Instinct MI300A", "gfx942", 228),
    0x74A1: _chip("Instinct MI300X", "gfx942", 304),
    0x74A2: _chip("Instinct MI308X", "gfx942", 80),
    0x74A5: _chip("Instinct MI325X", "gfx942", 304),
    0x74A8: _chip("Instinct MI308X HF", "gfx942", 80),
    0x74A9: _chip("Instinct MI300X HF", "gfx942", 304),
    0x74B5: _chip("Instinct MI300X VF", "gfx942"),
    0x74B6: _chip("Instinct MI308X VF", "gfx942"),
    0x74B9: _chip("Instinct MI325X VF", "gfx942"),
    0x74BC: _chip("Instinct MI308X HF VF", "gfx942"),
    0x74BD: _chip("Instinct MI300X HF VF", "gfx942"),
    0x75A0: _chip("Instinct MI350X", "gfx950", 256),
    0x75A3: _chip("Instinct MI355X", "gfx950", 256),
    0x75B0: _chip("Instinct MI350X VF", "gfx950"),
    0x75B3: _chip("Instinct MI355X VF", "gfx950"),
    # Radeon; several cards share one id, the PCI revision tells them apart
    0x6798: _chip("Radeon HD 7970/R9 280X", "gfx600"),
    0x679A: _chip("Radeon HD 7950/R9 280", "gfx600"),
    0x6818: _chip("Radeon HD 7870", "gfx601", 20),
    0x67DF: _chip("Radeon RX 470/480/570/580", "gfx803"),
    0x687F: _chip("Radeon RX Vega", "gfx900"),
    0x731F: _chip("Radeon RX 5600/5700", "gfx1010"),
    0x7340: _chip("Radeon RX 5500", "gfx1012"),
    0x73BF: _chip("Radeon RX 6800/6900", "gfx1030"),
    0x73DF: _chip("Radeon RX 6700", "gfx1031"),
    0x73FF: _chip("Radeon RX 6600", "gfx1032"),
    0x73EF: _chip("Radeon RX 6650/6700S/6800S", "gfx1032"),
    0x744C: _chip("Radeon RX 7900", "gfx1100"),
    0x747E: _chip("Radeon RX 7700/7800", "gfx1101"),
    0x7480: _chip("Radeon RX 7600", "gfx1102"),
    0x7550: _chip("Radeon RX 9070", "gfx1201"),
    0x7590: _chip("Radeon RX 9060", "gfx1200"),
    # inside a CPU
    0x15DD: _chip("Radeon Vega (Raven)", "gfx902", integrated=True),
    0x15D8: _chip("Radeon Vega (Picasso)", "gfx902", integrated=True),
    0x1636: _chip("Radeon (Renoir)", "gfx90c", integrated=True),
    0x1638: _chip("Radeon (Cezanne)", "gfx90c", integrated=True),
    0x15E7: _chip("Radeon (Barcelo)", "gfx90c", integrated=True),
    0x163F: _chip("Radeon (Van Gogh)", "gfx1033", 8, integrated=True),
    0x1435: _chip("Radeon (Van Gogh)", "gfx1033", 8, integrated=True),
    0x164E: _chip("Radeon (Raphael)", "gfx1036", 2, integrated=True),
    0x13C0: _chip("Radeon (Granite Ridge)", "gfx1036", 2, integrated=True),
    0x1506: _chip("Radeon 610M (Mendocino)", "gfx1037", 2, integrated=True),
    0x1681: _chip("Radeon 660M/680M (Rembrandt)", "gfx1035", integrated=True),
    0x164D: _chip("Radeon 660M/680M (Rembrandt)", "gfx1035", integrated=True),
    0x15BF: _chip("Radeon 760M/780M (Phoenix)", "gfx1103", integrated=True),
    0x15C8: _chip("Radeon 740M (Phoenix)", "gfx1103", integrated=True),
    0x1900: _chip("Radeon 760M/780M (Hawk Point)", "gfx1103", integrated=True),
    0x1901: _chip("Radeon 740M (Hawk Point)", "gfx1103", integrated=True),
    0x150E: _chip("Radeon 880M/890M (Strix Point)", "gfx1150", integrated=True),
    0x1586: _chip("Radeon 8050S/8060S (Strix Halo)", "gfx1151", integrated=True),
    0x1114: _chip("Radeon 840M/860M (Krackan)", "gfx1152", integrated=True),
}

_BY_REVISION: dict[tuple[int, int], tuple[str, int | None]] = {
    (0x66A1, 0x02): ("Instinct MI50", 60),
    (0x67DF, 0xC7): ("Radeon RX 480", 36),
    (0x67DF, 0xCF): ("Radeon RX 470", 32),
    (0x67DF, 0xE7): ("Radeon RX 580", 36),
    (0x67DF, 0xEF): ("Radeon RX 570", 32),
    (0x687F, 0xC1): ("Radeon RX Vega 64", 64),
    (0x687F, 0xC3): ("Radeon RX Vega 56", 56),
    (0x731F, 0xC1): ("Radeon RX 5700 XT", 40),
    (0x731F, 0xC4): ("Radeon RX 5700", 36),
    (0x73BF, 0xC0): ("Radeon RX 6900 XT", 80),
    (0x73BF, 0xC1): ("Radeon RX 6800 XT", 72),
    (0x73BF, 0xC3): ("Radeon RX 6800", 60),
    (0x744C, 0xC8): ("Radeon RX 7900 XTX", 96),
    (0x744C, 0xCC): ("Radeon RX 7900 XT", 84),
    (0x747E, 0xC8): ("Radeon RX 7800 XT", 60),
    (0x747E, 0xFF): ("Radeon RX 7700 XT", 54),
    (0x7550, 0xC0): ("Radeon RX 9070 XT", 64),
    (0x7550, 0xC3): ("Radeon RX 9070", 56),
}


def by_device_id(device_id: int, revision: int | None = None) -> Chip | None:
    """The chip behind a PCI device id; the revision decides between cards that share one."""
    chip = _BY_ID.get(device_id)
    if chip is None or revision is None:
        return chip
    card = _BY_REVISION.get((device_id, revision))
    return chip if card is None else replace(chip, model=card[0], compute_units=card[1])


def by_gfx(gfx: str) -> Chip | None:
    """What all chips of one gfx name share; what differs between them is None, the model is the gfx name."""
    found = [chip for chip in _BY_ID.values() if chip.gfx == gfx]
    if not found:
        return None
    units = {chip.compute_units for chip in found}
    return Chip(
        found[0].model if len({c.model for c in found}) == 1 else gfx,
        gfx,
        units.pop() if len(units) == 1 else None,
        found[0].issue_peak,
        all(chip.integrated for chip in found),
    )


def gfx_name(target_version: int) -> str | None:
    """``90402`` -> ``gfx942``, as KFD writes its target versions; None for 0."""
    if target_version <= 0:
        return None
    major, minor, step = target_version // 10000, target_version // 100 % 100, target_version % 100
    return f"gfx{major}{minor:x}{step:x}"
