"""What a phase's clocks were: a row for each clock that is not rank 0's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#:   rank             the lowest that reads this clock: the one that measured it
#:   offset_ns        rank 0's clock minus this one, just before the phase
#:   uncertainty_ns   the offset is within ± this
#:   drift_ns         how much the offset had grown when the phase was over
CLOCK_DTYPE = np.dtype([("rank", "<u4"), ("offset_ns", "<i8"), ("uncertainty_ns", "<i8"), ("drift_ns", "<i8")])

Clocks = NDArray[np.void]


def no_clocks() -> Clocks:
    """All ranks read rank 0's clock."""
    return np.zeros(0, dtype=CLOCK_DTYPE)
