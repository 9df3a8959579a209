"""After a rank was lost: go on as the layout's framework would, and find out what was really there to go on from.

All ranks of a new world try the checkpoint that the framework's own pointer names, then the others from the
newest on, until one is read back whole, byte for byte. Then those newer than it are read too: was the newest
complete one found, and did a pointer name a torn one?
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.comm import Cluster
from ckptstorm.layouts.contract import Pointer
from ckptstorm.measure.failure import failures
from ckptstorm.storm.choice import Candidate, Choice, choose
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.phase import Seen


class Attempts(Protocol):
    """Who reads checkpoints back (`rounds.Rounds`)."""

    def attempt(self, number: int, step: str) -> str:
        """Restore this checkpoint, all ranks; "" when it is whole, else what was wrong, on every rank the same."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One checkpoint, tried.

    Attributes:
        number, step: which.
        why: chosen (by the pointer), fallback, or audit: after one was found.
        torn_because: what was wrong; "" when it was complete.
        seconds: from its start to its end.
    """

    number: int
    step: str
    why: str
    torn_because: str
    seconds: float


class Recovery:
    """One rank's way through a recovery; every rank of the world makes one."""

    def __init__(self, crew: Crew, attempts: Attempts, steps: tuple[str, ...]) -> None:
        self._crew, self._attempts, self._places = crew, attempts, places_of(crew, steps)
        self._began_ns = monotonic_ns()
        self._found_ns = self._chosen_ns = 0

    def run(self) -> dict[str, Any]:
        """Try, find, audit; returns what the record tells of it."""
        crew = self._crew
        pointer: Pointer | None = crew.pointer
        choice = choose(crew.root_fd, self._places, pointer, crew.payload) if crew.cluster.rank == 0 else None
        choice = _agreed(crew.cluster, choice)
        self._chosen_ns = monotonic_ns()
        done = self._try_in_order(choice)
        return self._told(pointer, choice, done)

    def _try_in_order(self, choice: Choice) -> list[Attempt]:
        done: list[Attempt] = []
        found = -1
        for index in choice.order():
            if found >= 0 and index > found:
                continue  # older than what was found: of no interest
            why = "chosen" if index == choice.chosen else "audit" if found >= 0 else "fallback"
            done.append(self._try(choice.candidates[index], why))
            if found < 0 and not done[-1].torn_because:
                found, self._found_ns = index, monotonic_ns()
        return done

    def _try(self, candidate: Candidate, why: str) -> Attempt:
        began_ns = monotonic_ns()
        problem = self._attempts.attempt(candidate.number, candidate.step)
        seconds = (monotonic_ns() - began_ns) / NS_PER_S
        return Attempt(candidate.number, candidate.step, why, problem, seconds)

    def _told(self, pointer: Pointer | None, choice: Choice, done: list[Attempt]) -> dict[str, Any]:
        whole = [one for one in done if not one.torn_because]
        found = next((one for one in whole if one.why != "audit"), None)
        newest = max(whole, key=lambda one: one.number, default=None)
        chosen = choice.candidates[choice.chosen] if choice.chosen >= 0 else None
        lost_ns = self._crew.orders.lost_ns or self._began_ns
        until_ns = (self._found_ns or monotonic_ns()) - lost_ns
        return {
            "layout": self._crew.job.layout.name,
            "overwrite": self._crew.job.layout.overwrite,
            "pointer": {"name": pointer.name, "kind": pointer.kind} if pointer else {},
            "choice": choice.why,
            "chosen": {"round": chosen.number, "step": chosen.step} if chosen else {},
            "found": {"round": found.number, "step": found.step} if found else {},
            "newest_complete": {"round": newest.number, "step": newest.step} if newest else {},
            "names_torn": any(one.why == "chosen" and one.torn_because for one in done) and pointer is not None,
            "attempts": [asdict(one) for one in done],
            "seconds": until_ns / NS_PER_S,
            "counted_from": "the loss" if self._crew.orders.lost_ns else "the start of the recovery",
            "start_seconds": (self._began_ns - lost_ns) / NS_PER_S,
            "choose_seconds": (self._chosen_ns - self._began_ns) / NS_PER_S,
        }


def _agreed(cluster: Cluster, choice: Choice | None) -> Choice:
    """Rank 0 has looked; all take its word."""
    raw = json.dumps(asdict(choice)).encode() if choice is not None else b""
    told = json.loads(cluster.bytes_from_rank_0(raw))
    return Choice(tuple(Candidate(**one) for one in told["candidates"]), told["chosen"], told["why"])


def places_of(crew: Crew, steps: tuple[str, ...]) -> list[tuple[int, str]]:
    """(round, step directory) of every save that may have been begun, newest first."""
    warmup = crew.job.storm.warmup
    newest = min(crew.orders.started + warmup - 1, crew.round_count - 1)
    # Where rounds share a directory, it holds files of the last one begun (perhaps `started`), and of the one before.
    oldest = max(0, newest - 2) if crew.job.layout.overwrite else 0
    return [(index + 1 - warmup, steps[index]) for index in range(newest, oldest - 1, -1)]


def problem_of(seen: Seen) -> str:
    """What was wrong with this rank's part of a restore; "" when every byte came back."""
    observed = seen.observed
    failed = failures(observed, "")
    if failed:
        return f"{failed[0].errno} at {failed[0].op} of {failed[0].file}, offset {failed[0].offset_bytes}"
    for notes in observed.tallies:
        if notes.mismatch_count:
            return next((one.sentence() for one in getattr(notes, "mismatches", ())), "bytes differ")
    return "it was not read to its end" if seen.has_failed else ""


def first_problem(cluster: Cluster, problem: str) -> str:
    """The first rank's problem that has one, on every rank."""
    texts = cluster.texts_on_rank_0(problem)
    told = next((f"rank {rank}: {text}" for rank, text in enumerate(texts) if text), "")
    return cluster.bytes_from_rank_0(told.encode()).decode()
