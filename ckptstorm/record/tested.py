"""Several directories under test: what each of them did, as a record of its own that the same rules judge."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.receipts import receipts
from ckptstorm.record.record import PhaseRecord, Receipt, StormRecord
from ckptstorm.record.summary import done_after_release_ns, per_s

#: Of the others' claims a single directory shows nothing: clocks, settings and the client are the storm's.
_OWN_RECEIPTS = ("durable", "cold", "verified")


@dataclass(frozen=True, slots=True)
class PhaseThere:
    """A phase as the ranks of one directory ran it.

    Attributes:
        phase, round: which.
        rank_count: ranks that moved theirs there.
        seconds: from the first of their releases to the last of them durable.
        bytes, bytes_per_s: that they moved, and these ÷ seconds.
        error_count: ops that failed.
    """

    phase: str
    round: int
    rank_count: int
    seconds: float
    bytes: int
    bytes_per_s: float
    error_count: int


@dataclass(frozen=True, slots=True)
class Directory:
    """One of several directories under test.

    Attributes:
        directory: absolute.
        file_system, source: as the kernel names them.
        phases: save and restore of each round.
        receipts: those that a directory has of its own.
    """

    directory: str
    file_system: str
    source: str
    phases: tuple[PhaseThere, ...]
    receipts: dict[str, Receipt]


def directories(record: StormRecord) -> tuple[Directory, ...]:
    """Each directory of a storm with several; nothing of a storm with one."""
    listed = record.environment.get("directories")
    if not isinstance(listed, list | tuple):
        return ()
    return tuple(_directory(record, index, told) for index, told in enumerate(listed) if isinstance(told, dict))


def to_json(record: StormRecord) -> list[dict[str, Any]]:
    """For storm.json."""
    return [asdict(one) for one in directories(record)]


def _directory(record: StormRecord, index: int, told: dict[str, Any]) -> Directory:
    part = _of(record, index)
    moved = [each for each in part.phases if each.phase in (Phase.SAVE, Phase.RESTORE)]
    found = receipts(part)
    return Directory(
        settings.text(told, "directory"),
        settings.text(told, "mount", "type"),
        settings.text(told, "mount", "source"),
        tuple(_phase(each) for each in moved),
        {name: found[name] for name in _OWN_RECEIPTS},
    )


def _of(record: StormRecord, index: int) -> StormRecord:
    """The record of the ranks that moved their bytes in one directory."""
    writers = _ranks(record, "directory_of_rank", index)
    readers = _ranks(record, "source_of_rank", index)
    mount = settings.table(record.environment["directories"][index], "mount")
    phases = tuple(
        _phase_of(each, index, readers if each.phase == Phase.RESTORE else writers) for each in record.phases
    )
    return replace(record, phases=phases, environment=record.environment | {"mount": mount})


def _ranks(record: StormRecord, key: str, index: int) -> list[int]:
    dealt = record.environment.get(key)
    return [rank for rank, at in enumerate(dealt) if at == index] if isinstance(dealt, list | tuple) else []


def _phase_of(phase: PhaseRecord, index: int, ranks: list[int]) -> PhaseRecord:
    theirs = np.isin(phase.rows["rank"], ranks)
    share = phase.shares[index] if index < len(phase.shares) else None
    return replace(
        phase,
        rows=phase.rows[theirs],
        kind_ns=phase.kind_ns[theirs] if len(phase.kind_ns) == len(phase.rows) else phase.kind_ns[:0],
        traffic=tuple(each for each in phase.traffic if each.directory == index),
        planned_bytes=share.planned_bytes if share is not None else 0,
        planned_sync_count=share.planned_sync_count if share is not None else 0,
        planned_op_count=share.planned_op_count if share is not None else 0,
        due_bytes=share.due_bytes if share is not None else -1,
        barrier_to_barrier_ns=0,
    )


def _phase(phase: PhaseRecord) -> PhaseThere:
    rows = phase.rows
    whole_ns = int(done_after_release_ns(rows).max(initial=0))
    moved = int(rows["bytes"].sum(dtype=np.int64))
    errors = int(rows["error_count"].sum(dtype=np.int64))
    return PhaseThere(
        phase.phase.word, phase.round, len(rows), whole_ns / NS_PER_S, moved, per_s(moved, whole_ns), errors
    )
