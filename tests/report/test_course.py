"""How the report tells of rounds: sure or not, drifting or not, staged or not."""

from __future__ import annotations

import numpy as np

from ckptstorm.measure.pace import PACE_DTYPE
from ckptstorm.record import files
from ckptstorm.record.summary import summarize
from ckptstorm.report.terminal import render
from tests.record.synthetic import MS, Make, record, with_job, with_phase

S = 1000 * MS


def _told(made):
    return " ".join(render(made).split())


def test_it_says_how_sure_the_median_is():
    """Made-up rounds, each 1 % of the first slower than the one before: the interval and the drift are of that."""
    told = _told(record(Make(rounds=12)))
    assert "the median is known to ± 3.3 % after 12 rounds (96 % interval 2.07 s to 2.21 s)" in told
    assert "0.95 % slower a round (95 %:" in told
    assert "median of 12 rounds known to ± 3.3 %" in told


def test_it_says_whether_that_is_as_sure_as_was_asked():
    """Reached, not reached, and cannot be told."""
    many, few = record(Make(rounds=12)), record(Make(rounds=4))
    assert "± 5 % was asked: reached" in _told(with_job(many, "storm", rounds="until 5%, at most 50"))
    assert "± 1 % was asked: NOT REACHED" in _told(with_job(many, "storm", rounds="until 1%, at most 50"))
    assert "cannot be told with fewer than 6" in _told(with_job(few, "storm", rounds="until 1%, at most 4"))
    assert "Over rounds" not in _told(few)


def _staged(made):
    pace = np.zeros(4, dtype=PACE_DTYPE)
    pace["blocked_ns"], pace["backpressure_ns"] = [300 * MS, 500 * MS, 400 * MS, 350 * MS], 100 * MS
    pace["copied_bytes"], pace["step_count"] = 1 << 30, [7, 9, 8, 7]
    made = with_phase(made, 0, pace=pace)
    return with_job(made, "storm", staging=2 << 30, rounds=1)


def test_blocked_time_and_drain_are_told_apart(tmp_path):
    """Training waited 0.5 s, the drain took 2.1 s; both are in the headline, and in the record that is read back."""
    made = _staged(record(Make(rounds=1)))
    told = _told(made)
    assert "blocked 4 GPUs for 500 ms (worst 500 ms); drained in 2.02 s behind the training" in told
    assert "Asynchronous saves staging 2.00 GiB a rank; 4.00 GiB copied a save" in told
    files.write(made, tmp_path / "x")
    again = files.load(tmp_path / "x")
    assert again.phases[0].pace.tolist() == made.phases[0].pace.tolist()
    assert len(again.phases[1].pace) == 0
    staged = summarize(again)[0].staged
    assert (staged.blocked_seconds, staged.backpressure_seconds, staged.step_count) == (0.5, 0.1, 7)
    assert staged.copy_bytes_per_s == (4 << 30) / 0.4
    assert summarize(again)[0].stall_gpu_seconds == 1.55


def test_planned_delays_make_no_stragglers():
    """A rank that comes 5 s late by plan is as fast as the others, from its own release."""
    made = record(Make(rounds=1, late={2: 5.0}))
    assert [one.rank for one in summarize(made)[0].stragglers] == [2]
    pace = np.zeros(4, dtype=PACE_DTYPE)
    pace["delay_ns"][2] = 5 * S
    summary = summarize(with_phase(made, 0, pace=pace))[0]
    assert summary.stragglers == ()
    assert summary.seconds > 6.9
    assert summary.rank_seconds.max < 2.2
