"""Error classes: what the storage answered and where first, because for a benchmark an error is a result."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ckptstorm.measure.latency import succeeded
from ckptstorm.measure.phase_row import Observed
from ckptstorm.program import Kind


@dataclass(frozen=True, slots=True)
class Failure:
    """Errors of one class: what the storage answered, where first.

    Attributes:
        errno: its name ("ENOSPC").
        op: the op kind's word.
        rank, host, file, offset_bytes: the first occurrence.
        count: how many ops of all ranks ended so in this phase.
    """

    errno: str
    op: str
    rank: int
    host: str
    file: str
    offset_bytes: int
    count: int


def failures(observed: Observed, host: str) -> tuple[Failure, ...]:
    """The error classes of one rank's phase, each with its first occurrence in time."""
    firsts: list[tuple[int, Failure]] = []
    for part in observed.parts:
        failed = np.flatnonzero(~succeeded(part.program, part.times)[: part.ops_run])
        for index in failed:
            row = part.program.ops[index]
            is_placed = Kind(int(row["kind"])) not in (Kind.RENAME, Kind.LINK)
            failure = Failure(
                errno=errno_name(-int(part.times.result[index])),
                op=Kind(int(row["kind"])).word,
                rank=observed.rank,
                host=host,
                file=part.program.location(int(row["file"])),
                offset_bytes=int(row["offset_bytes"]) if is_placed else 0,
                count=1,
            )
            firsts.append((int(part.times.start_ns[index]), failure))
    return merge_failures(failure for _, failure in sorted(firsts, key=lambda pair: pair[0]))


def merge_failures(many: Iterable[Failure]) -> tuple[Failure, ...]:
    """Classes of several ranks as classes of the cluster: counts added, the first mention kept."""
    classes: dict[tuple[str, str], Failure] = {}
    for failure in many:
        name = (failure.errno, failure.op)
        known = classes.get(name)
        classes[name] = failure if known is None else replace(known, count=known.count + failure.count)
    return tuple(classes.values())


def errno_name(number: int) -> str:
    """5 -> "EIO"."""
    return errno.errorcode.get(number, f"errno {number}")
