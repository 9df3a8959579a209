"""Size classes: the few words in which plans, latencies and reports say how large an op is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptstorm.units import KIB, MIB

#: Upper bounds in bytes, inclusive; what is above the last is in the class "more".
SIZE_CLASSES: tuple[int, ...] = (
    64, 512, 4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB,
)  # fmt: skip
#: The word of each class.
SIZE_CLASS_NAMES: tuple[str, ...] = ("64", "512", "4K", "64K", "1M", "4M", "16M", "64M", "256M", "more")
assert len(SIZE_CLASS_NAMES) == len(SIZE_CLASSES) + 1

_BOUNDS = np.array(SIZE_CLASSES, dtype=np.int64)


def size_class(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class index of each length in bytes."""
    return np.searchsorted(_BOUNDS, lengths, side="left").astype(np.int64)
