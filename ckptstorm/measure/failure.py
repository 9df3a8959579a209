"""Error classes: what the storage answered and where first, because for a benchmark an error is a result."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.latency import succeeded
from ckptstorm.measure.phase_row import Observed
from ckptstorm.program import DATA, Kind, Program
from ckptstorm.sinks import OpTimes

#: The class of a transfer that moved fewer bytes than it was asked to: no errno, and no success either.
SHORT = "SHORT"
#: A class lists the ranks and the files that met it most; all are counted.
_LISTED = 16


@dataclass(frozen=True, slots=True)
class Failure:
    """Errors of one class: what the storage answered, where first.

    Attributes:
        errno: its name ("ENOSPC"); "SHORT" for a transfer that moved fewer bytes than asked.
        op: the op kind's word.
        rank, host, file, offset_bytes: the first occurrence.
        count: how many ops of all ranks ended so in this phase.
        rank_count: how many ranks met it.
        ranks, files: those that met it most, and how often.
    """

    errno: str
    op: str
    rank: int
    host: str
    file: str
    offset_bytes: int
    count: int
    rank_count: int = 1
    ranks: tuple[tuple[int, int], ...] = ()
    files: tuple[tuple[str, int], ...] = ()


def failures(observed: Observed, host: str) -> tuple[Failure, ...]:
    """The error classes of one rank's phase, each with its first occurrence in time."""
    firsts: list[tuple[int, Failure]] = []
    for part in observed.parts:
        for index in np.flatnonzero(_failed(part.program, part.times)[: part.ops_run]):
            row, file = part.program.ops[index], part.program.location(int(part.program.ops["file"][index]))
            result, is_placed = int(part.times.result[index]), row["kind"] not in (Kind.RENAME, Kind.LINK)
            failure = Failure(
                errno=errno_name(-result) if result < 0 else SHORT,
                op=Kind(int(row["kind"])).word,
                rank=observed.rank,
                host=host,
                file=file,
                offset_bytes=int(row["offset_bytes"]) if is_placed else 0,
                count=1,
                ranks=((observed.rank, 1),),
                files=((file, 1),),
            )
            firsts.append((int(part.times.start_ns[index]), failure))
    ordered = [failure for _, failure in sorted(firsts, key=lambda pair: pair[0])]
    return tuple(replace(merged, rank_count=1) for merged in merge_failures(ordered))


def merge_failures(many: Iterable[Failure]) -> tuple[Failure, ...]:
    """Classes of several ranks as classes of the cluster: counts added, the first mention kept."""
    classes: dict[tuple[str, str], list[Failure]] = {}
    for failure in many:
        classes.setdefault((failure.errno, failure.op), []).append(failure)
    return tuple(_merged(same) for same in classes.values())


def _merged(same: list[Failure]) -> Failure:
    ranks, files = Counter[int](), Counter[str]()
    for one in same:
        ranks.update(dict(one.ranks))
        files.update(dict(one.files))
    return replace(
        same[0],
        count=sum(one.count for one in same),
        rank_count=sum(one.rank_count for one in same),
        ranks=tuple(ranks.most_common(_LISTED)),
        files=tuple(files.most_common(_LISTED)),
    )


def _failed(program: Program, times: OpTimes) -> NDArray[np.bool_]:
    """Ops that ended in an errno that is an error here, and transfers that were cut short."""
    is_short = np.isin(program.ops["kind"], DATA) & (times.result >= 0) & (times.result < program.expected_bytes())
    return np.asarray(~succeeded(program, times) | is_short)


def errno_name(number: int) -> str:
    """5 -> "EIO"."""
    return errno.errorcode.get(number, f"errno {number}")
