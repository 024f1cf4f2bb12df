"""One run as each profiler would write it: whatever the form, the same numbers come of it.

The files are those of the benchmark of windows, made small.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import windows
from exporter.windows import intake

KERNELS = 2_000


@pytest.mark.parametrize("form", sorted(windows.FORMATS))
def test_every_form_says_what_the_launches_say(tmp_path: Path, form: str) -> None:
    windows.FORMATS[form](tmp_path, KERNELS)
    [result] = intake.load([tmp_path]).results
    made = list(windows.launches(KERNELS))
    assert (result.kernels, result.paired, result.skewed) == (KERNELS, KERNELS, 0)
    assert result.execution_ns == sum(o.end - o.start for o in made)
    assert result.busy_ns == result.execution_ns  # one kernel after the other
    assert result.queue_ns == sum(o.start - o.called for o in made)
    assert result.launch_duration_ns == sum(o.end - o.called for o in made)
    assert result.launch_call_ns == sum(o.returned - o.called for o in made)
    assert result.span_ns == made[-1].end - made[0].start
    calls = {windows._NAMES.index(s.kernel): s.calls for s in result.kernel_stats}
    assert calls == {n: sum(o.name == n for o in made) for n in {o.name for o in made}}
