"""Small tables that some phases have, each flat in storm.h5: a row carries the index of its phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.clocks import CLOCK_DTYPE
from ckptstorm.measure.pace import PACE_DTYPE
from ckptstorm.measure.visibility import VISIBILITY_DTYPE

Table = NDArray[Any]


def _flat(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`phase_index` is the row in /phases; rows stand in its order."""
    return np.dtype([("phase_index", "<i8"), *((name, dtype[name]) for name in dtype.names or ())])


#: The field of `PhaseRecord`, which is also the name of the table, and what its rows are in the file.
PHASE_TABLES = {
    "pace": _flat(PACE_DTYPE),
    "clocks": _flat(CLOCK_DTYPE),
    "visibility": _flat(VISIBILITY_DTYPE),
}
_ROW = {"pace": PACE_DTYPE, "clocks": CLOCK_DTYPE, "visibility": VISIBILITY_DTYPE}


def to_table(name: str, parts: Sequence[Table]) -> Table:
    """All phases' rows in one table; a phase without any has none."""
    table = np.zeros(sum(len(part) for part in parts), dtype=PHASE_TABLES[name])
    table["phase_index"] = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    for column in _ROW[name].names or ():
        table[column] = np.concatenate([np.zeros(0, _ROW[name][column]), *(part[column] for part in parts)])
    return table


def from_table(name: str, table: Table, phase_count: int) -> list[Table]:
    """The rows of each phase (checked by `impossible`)."""
    plain = np.zeros(len(table), dtype=_ROW[name])
    for column in _ROW[name].names or ():
        plain[column] = table[column]
    return np.split(plain, np.searchsorted(table["phase_index"], np.arange(1, phase_count))) if phase_count else []


def impossible(tables: dict[str, Table], node_count: int) -> str:
    """The first thing in these tables that no storm can have written; "" when there is none."""
    phases, rank_count = tables["phases"], len(tables["node_of_rank"])
    for name in PHASE_TABLES:
        index = tables[name]["phase_index"]
        if (index >= len(phases)).any() or (np.diff(index) < 0).any():
            return f"the table {name} names a phase that there is not, or has phases out of order"
    named, counts = np.unique(tables["pace"]["phase_index"], return_counts=True)
    if (phases["row_count"][named] != counts).any():
        return "a phase has not as many rows in pace as ranks"
    if (tables["clocks"]["rank"] >= rank_count).any():
        return "a clock was measured by a rank that there is not"
    if (tables["visibility"]["node"] >= node_count).any():
        return "a node that there is not saw a checkpoint"
    return ""
