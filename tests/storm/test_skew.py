"""The release: what of the announced instant ranks achieved is measured, and told with every result."""

from __future__ import annotations

import numpy as np
import pytest

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record import files
from ckptstorm.record.receipts import receipts
from ckptstorm.record.summary import summarize
from ckptstorm.units import time_text

JOB = """
[storm]
rounds = 3
[io]
engine = "null"
[model]
shard_bytes = "64KiB"
[layout]
name = "file_per_rank"
"""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 16])
def test_the_skew_achieved_is_measured_and_told(ckptstorm, place, ranks):
    """Alone nobody can be late; of sixteen ranks on few cores each start is in its row, and the worst is told."""
    (place / "job.toml").write_text(JOB)
    ended = ckptstorm("run", "job.toml", "--ranks", str(ranks))
    assert ended.code == 0, ended.said
    record = files.load(next((place / "results").iterdir()))
    saves = [phase for phase in record.phases if phase.phase == Phase.SAVE]
    summaries = [summary for summary in summarize(record) if summary.is_measured]
    for phase in saves:
        late_ns = phase.rows["release_ns"] - phase.rows["release_ns"].min()
        assert (phase.rows["release_ns"] >= 0).all()  # nobody starts before the instant: one kernel, one clock
        assert (np.count_nonzero(late_ns) > 0) == (ranks > 1)
    worst = max(summaries, key=lambda summary: summary.skew_max_s)
    assert (worst.skew_max_s > 0) == (ranks > 1)
    told = receipts(record)["clock"].evidence
    assert f"within {time_text(worst.skew_max_s * NS_PER_S)} of one another" in told
    assert f"(median {time_text(worst.skew_median_s * NS_PER_S)})" in told
