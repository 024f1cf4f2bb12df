"""Entries: errors a GPU reports about itself."""

from __future__ import annotations

from exporter.catalogue.schema import Field, Kind, Metric, Scope, Unit

_COUNT = (0.0, 2.0**64)
_CPER = "Instinct whose driver keeps error records, with amdsmi of ROCm 7.14 or later"
_RAS = "Instinct and other cards with ECC memory, where the driver makes the folder ras of the device"


def _ecc(severity: str, key: str, sentence: str) -> Metric:
    return Metric(
        f"ecc_{severity}_errors",
        Kind.COUNTER,
        Unit.NONE,
        sentence
        + " By block (umc is memory); counted since the driver started. Absent on cards without ECC.",
        Scope.SOCKET,
        _COUNT,
        labels=("block",),
        fields=(
            Field("amdsmi", "ras", f"{key}.*", each=("block",)),
            Field("sysfs", "ras", f"{key}.*", each=("block",)),
            Field("smi_cli", "errors", f"{severity}.*", each=("block",)),
        ),
        peers=(f"dme:gpu_ecc_{severity.removesuffix('able')}_<block>",)
        + ((f"omnistat:rocm_ras_<block>_{severity}_count",) if severity != "deferred" else ()),
        check="grep . /sys/class/drm/card*/device/ras/*_err_count",
        seen_on=_RAS,
    )


METRICS: tuple[Metric, ...] = (
    _ecc(
        "correctable",
        "ce",
        "Memory errors the hardware corrected; data is good, a fast rise announces worse.",
    ),
    _ecc(
        "uncorrectable",
        "ue",
        "Errors the hardware could not correct; data was lost and the job may be wrong.",
    ),
    _ecc("deferred", "de", "Uncorrectable errors found before anyone used the data (poison)."),
    Metric(
        "retired_pages",
        Kind.GAUGE,
        Unit.NONE,
        "Memory pages taken out of use after errors: reserved (done), pending (at the next reset), "
        "unreservable (in use, still dangerous). Needs root; absent on cards without ECC.",
        Scope.SOCKET,
        (0, 1e6),
        labels=("state",),
        fields=(
            Field("amdsmi", "pages", "*", each=("state",)),
            Field("sysfs", "ras", "pages.*", each=("state",)),
        ),
        check="cat /sys/class/drm/card*/device/ras/gpu_vram_bad_pages",
        seen_on=_RAS,
    ),
    Metric(
        "resets",
        Kind.COUNTER,
        Unit.NONE,
        "Core dumps the driver left of this GPU since the exporter started: it leaves one when it resets the "
        "GPU or, on newer kernels, a queue of it. Dumps that follow within minutes may count once.",
        Scope.SOCKET,
        _COUNT,
        fields=(Field("sysfs", "resets", "count"),),
        check="ls /sys/class/devcoredump; dmesg | grep -i 'amdgpu.*reset'",
        seen_on="any GPU whose kernel makes device core dumps (CONFIG_DEV_COREDUMP)",
    ),
    Metric(
        "error_records",
        Kind.COUNTER,
        Unit.NONE,
        "Error records (CPER) of the driver, by severity: fatal, uncorrected (data was lost) or corrected. "
        "Only where amdsmi.error_records is set.",
        Scope.SOCKET,
        _COUNT,
        labels=("severity",),
        fields=(Field("amdsmi", "records", "count.*", each=("severity",)),),
        check="amd-smi ras --cper --severity=all",
        seen_on=_CPER,
    ),
    Metric(
        "error_record_last",
        Kind.GAUGE,
        Unit.TIMESTAMP,
        "When the newest error record (CPER) of a severity was written, as the driver stamped it; absent "
        "until there is one. Only where amdsmi.error_records is set.",
        Scope.SOCKET,
        (0, 2**35),
        labels=("severity",),
        fields=(Field("amdsmi", "records", "newest.*", each=("severity",)),),
        check="amd-smi ras --cper --severity=all",
        seen_on=_CPER,
    ),
    Metric(
        "error_causes",
        Kind.COUNTER,
        Unit.NONE,
        "Times an AMD field id (AFID), the vendor's number for a kind of fault, stood in an error record "
        "(CPER); at most 32 ids, the rest are other. Only where amdsmi.error_records is set.",
        Scope.SOCKET,
        _COUNT,
        labels=("afid",),
        fields=(Field("amdsmi", "records", "afid.*", each=("afid",)),),
        check="amd-smi ras --afid --cper-file FILE",
        seen_on=_CPER,
    ),
)
