"""The table /pace of storm.h5: what pacing and staging did to each rank, in the phases that have any of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.pace import PACE_DTYPE, Pace

#: `PACE_DTYPE`, and the index of the phase that the row belongs to; rows of a phase stand in the order of its ranks.
PACES_DTYPE = np.dtype([("phase_index", "<u4"), *((name, "<i8") for name in PACE_DTYPE.names or ())])

Table = NDArray[Any]


def to_table(several: Sequence[Pace]) -> Table:
    """All phases' rows in one table."""
    table = np.zeros(sum(len(pace) for pace in several), dtype=PACES_DTYPE)
    table["phase_index"] = np.repeat(np.arange(len(several)), [len(pace) for pace in several])
    for name in PACE_DTYPE.names or ():
        table[name] = np.concatenate([np.zeros(0, dtype=np.int64), *(pace[name] for pace in several)])
    return table


def from_table(table: Table, phase_count: int) -> list[Pace]:
    """The way back, checked by `impossible`."""
    several = []
    for index in range(phase_count):
        rows = table[table["phase_index"] == index]
        pace = np.zeros(len(rows), dtype=PACE_DTYPE)
        for name in PACE_DTYPE.names or ():
            pace[name] = rows[name]
        several.append(pace)
    return several


def impossible(table: Table, phases: Table) -> str:
    """The first thing in the table that no storm can have written; "" when there is none."""
    named, counts = np.unique(table["phase_index"], return_counts=True)
    if len(named) and int(named.max()) >= len(phases):
        return "the table pace names a phase that there is not"
    return "" if (phases["row_count"][named] == counts).all() else "a phase has not as many rows in pace as ranks"
