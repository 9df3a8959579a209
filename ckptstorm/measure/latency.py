"""Latency by op kind and size class: histograms over an agreed list of keys, and the exact maximum.

The list of all possible keys is fixed, so ranks agree on what they hold by one small bitmap: an
Allreduce of `present`, then a Reduce(SUM) of `aligned` counts and sums and a Reduce(MAX) of maxima.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import int64
from numpy.typing import NDArray

from ckptstorm.measure.histogram import BUCKET_COUNT, bucket_index
from ckptstorm.program import DATA, Kind, Program
from ckptstorm.sinks import OpTimes
from ckptstorm.sizes import SIZE_CLASS_NAMES, size_class


@dataclass(frozen=True, slots=True)
class LatencyKey:
    """One histogram's name: an op kind, and for data ops the size class (its upper bound, inclusive).

    Attributes:
        kind: what the ops do.
        size_class: index into `sizes.SIZE_CLASSES`; -1 for ops without a size.
    """

    kind: Kind
    size_class: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTable:
    """Histograms of many ops, one a key.

    Attributes:
        keys: what the rows are, in the order of `ALL_KEYS`.
        counts: shape (len(keys), histogram.BUCKET_COUNT).
        max_ns: the exact maximum of each key, shape (len(keys),).
        sum_ns: the exact sum of each key, shape (len(keys),).
    """

    keys: tuple[LatencyKey, ...]
    counts: NDArray[int64]
    max_ns: NDArray[int64]
    sum_ns: NDArray[int64]


def _all_keys() -> tuple[LatencyKey, ...]:
    classes = range(len(SIZE_CLASS_NAMES))
    return tuple(LatencyKey(kind, size) for kind in Kind for size in (classes if kind in DATA else (-1,)))


#: Every key there can be, in one order that all ranks share: data kinds times size classes, other kinds once.
ALL_KEYS: tuple[LatencyKey, ...] = _all_keys()
_INDEX_OF_KEY = {key: index for index, key in enumerate(ALL_KEYS)}
#: Index into `ALL_KEYS` of (kind, size class), the same for all classes of a kind without sizes.
_INDEX_OF_KIND = np.zeros((max(Kind) + 1, len(SIZE_CLASS_NAMES)), dtype=int64)
for _key, _index in _INDEX_OF_KEY.items():
    _INDEX_OF_KIND[_key.kind, _key.size_class if _key.size_class >= 0 else slice(None)] = _index

Pair = tuple[Program, OpTimes]


def empty() -> LatencyTable:
    """The table of no ops."""
    return _blank(())


def observe(pairs: Iterable[Pair], release_ns: int = 0) -> LatencyTable:
    """The latencies of one rank's phase.

    Ops that were not run are left out, and so are ops that failed: a refusal in a microsecond is no
    fast write (`failure.failures` counts them). An errno that the op expects is an answer like any
    other. The size class is that of the bytes moved: a read at the end of a file is a small one.

    Args:
        pairs: (program, times) of each thread and part.
        release_ns: this rank's release on the clock of the times; what `due_ns` of an open-loop
            program counts from.
    """
    indices, elapsed = [np.zeros(0, dtype=int64)], [np.zeros(0, dtype=int64)]
    for program, times in pairs:
        keep = np.flatnonzero((times.end_ns > 0) & succeeded(program, times))
        kinds = program.ops["kind"][keep]
        start_ns = times.start_ns if program.due_ns is None else program.due_ns + release_ns
        indices.append(key_index(kinds, times.result[keep]))
        elapsed.append(times.end_ns[keep] - start_ns[keep])
    return _tally(np.concatenate(indices), np.concatenate(elapsed))


def key_index(kinds: NDArray[np.uint8], results: NDArray[int64]) -> NDArray[int64]:
    """Per op, the index into `ALL_KEYS` of its kind and of the size class of the bytes that it moved."""
    return np.asarray(_INDEX_OF_KIND[kinds, size_class(np.maximum(results, 0))])


def succeeded(program: Program, times: OpTimes) -> NDArray[np.bool_]:
    """Per op, whether its result is no error: not negative, or the errno that it expects."""
    return np.asarray((times.result >= 0) | (-times.result == program.ops["expect"]))


def merge(tables: Iterable[LatencyTable]) -> LatencyTable:
    """The table of all ops of all tables."""
    many = list(tables)
    if not many:
        return empty()
    anywhere = np.logical_or.reduce([present(table) for table in many])
    parts = (aligned(table, anywhere) for table in many)
    merged = _blank(_keys_at(np.flatnonzero(anywhere)))
    for counts, max_ns, sum_ns in parts:
        np.add(merged.counts, counts, out=merged.counts)
        np.maximum(merged.max_ns, max_ns, out=merged.max_ns)
        np.add(merged.sum_ns, sum_ns, out=merged.sum_ns)
    return merged


def present(table: LatencyTable) -> NDArray[np.bool_]:
    """Which of `ALL_KEYS` the table holds, shape (len(ALL_KEYS),)."""
    bitmap = np.zeros(len(ALL_KEYS), dtype=np.bool_)
    bitmap[[_INDEX_OF_KEY[key] for key in table.keys]] = True
    return bitmap


def aligned(
    table: LatencyTable, present_anywhere: NDArray[np.bool_]
) -> tuple[NDArray[int64], NDArray[int64], NDArray[int64]]:
    """The table with a row for every key that any rank holds: what ranks sum up.

    Args:
        table: of this rank; its keys are among those present anywhere.
        present_anywhere: shape (len(ALL_KEYS),), the same on all ranks.

    Returns:
        (counts, max_ns, sum_ns), shapes (keys, BUCKET_COUNT), (keys,), (keys,); contiguous; zeros
        for keys that this rank does not hold.
    """
    row_of_key = np.cumsum(present_anywhere) - 1
    rows = row_of_key[[_INDEX_OF_KEY[key] for key in table.keys]]
    blank = _blank(_keys_at(np.flatnonzero(present_anywhere)))
    blank.counts[rows], blank.max_ns[rows], blank.sum_ns[rows] = table.counts, table.max_ns, table.sum_ns
    return blank.counts, blank.max_ns, blank.sum_ns


def from_aligned(
    present_anywhere: NDArray[np.bool_], counts: NDArray[int64], max_ns: NDArray[int64], sum_ns: NDArray[int64]
) -> LatencyTable:
    """The way back from `aligned`, after the sums over ranks."""
    return LatencyTable(_keys_at(np.flatnonzero(present_anywhere)), counts, max_ns, sum_ns)


def select(table: LatencyTable, kinds: Sequence[Kind]) -> tuple[NDArray[int64], int]:
    """All ops of some kinds in one histogram.

    Returns:
        (counts of shape (BUCKET_COUNT,), exact maximum in ns); all zero when there is no such op.
    """
    rows = [row for row, key in enumerate(table.keys) if key.kind in kinds]
    return table.counts[rows].sum(axis=0, dtype=int64), int(table.max_ns[rows].max(initial=0))


def _tally(indices: NDArray[int64], elapsed_ns: NDArray[int64]) -> LatencyTable:
    """Histograms of `elapsed_ns`, each value under the key of `ALL_KEYS` that `indices` names."""
    found, rows = np.unique(indices, return_inverse=True)
    table = _blank(_keys_at(found))
    np.add.at(table.counts, (rows, bucket_index(elapsed_ns)), 1)
    np.maximum.at(table.max_ns, rows, elapsed_ns)
    np.add.at(table.sum_ns, rows, elapsed_ns)
    return table


def _keys_at(indices: NDArray[np.intp] | NDArray[int64]) -> tuple[LatencyKey, ...]:
    return tuple(ALL_KEYS[int(index)] for index in indices)


def _blank(keys: tuple[LatencyKey, ...]) -> LatencyTable:
    count = len(keys)
    maxima, sums = np.zeros(count, dtype=int64), np.zeros(count, dtype=int64)
    return LatencyTable(keys, np.zeros((count, BUCKET_COUNT), dtype=int64), maxima, sums)
