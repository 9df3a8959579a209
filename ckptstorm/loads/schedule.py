"""The fixed schedule of a load that runs beside a save: when each of its actions is due, whatever came before.

A rate of the cluster is dealt evenly to all threads of all ranks that take part, and their beats interleave, so that
a thousand stats a second are one each millisecond and not a hundred at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import JobError
from ckptstorm.load_tables import LoadTable, RandomLoad, name_of
from ckptstorm.loads.contract import Stage, Thread, members
from ckptstorm.loads.sequence import RESET
from ckptstorm.model.parallel import World
from ckptstorm.units import TIME_LIMIT_NS, Duration

#: The posix engine runs in Python beside the save's own threads, and beyond this it is felt in both.
POSIX_OPS_PER_S = 200


@dataclass(frozen=True, slots=True)
class Beat:
    """The schedule of one thread.

    Attributes:
        thread: with due times in its program.
        begins: per op of the ring, whether an action that counts begins with it.
        lap_ns: how long a lap of its ring takes.
    """

    thread: Thread
    begins: NDArray[np.bool_]
    lap_ns: int


def check_beside(table: LoadTable, world: World) -> None:
    """Refuse what cannot go on at a steady rate for as long as a save takes.

    Raises:
        JobError: names the load, the key and what to do.
    """
    where = f"[[load]] {name_of(table)}"
    if table.rate is None:
        raise JobError(
            f'{where} when = "beside": a load beside a save needs a steady rate', 'give it one: rate = "1000/s"'
        )
    for key in ("duration", "ramp", "amount", "count"):
        if getattr(table, key, None):
            raise JobError(f"{where} {key}: a load beside a save goes on for as long as the save", "leave it out")
    if getattr(table, "phases", None) or getattr(table, "verify", None):
        raise JobError(
            f'{where} when = "beside": it goes on and on, so it has no phases and no second reading',
            "give a metadata load a mix or a flow, a random load no verify",
        )
    if actions_per_s(table, world) < 0.1:
        raise JobError(f"{where} rate: less than one action in ten seconds for each thread", "raise it")


def endless(table: LoadTable) -> LoadTable:
    """The same load, going on until it is told to stop."""
    return msgspec.structs.replace(table, duration=Duration(TIME_LIMIT_NS))


def actions_per_s(table: LoadTable, world: World) -> float:
    """What one thread is to begin."""
    assert table.rate is not None
    per_s = float(table.rate.per_s)
    if table.rate.unit == "bytes":
        assert isinstance(table, RandomLoad)
        per_s /= table.block.mean_bytes
    ranks = len(members(table, world)) if table.rate_per == "cluster" else 1
    return per_s / (ranks * table.threads)


def beats(table: LoadTable, world: World, rank: int, stage: Stage) -> tuple[Beat, ...]:
    """The stage's threads with their schedules."""
    taking_part = list(members(table, world))
    if rank not in taking_part:
        return ()
    first, whole = taking_part.index(rank) * len(stage.threads), len(taking_part) * max(len(stage.threads), 1)
    per_s = actions_per_s(table, world)
    reset = stage.actions.index(RESET) if RESET in stage.actions else -1
    return tuple(
        _beat(thread, thread.leads & (thread.action_of != reset), per_s, (first + number) / whole)
        for number, thread in enumerate(stage.threads)
    )


def _beat(thread: Thread, begins: NDArray[np.bool_], per_s: float, place: float) -> Beat:
    """All ops of an action are due with its first; `place` (0 to 1) is where in its period a thread's beat lies.

    What puts a tree back after a lap is nobody's action: it is due with the one before it, and counts for nothing.
    """
    period_ns = NS_PER_S / per_s
    number = np.maximum(np.cumsum(begins) - 1, 0)
    due_ns = np.zeros(len(thread.program.ops), dtype=np.int64)
    due_ns[thread.first : thread.stop] = ((number + place) * period_ns).astype(np.int64)
    lap_ns = round(int(begins.sum()) * period_ns)
    return Beat(replace(thread, program=replace(thread.program, due_ns=due_ns)), begins, lap_ns)
