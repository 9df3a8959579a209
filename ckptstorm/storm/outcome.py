"""How a phase went, agreed by all ranks, so that all of them take the same way; and who keeps the record."""

from __future__ import annotations

import enum
from typing import Any, Protocol

import numpy as np

from ckptstorm.cluster.comm import Cluster
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.storm.saved import SavedRound
from ckptstorm.storm.settle import DirectEvidence
from ckptstorm.storm.watch import Watch


class Keeper(Protocol):
    """Rank 0's record."""

    @property
    def record(self) -> StormRecord:
        """All that is known by now."""

    def take(self, phase: PhaseRecord) -> None:
        """A finished phase."""

    def take_lateness(self, late_ns: int) -> None:
        """How late a save was after the `interval` since the one before."""

    def take_direct(self, evidence: DirectEvidence) -> None:
        """What shows that O_DIRECT was in force in a save."""

    def take_placement(self, placement: dict[str, Any]) -> None:
        """Which server holds which file of a save."""

    def take_pressure(self, held_bytes: int, in_use: float) -> None:
        """Memory that all ranks hold together, and the share of rank 0's node that is in use with it."""

    def take_targets(self, round_number: int, targets: list[str]) -> None:
        """Which server holds each rank's main file in a round ("" unknown)."""

    def take_cannot(self, ability: str, reason: str) -> None:
        """What the file system's adapter turned out not to be able to do here."""

    def add_facts(self, facts: dict[str, Any]) -> None:
        """More of what is known of the circumstances."""

    def take_saved(self, rounds: tuple[SavedRound, ...]) -> None:
        """The checkpoints that a save on its own has left."""

    def take_own_share(self, share: float) -> None:
        """Of what a restore on its own is about to read, the share that its reader's machine wrote."""


class Outcome(enum.IntEnum):
    """How a phase, or the storm, went; the worst of all ranks counts."""

    FINE = 0
    FAILED = 1
    STOPPED = 2


class Ended(Protocol):
    """A phase that this rank has been through (`phase.Seen`, `phase.Frame`)."""

    @property
    def has_failed(self) -> bool:
        """Whether this rank had an error that ended its program, or was told that another one had."""


def agreed(cluster: Cluster, watch: Watch, ended: Ended) -> Outcome:
    """The worst outcome of all ranks; a stop of one stops all."""
    own = Outcome.FAILED if ended.has_failed else Outcome.FINE
    own = Outcome.STOPPED if watch.is_stopping else own
    worst = Outcome(int(cluster.greatest(np.array([own], dtype=np.int8))[0]))
    if worst == Outcome.STOPPED:
        watch.stop()
    return worst
