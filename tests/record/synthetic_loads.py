"""Loads beside the saves of a made-up storm, with known times in each window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ckptstorm.measure import histogram
from ckptstorm.measure.actions import ActionTable
from ckptstorm.measure.rows import PHASE_ROW_DTYPE, Phase
from ckptstorm.record.beside import WINDOWS, Beside
from ckptstorm.record.load import NODE_DTYPE, LoadRecord
from ckptstorm.record.record import PhaseRecord, StormRecord
from tests.record.synthetic import MS, S

#: How long a stat takes in each window; every hundredth takes ten times as long.
STAT_MS = dict(zip(WINDOWS, (1, 20, 1, 5), strict=True))
#: Actions in a window, one each 10 ms; in the save one of ten does not end in it.
COUNT = 200


def with_loads(made: StormRecord) -> StormRecord:
    """The same storm with "users" who stat and create beside each save, and a quiet save before it, half as long."""
    phases: list[PhaseRecord] = []
    for phase in made.phases:
        if phase.phase == Phase.SAVE:
            rows = phase.rows.copy()
            for column in ("durable_ns", "committed_ns", "done_ns"):
                rows[column] //= 2
            phases.append(replace(phase, phase=Phase.QUIET_SAVE, rows=rows))
        phases.append(phase)
        if phase.phase == Phase.RESTORE:
            phases += [_window(phase, window) for window in WINDOWS]
    return replace(made, phases=tuple(phases))


def _window(restore: PhaseRecord, window: str) -> PhaseRecord:
    times = np.full(COUNT, STAT_MS[window] * MS, dtype=np.int64)
    times[:: COUNT // 4] *= 10
    counts = np.stack([histogram.fold(times), histogram.fold(times // 2), histogram.fold(times)])
    maxima = np.array([times.max(), times.max() // 2, times.max()], dtype=np.int64)
    ended = COUNT - COUNT // 10 if window == "during the save" else COUNT
    rows = np.zeros(len(restore.rows), dtype=PHASE_ROW_DTYPE)
    rows["rank"], rows["node"], rows["phase"], rows["round"] = (
        restore.rows["rank"], restore.rows["node"], int(Phase.LOAD), restore.round,
    )  # fmt: skip
    rows["durable_ns"] = rows["committed_ns"] = rows["done_ns"] = 2 * S
    load = LoadRecord(
        "users",
        ("stat", "create", "reset"),
        ActionTable(counts, maxima, np.zeros(3, dtype=np.int64)),
        np.zeros(0, dtype=NODE_DTYPE),
        np.array([[COUNT // 2, 0], [COUNT // 2, 0]], dtype=np.int64),
        Beside(window, 2.0, COUNT, ended, 3 * MS),
    )
    blank = replace(
        restore, phase=Phase.LOAD, rows=rows, kind_ns=restore.kind_ns[:0], timeline=type(restore.timeline)()
    )
    return replace(blank, planned_bytes=0, planned_op_count=0, name=f"users {window}", load=load, resident_share=-1.0)
