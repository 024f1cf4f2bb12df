"""The processes of the demo capture's node: one job per busy GPU, as the compute driver lists them."""

from __future__ import annotations

from demo_tables import KFD_GPU_ID, PCI

FIRST, USERS = 41_200, (1001, 1001, 1002, 1002, 1003, 1003, 1002, 1001)


def files(vram_bytes: dict[str, int]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """(below ``sys/``, below ``proc/``); a GPU without memory in use has no process."""
    sysfs: dict[str, str] = {}
    proc: dict[str, str] = {"2/comm": "kthreadd"}
    for index, pci in enumerate(PCI):
        if not vram_bytes[pci]:
            continue
        number, gpu = FIRST + index, KFD_GPU_ID[pci]
        base = f"class/kfd/kfd/proc/{number}"
        # As in a container that has one GPU.
        sysfs[f"{base}/vram_{gpu}"] = str(vram_bytes[pci])
        sysfs[f"{base}/sdma_{gpu}"] = "1250000"
        sysfs[f"{base}/stats_{gpu}/evicted_ms"] = "0"
        sysfs[f"{base}/stats_{gpu}/cu_occupancy"] = str(38 + 24 * index)
        for counter in ("faults", "page_in", "page_out"):
            sysfs[f"{base}/counters_{gpu}/{counter}"] = "0"
        for queue, kind in enumerate((0, 0, 0, 0, 1, 1)[: 3 + index % 4]):
            sysfs[f"{base}/queues/{queue}/gpuid"] = str(gpu)
            sysfs[f"{base}/queues/{queue}/type"] = str(kind)
        # Fields 4 to 21, of which the number of threads is the 20th.
        fields = ["0"] * 18
        fields[16] = "64"
        proc[f"{number}/stat"] = f"{number} (python3) S {' '.join(fields)} {90_000 + number} 0"
        user = USERS[index]
        proc[f"{number}/status"] = f"Name:\tpython3\nUid:\t{user}\t{user}\t{user}\t{user}"
    return _bytes(sysfs), _bytes(proc)


def _bytes(texts: dict[str, str]) -> dict[str, bytes]:
    return {path: f"{text}\n".encode() for path, text in texts.items()}
