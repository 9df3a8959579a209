"""The storage's own counters around each phase: read by one rank a node, brought together on rank 0."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ckptstorm.clock import monotonic_ns
from ckptstorm.filesystems.contract import CannotError, Counters
from ckptstorm.measure.rows import Phase
from ckptstorm.measure.traffic import Share, Span, Traffic, largest, least_bytes, spans
from ckptstorm.program import READS, WRITES
from ckptstorm.storm.collect import planned_of
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import programs_of
from ckptstorm.storm.phase import Seen

#: A rank tells of so many files: ten thousand ranks that each read from hundreds must not fill rank 0.
_SPANS_TOLD = 16


@dataclass(frozen=True, slots=True)
class Counted:
    """What the counters say of a phase, on rank 0.

    Attributes:
        traffic: one of each source; empty when a node could not read its counters.
        due_bytes: the least that must have passed; -1 in phases that move no checkpoint.
        shares: with several directories under test, what each of them had to do with it.
        reason: why a node could not read its counters; "" when all could.
    """

    traffic: tuple[Traffic, ...] = ()
    due_bytes: int = -1
    reason: str = ""
    shares: tuple[Share, ...] = ()


class Counting:
    """Reads the counters before and after a phase; every rank of the world makes one at the same time."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._cluster = crew, crew.cluster
        self._is_reader = crew.is_reader
        self._before: Counters | None = None
        self._before_ns, self._reason = 0, ""
        self._due_bytes: dict[Phase, list[int]] = {}

    def begin(self) -> None:
        """Read the counters, before the release."""
        self._before = self._read()
        self._before_ns = monotonic_ns()

    def end(self, seen: Seen) -> Counted:
        """Read them again, after the phase; a collective of all ranks, of meaning on rank 0 only."""
        release_ns, phase = seen.observed.announced_release_ns, seen.observed.phase
        told = self._cluster.texts_on_rank_0(json.dumps(self._difference(release_ns)) if self._is_reader else "")
        due = self._due(phase)
        due_bytes, shares = sum(due) if due else -1, self._shares(seen, due)
        found: list[dict[str, Any]] = [json.loads(text) for text in told if text]
        reasons = [str(each["reason"]) for each in found if "reason" in each]
        if reasons:
            return Counted(due_bytes=due_bytes, reason=reasons[0], shares=shares)
        # Two node names on one machine, or counters of the servers: the same thing is counted once.
        distinct = {each["source"]: Traffic(**each) for each in reversed(found)}
        return Counted(tuple(reversed(distinct.values())), due_bytes, shares=shares)

    def _read(self) -> Counters | None:
        if not self._is_reader:
            return None
        try:
            return self._crew.file_system.counters()
        except CannotError as error:
            self._reason = error.reason
            return None

    def _difference(self, release_ns: int) -> dict[str, Any]:
        before, began_ns = self._before, self._before_ns
        now_ns, after = monotonic_ns(), self._read()
        if before is None or after is None:
            return {"reason": self._reason}
        changed = {name: value - before.values.get(name, 0) for name, value in after.values.items()}
        found = Traffic(
            source=after.source,
            at=after.at,
            host=self._cluster.place.host,
            begun_ns=began_ns - release_ns,
            ended_ns=now_ns - release_ns,
            read_bytes=_moved(before.read_bytes, after.read_bytes),
            write_bytes=_moved(before.write_bytes, after.write_bytes),
            values={name: value for name, value in changed.items() if value},
            directory=self._crew.own_index,
        )
        return asdict(found)

    def _due(self, phase: Phase) -> list[int]:
        """The least that must pass, by directory, over all nodes; worked out once, from the ranks' own plans."""
        stages = {Phase.SAVE: (self._crew.save, WRITES), Phase.RESTORE: (self._crew.restore, READS)}
        if phase not in stages:
            return []
        if phase not in self._due_bytes:
            found = largest(spans(programs_of(stages[phase][0]), stages[phase][1]), _SPANS_TOLD)
            mine = [asdict(one) | {"location": os.path.join(self._crew.directory, one.location)} for one in found]
            told = self._cluster.texts_on_rank_0(json.dumps([self._cluster.place.node_index, mine]))
            by_node: dict[int, list[Span]] = {}
            for text in told:
                node, parts = json.loads(text)
                by_node.setdefault(node, []).extend(Span(**part) for part in parts)
            roots = [f"{one.directory}/" for one in self._crew.orders.tested]
            self._due_bytes[phase] = [sum(_below(root, parts) for parts in by_node.values()) for root in roots]
        return self._due_bytes[phase]

    def _shares(self, seen: Seen, due: list[int]) -> tuple[Share, ...]:
        """What each directory under test had to do with the phase; nothing when there is only one."""
        count = len(self._crew.orders.tested)
        if count == 1:
            return ()
        phase = seen.observed.phase
        index = self._crew.source_index if phase == Phase.RESTORE else self._crew.own_index
        planned = np.zeros((count, 3), dtype=np.int64)
        planned[index] = planned_of(seen.observed)
        sums = self._cluster.sum_on_rank_0(planned)
        pairs = zip(sums.tolist(), due or [-1] * count, strict=True)
        return tuple(Share(moved, syncs, ops, least) for (moved, syncs, ops), least in pairs)


def _moved(before: int, after: int) -> int:
    """The difference of two readings; -1 when it is not counted."""
    return after - before if before >= 0 and after >= 0 else -1


def _below(root: str, spans_of_node: list[Span]) -> int:
    return least_bytes(one for one in spans_of_node if one.location.startswith(root))
