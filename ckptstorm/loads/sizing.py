"""Sizes drawn by lot, for files and for appends."""

from __future__ import annotations

import numpy as np

from ckptstorm.load_tables import Sizes
from ckptstorm.program import Int64s


def draw_sizes(sizes: Sizes, count: int, rng: np.random.Generator, unit_bytes: int = 1) -> Int64s:
    """So many sizes by lot: a part by its weight, then any of its multiples of the unit above its least."""
    weights = np.array([weight for *_, weight in sizes.parts])
    which = rng.choice(len(sizes.parts), count, p=weights / weights.sum())
    least = np.array([part[0] for part in sizes.parts], dtype=np.int64)[which]
    most = np.array([part[1] for part in sizes.parts], dtype=np.int64)[which]
    return np.asarray(least + unit_bytes * rng.integers(0, (most - least) // unit_bytes + 1), dtype=np.int64)
