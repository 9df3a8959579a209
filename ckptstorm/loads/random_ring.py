"""One lap of a thread of random I/O: which ops, how long, in which order; where they go is `random_io`'s."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.load_tables import RandomLoad
from ckptstorm.loads.sizing import draw_sizes
from ckptstorm.program import Int64s, Kind


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """One lap of a thread.

    Attributes:
        kinds, lengths: of its ops in order, syncs among them.
        is_data: which of them move bytes.
        data_count: how many do.
    """

    kinds: Int64s
    lengths: Int64s
    is_data: NDArray[np.bool_]
    data_count: int

    def op_limit(self, wanted: int) -> int:
        """Ops until so many data ops are over, lap after lap."""
        laps, rest = divmod(wanted, self.data_count)
        return laps * len(self.kinds) + (int(np.flatnonzero(self.is_data)[rest - 1]) + 1 if rest else 0)

    def planned_bytes(self, wanted: int) -> int:
        """Bytes of so many data ops."""
        laps, rest = divmod(wanted, self.data_count)
        return laps * int(self.lengths.sum()) + int(self.lengths[self.is_data][:rest].sum())


def draw_ring(load: RandomLoad, count: int, draw: np.random.Generator) -> Ring:
    """A lap of at most so many data ops: reads and writes in the share that the job asks, shuffled; syncs between."""
    read_share = {"read": 100, "write": 0, "mixed": 50 if load.read_percent is None else load.read_percent}
    writes = count - count * read_share[load.access] // 100
    if load.fsync_every and writes > load.fsync_every:  # each lap ends at a sync, or the next would be late
        count -= writes % load.fsync_every
        writes -= writes % load.fsync_every
    kinds = np.full(count, Kind.READ, dtype=np.int64)
    kinds[draw.permutation(count)[:writes]] = Kind.WRITE
    lengths = draw_sizes(load.block, count, draw, load.block.least_bytes if load.aligned else 1)
    if load.fsync_every:
        number = np.cumsum(kinds == Kind.WRITE)
        after = np.flatnonzero((kinds == Kind.WRITE) & (number % load.fsync_every == 0)) + 1
        kinds, lengths = np.insert(kinds, after, Kind.FSYNC), np.insert(lengths, after, 0)
    return Ring(kinds, lengths, kinds != Kind.FSYNC, count)
