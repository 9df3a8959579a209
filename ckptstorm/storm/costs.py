"""What the instrument's own collectives cost here, measured before the first round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ckptstorm.clock import monotonic_ns
from ckptstorm.cluster.comm import Cluster

_BARRIERS_TIMED = 5


@dataclass(frozen=True, slots=True)
class Costs:
    """What the instrument's own collectives cost here, measured before the first round."""

    broadcast_ns: int
    barrier_ns: int


def measure_costs(cluster: Cluster) -> Costs:
    """The slowest of a few barriers and broadcasts, entered together, over all ranks."""
    barriers, broadcasts = [], []
    number = np.zeros(1, dtype=np.int64)
    for _ in range(_BARRIERS_TIMED):
        cluster.barrier()
        begun = monotonic_ns()
        cluster.barrier()
        barriers.append(monotonic_ns() - begun)
        begun = monotonic_ns()
        cluster.from_rank_0(number)
        broadcasts.append(monotonic_ns() - begun)
    most = cluster.greatest(np.array([max(broadcasts), max(barriers)], dtype=np.int64))
    return Costs(int(most[0]), int(most[1]))
