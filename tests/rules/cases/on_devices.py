"""Cases of alerts on the GPUs themselves."""

from __future__ import annotations

from tests.rules.cases.case import NODE, SOURCE, Case, fires, of_gpu, of_node, quiet
from tests.rules.made import alternating, flat, gpu, ramp, reset


def cases() -> list[Case]:
    up, ups = "amdgpu_up", [SOURCE]
    eight = of_node("amdgpu_expected_devices", flat(8, 200))
    hot, limit = "amdgpu_temperature_celsius", "amdgpu_temperature_limit_celsius"
    limits = [of_gpu(limit, flat(105, 200), sensor="junction", limit="critical")]
    limits += [of_gpu(limit, flat(110, 200), sensor="junction", limit="emergency")]
    throttle, samples = (
        "amdgpu_throttle_residency_total",
        of_gpu("amdgpu_throttle_samples_total", ramp(6000, 200)),
    )
    ce, ue = "amdgpu_ecc_correctable_errors_total", "amdgpu_ecc_uncorrectable_errors_total"
    width, max_width = (
        "amdgpu_pcie_link_width_lanes",
        of_gpu("amdgpu_pcie_max_link_width_lanes", flat(16, 200)),
    )
    speed, max_speed = (
        "amdgpu_pcie_link_transfers_per_second",
        of_gpu("amdgpu_pcie_max_link_transfers_per_second", flat(32e9, 200)),
    )
    busy = of_gpu("amdgpu_busy_ratio", flat(0.8, 200), engine="gfx")
    idle = of_gpu("amdgpu_busy_ratio", flat(0.01, 200), engine="gfx")
    return [
        fires("AmdGpuMissing", "a GPU stops to answer", [*ups, of_gpu(up, [1] * 20 + [0] * 80)], gpu(), 40),
        fires(
            "AmdGpuMissing",
            "one of eight is gone without a name",
            [*ups, eight, of_node("amdgpu_devices", [8] * 20 + [7] * 80)],
            NODE,
            40,
        ),
        fires(
            "AmdGpuMissing",
            "a lost GPU is told once, by its name",
            [*ups, eight, of_node("amdgpu_devices", [8] * 20 + [7] * 80), of_gpu(up, [1] * 20 + [0] * 80)],
            gpu(),
            40,
        ),
        quiet(
            "AmdGpuMissing",
            "all are there, one only flickers",
            [
                *ups,
                eight,
                of_node("amdgpu_devices", alternating(8, 7, 200)),
                of_gpu(up, alternating(1, 0, 200)),
            ],
            40,
            80,
        ),
        quiet(
            "AmdGpuMissing",
            "a source that is down says nothing of GPUs",
            [
                of_node("amdgpu_exporter_source_up", flat(0, 100), source="gpu"),
                of_gpu(up, flat(0, 100)),
                eight,
            ],
            40,
        ),
        fires(
            "AmdGpuEccUncorrectable",
            "one error",
            [of_gpu(ue, [0] * 20 + [1] * 60, block="umc")],
            gpu(),
            25,
            70,
        ),
        quiet(
            "AmdGpuEccUncorrectable", "errors from before", [of_gpu(ue, flat(7, 100), block="umc")], 5, 40, 90
        ),
        quiet(
            "AmdGpuEccUncorrectable",
            "the driver was loaded anew and counts from 0",
            [of_gpu(ue, [7] * 30 + [0] * 60, block="umc")],
            35,
            60,
        ),
        fires(
            "AmdGpuEccCorrectable",
            "a burst without history",
            [of_gpu(ce, [0] * 30 + ramp(10, 90), block="umc")],
            gpu(),
            100,
        ),
        fires(
            "AmdGpuEccCorrectable",
            "far above its own normal",
            [of_gpu(ce, ramp(0.1, 300) + ramp(10, 120, 30), block="umc")],
            gpu(),
            400,
            changes={"AmdGpuEccCorrectable": {"normal_range": "3h"}},
        ),
        quiet(
            "AmdGpuEccCorrectable",
            "a card that always has many, and now a few more",
            [of_gpu(ce, ramp(10, 300) + ramp(15, 120, 3000), block="umc")],
            400,
            changes={"AmdGpuEccCorrectable": {"normal_range": "3h"}},
        ),
        quiet("AmdGpuEccCorrectable", "a few", [of_gpu(ce, ramp(0.5, 120), block="umc")], 60, 110),
        quiet(
            "AmdGpuEccCorrectable",
            "the driver was loaded anew and counts from 0",
            [of_gpu(ce, [5000.0] * 50 + ramp(0.1, 70), block="umc")],
            55,
            60,
            110,
        ),
        quiet(
            "AmdGpuRetiredPages",
            "read at every other poll",
            [of_gpu("amdgpu_retired_pages", alternating(0, 2, 120), state="pending")],
            30,
            60,
            100,
        ),
        quiet(
            "AmdGpuPcieReplays",
            "the driver was loaded anew and counts from 0",
            [of_gpu("amdgpu_pcie_replays_total", [900.0] * 50 + ramp(0.1, 70))],
            55,
            60,
            110,
        ),
        quiet(
            "AmdGpuPowerCapped",
            "both counters begin anew",
            [(n, reset(v, 60)) for n, v in (samples, of_gpu(throttle, ramp(3000, 200), reason="power"))],
            62,
            90,
            130,
        ),
        fires(
            "AmdGpuRetiredPages",
            "pages pending",
            [of_gpu("amdgpu_retired_pages", flat(2, 60), state="pending")],
            gpu(),
            30,
        ),
        quiet(
            "AmdGpuRetiredPages",
            "pages done",
            [of_gpu("amdgpu_retired_pages", flat(9, 60), state="reserved")],
            30,
            50,
        ),
        fires(
            "AmdGpuThrottled",
            "hot for a tenth of the time",
            [
                samples,
                of_gpu(throttle, ramp(600, 200), reason="socket_thermal"),
                of_gpu(throttle, ramp(0, 200), reason="power"),
            ],
            gpu(),
            40,
        ),
        quiet(
            "AmdGpuThrottled",
            "only the power cap, and a restart of both counters",
            [
                ("amdgpu_throttle_samples_total" + samples[0][29:], reset(list(samples[1]), 60)),
                of_gpu(throttle, reset(ramp(5900, 200), 60), reason="power"),
                of_gpu(throttle, reset(ramp(60, 200), 60), reason="hbm_thermal"),
            ],
            40,
            62,
            70,
            100,
        ),
        fires(
            "AmdGpuPowerCapped",
            "at its cap",
            [samples, of_gpu(throttle, ramp(5900, 200), reason="power")],
            gpu(),
            60,
        ),
        quiet(
            "AmdGpuPowerCapped",
            "half at its cap",
            [samples, of_gpu(throttle, ramp(3000, 200), reason="power")],
            60,
        ),
        fires(
            "AmdGpuOverTemperature",
            "above its limit",
            [*limits, of_gpu(hot, flat(107, 60), sensor="junction")],
            gpu(),
            30,
        ),
        quiet(
            "AmdGpuOverTemperature", "warm", [*limits, of_gpu(hot, flat(99, 60), sensor="junction")], 30, 50
        ),
        quiet(
            "AmdGpuOverTemperature",
            "above and below from sample to sample",
            [*limits, of_gpu(hot, alternating(90, 112, 200), sensor="junction")],
            30,
            60,
            90,
            step="30s",
        ),
        quiet(
            "AmdGpuOverTemperature",
            "a single spike",
            [*limits, of_gpu(hot, [90] * 30 + [125] + [90] * 60, sensor="junction")],
            31,
            40,
            60,
        ),
        fires(
            "AmdGpuPcieDegraded",
            "half the lanes while busy",
            [busy, max_width, max_speed, of_gpu(width, flat(8, 200)), of_gpu(speed, flat(32e9, 200))],
            gpu(),
            40,
        ),
        fires(
            "AmdGpuPcieDegraded",
            "too slow while busy",
            [busy, max_width, max_speed, of_gpu(width, flat(16, 200)), of_gpu(speed, flat(16e9, 200))],
            gpu(),
            40,
        ),
        quiet(
            "AmdGpuPcieDegraded",
            "slow while idle",
            [idle, max_speed, of_gpu(speed, flat(2.5e9, 200))],
            40,
            90,
        ),
        quiet(
            "AmdGpuPcieDegraded",
            "busy in bursts, slow in between",
            [
                busy,
                max_speed,
                max_width,
                of_gpu(speed, alternating(2.5e9, 32e9, 200)),
                of_gpu(width, alternating(1, 16, 200)),
            ],
            40,
            90,
        ),
        fires(
            "AmdGpuPcieReplays",
            "a steady rise",
            [of_gpu("amdgpu_pcie_replays_total", ramp(2, 120))],
            gpu(),
            90,
        ),
        quiet("AmdGpuPcieReplays", "a few", [of_gpu("amdgpu_pcie_replays_total", ramp(0.1, 120))], 60, 90),
        fires(
            "AmdGpuImbalance",
            "one works hard, one hardly",
            [
                of_gpu("amdgpu_busy_ratio", flat(b, 120), n, engine="gfx")
                for n, b in enumerate((0.95, 0.9, 0.2))
            ],
            NODE,
            60,
        ),
        quiet(
            "AmdGpuImbalance",
            "four work, four idle",
            [
                of_gpu("amdgpu_busy_ratio", flat(b, 120), n, engine="gfx")
                for n, b in enumerate((0.9, 0.8, 0, 0.01))
            ],
            60,
            110,
        ),
        quiet(
            "AmdGpuImbalance",
            "each in turn",
            [
                of_gpu("amdgpu_busy_ratio", alternating(0.95, 0.1, 200), 0, engine="gfx"),
                of_gpu("amdgpu_busy_ratio", alternating(0.1, 0.95, 200), 1, engine="gfx"),
            ],
            60,
            90,
            step="30s",
        ),
        fires(
            "AmdGpuReadingsVanished",
            "throttle counters were there an hour ago",
            [of_gpu(up, flat(1, 120)), of_gpu("amdgpu_throttle_samples_total", ramp(1, 20)), busy],
            {**gpu(), "signal": "throttle"},
            75,
        ),
        quiet(
            "AmdGpuReadingsVanished", "a chip that never had them", [of_gpu(up, flat(1, 120)), busy], 30, 75
        ),
    ]
