"""What a GPU offers and no entry exports, each with its reason. Data only."""

from __future__ import annotations

OMITTED: tuple[tuple[str, str], ...] = (
    (
        "`amdgpu_pcie_received_bytes_total` and `amdgpu_pcie_transmitted_bytes_total`",
        (
            "the table's `pcie_bandwidth_acc` adds up a momentary rate over firmware samples whose period "
            "nobody states, in a unit that differs between tables; the file `pcie_bw` stops the reader for a "
            "second and is empty on newer cards. There is no number of bytes to be had from either."
        ),
    ),
    (
        "busy share of APUs from tables 2.x and 3.0",
        (
            "some firmware writes percent there and other firmware hundredths, and the table does not say "
            "which; `gpu_busy_percent` serves instead."
        ),
    ),
    (
        "busy seconds from tables before 1.6",
        "they add up percent over samples and do not say how many samples there were.",
    ),
    (
        "throttle masks of tables 1.0 to 1.5 and 2.x",
        "a bit is the state of one moment, missed or caught by chance; the counters of later tables are not.",
    ),
    (
        "attributes of table 1.9 with ids from 49 that could be two things",
        "kernels moved them by one; where the table does not tell which kernel wrote it they stay unnamed.",
    ),
    (
        "`amdgpu_events_total`: page faults, throttling and resets as the driver announces them",
        (
            "whoever listens holds `/dev/kfd` open all the time, which blocks partition changes and driver "
            "upgrades; resets are seen by their core dumps, throttling by its residency."
        ),
    ),
    (
        "xGMI error state",
        "reading the file clears it for everyone else.",
    ),
    (
        "registers of queues in debugfs",
        (
            "images of hardware state that only the driver can read; what is taken from there is how many "
            "queues there are, where the driver's own list of them may not be read."
        ),
    ),
)
