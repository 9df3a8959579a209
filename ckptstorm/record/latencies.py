"""Latency percentiles as people read them: by the word of the op kind, then of the size class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.histogram import percentile
from ckptstorm.measure.latency import LatencyTable, select
from ckptstorm.sizes import SIZE_CLASS_NAMES

#: The name of all sizes of a kind together.
ALL = "all"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The latencies of one kind of op; nanoseconds. The maximum is exact, the others within 0.8 %."""

    count: int
    p50: int
    p90: int
    p99: int
    p999: int
    max: int


LatencyTree = dict[str, dict[str, Percentiles]]


def latency_tree(table: LatencyTable) -> LatencyTree:
    """{op kind: {size class, and "all": percentiles}}; kinds without sizes have "all" only."""
    tree: LatencyTree = {}
    for row, key in enumerate(table.keys):
        classes = tree.setdefault(key.kind.word, {ALL: percentiles(*select(table, (key.kind,)))})
        if key.size_class >= 0:
            name = SIZE_CLASS_NAMES[key.size_class]
            classes[name] = percentiles(table.counts[row], int(table.max_ns[row]))
    return tree


def percentiles(counts: NDArray[np.int64], max_ns: int) -> Percentiles:
    """Of one histogram; all zero when nothing was counted."""
    total = int(counts.sum())
    if total == 0:
        return Percentiles(0, 0, 0, 0, 0, 0)
    p50, p90, p99, p999 = (percentile(counts, quantile, max_ns) for quantile in (0.5, 0.9, 0.99, 0.999))
    return Percentiles(total, p50, p90, p99, p999, max_ns)
