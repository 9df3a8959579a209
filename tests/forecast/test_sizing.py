"""A record on a cluster that fails: the answer is made from what was measured, and says where it does not reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.forecast.sizing import Asked, size
from ckptstorm.measure.pace import PACE_DTYPE
from ckptstorm.measure.rows import Phase
from ckptstorm.record.verdict import verdict
from ckptstorm.report import sizing as page
from ckptstorm.report import terminal
from tests.record import synthetic
from tests.record.synthetic import Make, with_phase


def _text(record, asked) -> str:
    found = size(record, asked)
    return " ".join(terminal.render_sections(page.sections(found, record, verdict(record))).split())


def test_it_reckons_with_what_was_measured():
    """Committed saves, restores plus the stated restart, the bytes of a save."""
    made = synthetic.record(Make(rounds=6))
    found = size(made, Asked(16_384, 50_000, restart_s=300.0))
    assert found.costs.mtbf_s == pytest.approx(50_000 * 3600 / 16_384)
    assert len(found.costs.save_s) == len(found.costs.restart_s) == 6
    assert min(found.costs.save_s) == pytest.approx(2.02, abs=0.02)
    assert min(found.costs.restart_s) == pytest.approx(301.0, abs=0.1)
    assert found.bytes_a_save == 4 << 30
    names = [choice.name for choice in found.synchronous]
    assert names == ["least", "daly", "young", "availability", "slowest"]


def test_a_late_rank_in_one_round_costs_goodput():
    """The tail counts: nine saves of 2 s and one of 60 s waste more than ten of the median."""
    usual = synthetic.record(Make(rounds=10))
    slow = synthetic.record(Make(rounds=10, late={3: 60.0}))
    mixed = with_phase(usual, 0, rows=slow.phases[0].rows, barrier_to_barrier_ns=0)
    asked = Asked(16_384)
    assert size(mixed, asked).synchronous[0].shares.goodput < size(usual, asked).synchronous[0].shares.goodput - 0.01
    assert "2.03 s to 62" in _text(mixed, asked) or "to 62" in _text(mixed, asked)


def test_the_page_says_what_must_be_known():
    """The upshot first; then failures, shares, GPU-hours, money, bandwidth, and every formula with its source."""
    text = _text(synthetic.record(Make(rounds=6)), Asked(16_384, 50_000, 300.0, 2.0, 1800.0, 0.03, 2.5))
    for words in (
        "once in 3 h 3 min: 16,384 GPUs, each once in 50,000 h",
        "the times are those of 4 ranks",
        "wastes least", "Daly", "Young", "availability", "as asked 30 min", "if all were slowest",
        "of 393 k GPU-hours are lost", "a day at 2.50 a GPU-hour",
        "Asynchronous: training is held for 2.00 s a save",
        "Bandwidth for an overhead of 3 %", "at 30 min 0 s: 75.9 MiB/s",
        "Communications of the ACM 17 (1974)", "Computer Systems 22 (2006)", "arXiv 2410.18124",
    ):  # fmt: skip
        assert words in text, words


def test_what_is_doubtful_is_said():
    """Few rounds; an invalid record; a save that would not have drained."""
    assert "3 rounds cannot show how long a bad save takes" in _text(synthetic.record(), Asked(4))
    assert "INVALID: the record may not be quoted" in _text(synthetic.record(Make(generate_share=0.5)), Asked(4))
    assert "would not have drained" in _text(synthetic.record(), Asked(4, interval_s=1.0))


def test_a_record_without_a_finished_round_is_refused():
    """There is no time to reckon with."""
    with pytest.raises(PlaceError, match="no save of a measured round was finished"):
        size(synthetic.record(phases=()), Asked(4))


def test_a_job_that_never_gets_through_is_refused():
    """It fails every few milliseconds: no interval helps, and no number would mean anything."""
    with pytest.raises(PlaceError, match="would never get through"):
        size(synthetic.record(), Asked(1 << 24, 1.0))


def test_no_line_is_longer_than_80_characters():
    """Of the whole page."""
    made = synthetic.record(Make(rounds=6))
    found = size(made, Asked(1_000_000, 9_999.0, 300.0, 2.0, 1800.0, 0.03, 2.5))
    for line in terminal.render_sections(page.sections(found, made, verdict(made))).splitlines():
        assert len(line) <= terminal.WIDTH, line


def test_a_staged_storm_has_measured_what_training_is_held_for():
    """The slowest rank's copy, round by round; said so; and another figure can be asked for."""
    made = synthetic.record(Make(rounds=6))
    pace = np.zeros(4, dtype=PACE_DTYPE)
    pace["blocked_ns"], pace["copied_bytes"] = [1, 2, 3, 4], 1 << 30
    pace["blocked_ns"] *= 100_000_000
    phases = tuple(replace(each, pace=pace) if each.phase == Phase.SAVE else each for each in made.phases)
    staged = replace(made, phases=phases)
    assert size(staged, Asked(16_384)).blocking_s == pytest.approx(0.4)
    text = _text(staged, Asked(16_384))
    assert "training is held for 400 ms a save (measured)" in text
    assert "the storm's saves were asynchronous" in text
    assert size(staged, Asked(16_384, blocking_s=2.0)).blocking_s == 2.0
