"""The storage's own counters around each phase: read by one rank a node, brought together on rank 0."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ckptstorm.clock import monotonic_ns
from ckptstorm.filesystems.contract import CannotError, Counters
from ckptstorm.measure.rows import Phase
from ckptstorm.measure.traffic import Span, Traffic, least_bytes, spans
from ckptstorm.program import READS, WRITES
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import programs_of


@dataclass(frozen=True, slots=True)
class Counted:
    """What the counters say of a phase, on rank 0.

    Attributes:
        traffic: one of each source; empty when a node could not read its counters.
        due_bytes: the least that must have passed; -1 in phases that move no checkpoint.
        reason: why a node could not read its counters; "" when all could.
    """

    traffic: tuple[Traffic, ...] = ()
    due_bytes: int = -1
    reason: str = ""


class Counting:
    """Reads the counters before and after a phase; every rank of the world makes one at the same time."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._cluster = crew, crew.cluster
        self._is_reader = crew.cluster.place.local_index == 0
        self._before: Counters | None = None
        self._before_ns, self._reason = 0, ""
        self._due_bytes: dict[Phase, int] = {}

    def begin(self) -> None:
        """Read the counters, before the release."""
        self._before = self._read()
        self._before_ns = monotonic_ns()

    def end(self, phase: Phase, release_ns: int) -> Counted:
        """Read them again; a collective of all ranks, of meaning on rank 0 only.

        Args:
            phase: which; what is due in it is worked out once.
            release_ns: its announced release on this node's clock.
        """
        told = self._cluster.texts_on_rank_0(json.dumps(self._difference(release_ns)) if self._is_reader else "")
        due_bytes = self._due(phase)
        found: list[dict[str, Any]] = [json.loads(text) for text in told if text]
        reasons = [str(each["reason"]) for each in found if "reason" in each]
        if reasons:
            return Counted(due_bytes=due_bytes, reason=reasons[0])
        # Two node names on one machine, or counters of the servers: the same thing is counted once.
        distinct = {each["source"]: Traffic(**each) for each in reversed(found)}
        return Counted(tuple(reversed(distinct.values())), due_bytes)

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
        )
        return asdict(found)

    def _due(self, phase: Phase) -> int:
        """The least that must pass, over all nodes; worked out once a phase, from the ranks' own plans."""
        stages = {Phase.SAVE: (self._crew.save, WRITES), Phase.RESTORE: (self._crew.restore, READS)}
        if phase not in stages:
            return -1
        if phase not in self._due_bytes:
            lowered, kinds = stages[phase]
            mine = [asdict(span) for span in spans(programs_of(lowered), kinds)]
            told = self._cluster.texts_on_rank_0(json.dumps([self._cluster.place.node_index, mine]))
            by_node: dict[int, list[Span]] = {}
            for text in told:
                node, parts = json.loads(text)
                by_node.setdefault(node, []).extend(Span(**part) for part in parts)
            self._due_bytes[phase] = sum(least_bytes(parts) for parts in by_node.values())
        return self._due_bytes[phase]


def _moved(before: int, after: int) -> int:
    """The difference of two readings; -1 when it is not counted."""
    return after - before if before >= 0 and after >= 0 else -1
