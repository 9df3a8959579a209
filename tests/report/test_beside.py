"""How the report tells of loads beside the save: side by side, held or behind, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ckptstorm.measure import histogram
from ckptstorm.measure.actions import ActionTable
from ckptstorm.measure.latency import empty
from ckptstorm.measure.rows import PHASE_ROW_DTYPE, Phase
from ckptstorm.record import files
from ckptstorm.record.beside import WINDOWS, Beside
from ckptstorm.record.load import NODE_DTYPE, LoadRecord
from ckptstorm.record.record import PhaseRecord
from ckptstorm.record.verdict import limits
from ckptstorm.report.terminal import render
from tests.record.synthetic import MS, Make, record, save_phase

S = 1000 * MS
#: What a stat takes in each window, and how many of 1,000 due in each second end in it.
STAT_MS = dict(zip(WINDOWS, (0.4, 212.0, 0.5, 3.0), strict=True))
ENDED = dict(zip(WINDOWS, (1000, 900, 1100, 1000), strict=True))


def _window(name, number):
    elapsed = np.full(1000, int(STAT_MS[name] * MS), dtype=np.int64)
    table = ActionTable(
        np.stack([histogram.fold(elapsed), np.zeros_like(histogram.fold(elapsed))]),
        np.array([elapsed.max(), 0], dtype=np.int64),
        np.zeros(2, dtype=np.int64),
    )
    rows = np.zeros(4, dtype=PHASE_ROW_DTYPE)
    rows["rank"], rows["round"], rows["phase"] = np.arange(4), number, int(Phase.LOAD)
    rows["durable_ns"] = rows["committed_ns"] = rows["done_ns"] = S
    nodes = np.zeros(1, dtype=NODE_DTYPE)
    nodes["count"] = 1000
    load = LoadRecord("lookups", ("stat", "reset"), table, nodes, np.array([[1000, 0]], dtype=np.int64))
    kept = Beside(name, 1.0, 1000, ENDED[name], 200 * MS)
    return PhaseRecord(Phase.LOAD, number, rows, empty(), name=f"lookups {name}", load=replace(load, beside=kept))


def _made():
    made = record(Make(rounds=2))
    phases = []
    for phase in made.phases:
        if phase.phase == Phase.SAVE:
            quiet = save_phase(Make(rounds=2, save_s=1.6), phase.round)
            phases.append(replace(quiet, phase=Phase.QUIET_SAVE))
        phases.append(phase)
        if phase.phase == Phase.RESTORE:
            phases += [_window(name, phase.round) for name in WINDOWS]
    load = {"kind": "metadata", "name": "lookups", "when": "beside", "rate": "1000/s"}
    return replace(made, phases=tuple(phases), job=made.job | {"load": [load]})


def test_before_during_and_after_stand_side_by_side(tmp_path):
    """The first screen has the sentence that one came for; a record that is read back tells the same."""
    files.write(_made(), tmp_path / "x")
    for made in (_made(), files.load(tmp_path / "x")):
        told = " ".join(render(made).split())
        assert "lookups stat p99 399 us alone, 212 ms during the save" in told
        assert "fell behind: 900/s of 1,000/s" in told
        assert "during the save: 900/s of 1,000/s due: fell behind by 200 actions (10 %)" in told
        assert "after the save: 1,100/s of 1,000/s due, the latest start 200 ms late" in told
        assert "1.63 s without the loads, 2.04 s with them: +25 % (median of 2 pairs" in told
        assert "reset" not in told


def test_limits_find_their_window():
    """During is the save's window; without it the load by itself; rates are those that were achieved."""
    asked = {
        "stat_p99_during_save": "100ms",
        "lookups_stat_p99": "1ms",
        "stat_max_during_restore": "10ms",
        "lookups_ops_per_s_during_save": 950,
        "metadata_ops_per_s_per_node": 500,
    }
    found = {limit.key: limit for limit in limits(replace(_made(), job=_made().job | {"slo": asked}))}
    assert {key: limit.is_met for key, limit in found.items()} == {
        "stat_p99_during_save": False,
        "lookups_stat_p99": True,
        "stat_max_during_restore": True,
        "lookups_ops_per_s_during_save": False,
        "metadata_ops_per_s_per_node": True,
    }
    assert found["lookups_ops_per_s_during_save"].found == 900
    assert found["stat_p99_during_save"].found == 212 * MS
