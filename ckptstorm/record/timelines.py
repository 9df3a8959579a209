"""The timelines of a record as two flat tables: bins one after the other, and which of them belong to which phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.timeline import BIN_DTYPE, BIN_LIMIT, Timeline

Table = NDArray[Any]

#: One row a phase that has a timeline: `phase_index` is its row in /phases; its bins stand node after node.
TIMELINES_DTYPE = np.dtype(
    [
        ("phase_index", "<i8"),
        ("bin_ns", "<i8"),
        ("bin_first", "<i8"),
        ("node_count", "<i8"),
        ("bin_count", "<i8"),
    ]
)


def to_tables(timelines: Sequence[Timeline]) -> tuple[Table, Table]:
    """The rows of /timelines and of /timeline; phases without a timeline have no row."""
    kept = [(index, each) for index, each in enumerate(timelines) if each.bins.size]
    table = np.zeros(len(kept), dtype=TIMELINES_DTYPE)
    first = 0
    for row, (index, each) in zip(table, kept, strict=True):
        row["phase_index"], row["bin_ns"], row["bin_first"] = index, each.bin_ns, first
        row["node_count"], row["bin_count"] = each.bins.shape
        first += each.bins.size
    bins = [each.bins.reshape(-1) for _, each in kept]
    return table, np.concatenate([np.zeros(0, dtype=BIN_DTYPE), *bins])


def from_tables(table: Table, bins: Table, phase_count: int) -> tuple[Timeline, ...]:
    """One timeline a phase, empty for those that have none (checked by `impossible`)."""
    found = [Timeline()] * phase_count
    for row in table:
        first, shape = int(row["bin_first"]), (int(row["node_count"]), int(row["bin_count"]))
        mine = bins[first : first + shape[0] * shape[1]].reshape(shape)
        found[int(row["phase_index"])] = Timeline(int(row["bin_ns"]), mine)
    return tuple(found)


def impossible(table: Table, bins: Table, phase_count: int, node_count: int) -> str:
    """What no storm can have written; "" when there is none. Numbers are known to be finite and not negative."""
    if (table["phase_index"] >= phase_count).any() or len(np.unique(table["phase_index"])) != len(table):
        return "a timeline belongs to no phase, or to one that has another"
    if (table["node_count"] > node_count).any() or (table["bin_count"] > BIN_LIMIT).any():
        return "a timeline has more nodes or bins than there can be"
    if (table["bin_ns"] < 1).any():
        return "a timeline has bins of no width"
    if (table["bin_first"] + table["node_count"] * table["bin_count"] > len(bins)).any():
        return "a timeline points outside the table timeline"
    return ""
