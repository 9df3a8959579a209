"""The clocks of all phases as one flat table: a row a phase and clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.clocks import CLOCK_DTYPE, Clocks

Table = NDArray[Any]

#: `phase_index` is the row in /phases; rows stand in its order.
CLOCKS_DTYPE = np.dtype([("phase_index", "<i8"), *((name, CLOCK_DTYPE[name]) for name in CLOCK_DTYPE.names or ())])


def to_table(clocks: Sequence[Clocks]) -> Table:
    """The rows of /clocks; a phase in which all ranks read one clock has none."""
    table = np.zeros(sum(len(each) for each in clocks), dtype=CLOCKS_DTYPE)
    table["phase_index"] = np.repeat(np.arange(len(clocks)), [len(each) for each in clocks])
    for name in CLOCK_DTYPE.names or ():
        table[name] = np.concatenate([np.zeros(0, dtype=CLOCK_DTYPE[name]), *(each[name] for each in clocks)])
    return table


def from_table(table: Table, phase_count: int) -> tuple[Clocks, ...]:
    """The clocks of each phase (checked by `impossible`)."""
    plain = np.zeros(len(table), dtype=CLOCK_DTYPE)
    for name in CLOCK_DTYPE.names or ():
        plain[name] = table[name]
    return (
        tuple(np.split(plain, np.searchsorted(table["phase_index"], np.arange(1, phase_count)))) if phase_count else ()
    )


def impossible(table: Table, phase_count: int, rank_count: int) -> str:
    """What no storm can have written; "" when there is none."""
    if (table["phase_index"] >= phase_count).any() or (np.diff(table["phase_index"]) < 0).any():
        return "a clock belongs to no phase, or phases are out of order"
    if (table["rank"] >= rank_count).any():
        return "a clock was measured by a rank that there is not"
    return ""
