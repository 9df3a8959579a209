"""What pacing and staging did to each rank in a phase: a row beside its phase row, where the job asks for either."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: One row a rank, in the order of the phase rows. Nanoseconds.
#:   delay_ns         its own release after the announced one, by plan (skew and stagger)
#:   blocked_ns       staged saves: from its own release until training could go on
#:   backpressure_ns  of that, it waited for the drain of the save before
#:   room_ns          of that, it waited for room in the staging memory
#:   copied_bytes     copied into staging memory
#:   step_count       training steps begun while this save drained
PACE_DTYPE = np.dtype(
    [
        ("delay_ns", "<i8"),
        ("blocked_ns", "<i8"),
        ("backpressure_ns", "<i8"),
        ("room_ns", "<i8"),
        ("copied_bytes", "<i8"),
        ("step_count", "<i8"),
    ]
)

Pace = NDArray[np.void]


def pace_row(**values: int) -> Pace:
    """One rank's row; what is not named is 0. Shape (1,)."""
    row = np.zeros(1, dtype=PACE_DTYPE)
    for name, value in values.items():
        row[name] = value
    return row


def no_pace() -> Pace:
    """Of a phase in which all ranks were released together and nothing was staged."""
    return np.zeros(0, dtype=PACE_DTYPE)


def delays_ns(pace: Pace, count: int) -> NDArray[np.int64]:
    """The planned delay of each of `count` ranks; zeros when there was none."""
    return pace["delay_ns"].astype(np.int64) if len(pace) == count else np.zeros(count, dtype=np.int64)
