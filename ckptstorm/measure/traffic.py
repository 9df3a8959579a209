"""What passed between clients and storage in a phase, by counters that the engine cannot touch; and what had to.

A read that was served from a cache moves fewer bytes over the wire than the reader was given. So a phase keeps,
beside the counters' differences, the least that must have passed: each byte that a node reads (or writes) once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ckptstorm.program import Kind, Program


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one source of counters saw in one phase.

    Attributes:
        source: what was counted.
        at: where: "client's wire", "servers", "device".
        host: the node that read the counters.
        begun_ns, ended_ns: when they were read, after the announced release on that node's clock.
        read_bytes, write_bytes: that passed in between; -1 when not counted.
        values: every counter that changed, by its own name.
        directory: which of the directories under test it is of.
    """

    source: str
    at: str
    host: str
    begun_ns: int
    ended_ns: int
    read_bytes: int
    write_bytes: int
    values: dict[str, int] = field(default_factory=dict)
    directory: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """What one of several directories under test had to do with a phase.

    Attributes:
        planned_bytes, planned_sync_count, planned_op_count: of the ranks that moved theirs there.
        due_bytes: the least that must have passed; -1 when it was not worked out.
    """

    planned_bytes: int
    planned_sync_count: int
    planned_op_count: int
    due_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """What a rank moves of one file.

    Attributes:
        location: the file, below the storm's root.
        first_bytes, end_bytes: from where to where.
        unique_bytes: of these, bytes that are moved at least once.
    """

    location: str
    first_bytes: int
    end_bytes: int
    unique_bytes: int


def spans(programs: Iterable[Program], kinds: Sequence[Kind]) -> list[Span]:
    """What a rank's programs move by ops of these kinds, one span a file."""
    ranges: dict[str, list[NDArray[np.int64]]] = {}
    for program in programs:
        moves = np.isin(program.ops["kind"], kinds)
        ops, lengths = program.ops[moves], program.expected_bytes()[moves]
        starts = ops["offset_bytes"].astype(np.int64)
        for file in np.unique(ops["file"]).tolist():
            of_file = ops["file"] == file
            pair = np.stack([starts[of_file], starts[of_file] + lengths[of_file]])
            ranges.setdefault(program.location(file), []).append(pair)
    return [_span(location, np.concatenate(pairs, axis=1)) for location, pairs in sorted(ranges.items())]


def largest(many: Sequence[Span], count: int) -> list[Span]:
    """Those of which most is moved: what is left out makes the least that must pass smaller, and never wrong."""
    return sorted(many, key=lambda one: -one.unique_bytes)[:count]


def least_bytes(many: Iterable[Span]) -> int:
    """The least that must pass for all these spans together, when all that was passed once is kept.

    Spans of one file that overlap may be of the same bytes: the larger counts.
    """
    total, end, largest, location = 0, -1, 0, ""
    for span in sorted(many, key=lambda one: (one.location, one.first_bytes)):
        if span.location != location or span.first_bytes >= end:
            total, largest, end, location = total + largest, 0, -1, span.location
        largest, end = max(largest, span.unique_bytes), max(end, span.end_bytes)
    return total + largest


def _span(location: str, pairs: NDArray[np.int64]) -> Span:
    """The union of [start, end) pairs, shape (2, n)."""
    starts, ends = pairs[:, np.argsort(pairs[0], kind="stable")]
    reached = np.maximum.accumulate(ends)
    before = np.concatenate([starts[:1], reached[:-1]])
    unique = np.maximum(ends - np.maximum(starts, before), 0).sum()
    return Span(location, int(starts[0]), int(reached[-1]), int(unique))
