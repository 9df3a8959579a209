"""When each node saw a new checkpoint, counted from its commit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Nanoseconds from the commit, on rank 0's clock. `NOTHING`: there was nothing to look at in that way;
#: `NEVER`: not within the time that was given.
#:   pointer_ns   until the pointer (or what the commit renamed) was right, looked up anew by its path
#:   handle_ns    the same through a handle that the node had held open since before the save
#:   step_ns      until the files that the node's leader is about to restore had their full sizes
VISIBILITY_DTYPE = np.dtype([("node", "<u4"), ("pointer_ns", "<i8"), ("handle_ns", "<i8"), ("step_ns", "<i8")])
NOTHING, NEVER = -1, -2
#: The ways of looking, in the order of the columns.
WAYS = ("pointer_ns", "handle_ns", "step_ns")

Visibility = NDArray[np.void]


def not_looked_at() -> Visibility:
    """Nobody looked: there is one node, or the phase commits nothing."""
    return np.zeros(0, dtype=VISIBILITY_DTYPE)
