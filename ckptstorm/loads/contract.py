"""What a load is: given its table and a world, the op tables of any one rank, stage by stage.

A load runs in *stages*. Each is a phase of the storm under a name of its own, in which every rank that takes
part runs one program a thread. What a stage needs is prepared before, uncounted; what a load made is removed
by name afterwards.

A thread's program has three parts: what comes before the ring (opens), the ring [first, stop), and what
comes after (a last sync, closes). Only the ring is counted. It is run once, `op_limit` ops long, lap after lap,
or until `duration_ns` is over; between two laps `refill` writes the next offsets.

**Beside other phases.** A stage knows nothing of when it runs, so its threads can be started beside a save as
well: prepare each `Thread.program` with the native engine, run the ops before `first`, then
`repeat(sink, first, stop, deadline_ns, op_limit, refill)` on a thread of its own with
`control[STOP]` as its end, then the ops from `stop` on. The sink is `FoldActions` around `FoldTimes`, as
`storm/load_leg.py` makes it. A fixed schedule (open loop) is the program's `due_ns`: one time an op, in
nanoseconds after the release, of the first lap of the ring; op i of lap n is due at
`release + n * lap_ns + due_ns[i]`, and its latency counts from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ckptstorm.model.parallel import World
from ckptstorm.program import STEP, Kind, Path, Program, op, table
from ckptstorm.steps import Meet

#: Ops of a ring: a second's work of a fast client, and 1.5 MB. Longer loads go round, with new offsets each lap.
RING_OPS = 1 << 16

Refill = Callable[[int], NDArray[np.uint64]]


@dataclass(frozen=True, slots=True, eq=False)
class Thread:
    """What one thread of one rank does in one stage.

    Attributes:
        program: opens, ring, closes; all its paths lie in the load's own directory.
        first, stop: the ring: what is counted.
        action_of: per op of the ring, the index of its action in `Stage.actions`.
        leads: per op of the ring, whether an action begins with it.
        op_limit: ops to run, over all laps; None: as many as there is time for.
        refill: offsets of the whole ring in lap n (from 1); None: every lap is the same.
    """

    program: Program
    first: int
    stop: int
    action_of: NDArray[np.uint8]
    leads: NDArray[np.bool_]
    op_limit: int | None = None
    refill: Refill | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.first <= self.stop <= len(self.program.ops)
        assert len(self.action_of) == len(self.leads) == self.stop - self.first


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One phase of a load, as one rank runs it.

    Attributes:
        name: of its phase: the load's, and what it does when there are several.
        actions: what is counted, in the words of the job.
        threads: of this rank; none for a rank that takes no part.
        planned_bytes: that this rank moves when all goes well; 0 when that depends on time.
        duration_ns, ramp_ns: of a stage that ends by time; 0 and 0 of one that ends by amount.
        mode, is_direct, queue_depth: how its ops go to the kernel.
        verify_share: of the reads, what is compared with the payload.
        content: whether writes carry the payload, or the same bytes again and again.
        is_paced: whether the load's rate holds for it (a reading back goes as fast as it can).
        dropped: files that the page cache is asked to let go of just before; their names below the load's directory.
    """

    name: str
    actions: tuple[str, ...]
    threads: tuple[Thread, ...] = ()
    planned_bytes: int = 0
    duration_ns: int = 0
    ramp_ns: int = 0
    mode: str = "sync"
    is_direct: bool = False
    queue_depth: int = 1
    verify_share: float = 0.0
    content: Literal["own", "repeated"] = "own"
    dropped: tuple[str, ...] = ()
    is_paced: bool = True


@dataclass(frozen=True, slots=True)
class Created:
    """What a rank makes below the load's directory.

    Attributes:
        files: names; those that a load may or may not have made (it renames) are among them.
        directories: names, parents first; of a shared tree, those that this rank makes.
    """

    files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a load needs of the storage at most, all ranks together, and of a rank's memory.

    Attributes:
        bytes: in files.
        file_count: files and directories.
        buffer_bytes: of one rank's threads.
        op_table_bytes: of one rank: op tables and names.
        stages: (name, ops or actions of all ranks; 0 when that depends on time).
    """

    bytes: int
    file_count: int
    buffer_bytes: int
    op_table_bytes: int
    stages: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Uncounted:
    """Ops before or after a load's stages, in order; every rank has as many entries.

    Attributes:
        steps: programs of this rank, and barriers between them.
        written: files to be dropped from the page cache afterwards.
        is_direct: some opens carry O_DIRECT.
    """

    steps: tuple[tuple[Program, ...] | Meet, ...] = ()
    written: tuple[str, ...] = field(default=())
    is_direct: bool = False


class Load(Protocol):
    """One kind of load. Its table and the world are all it knows."""

    def __init__(self, load: Any, world: World) -> None: ...

    @property
    def is_kept(self) -> bool:
        """Whether its files serve all rounds (or are made and removed in each)."""

    def check(self) -> None:
        """Raise a JobError, naming load and key, for what cannot be."""

    def created(self, rank: int) -> Created:
        """What `rank` makes, to be removed by name."""

    def prepare(self, rank: int) -> Uncounted:
        """What must be there before the first stage."""

    def stage_count(self) -> int:
        """How many stages there are, on every rank."""

    def stage(self, rank: int, index: int, done: tuple[int, ...] = ()) -> Stage:
        """One of them, as `rank` runs it; `done`: how many ops of its ring each thread ran in the stage before."""

    def footprint(self) -> Footprint:
        """Closed form, for any world."""


def takes_part(load: Any, rank: int) -> bool:
    """Whether `rank` is among those that the load names."""
    return load.ranks == "all" or rank in load.ranks


def members(load: Any, world: World) -> tuple[int, ...] | range:
    """The ranks that run it, in order."""
    return range(world.rank_count) if load.ranks == "all" else tuple(sorted(set(load.ranks)))


def other_node(world: World, ranks: tuple[int, ...] | range, rank: int) -> int:
    """A rank of another node, a different one for each; the rank itself where a node has more than half of them."""
    line = sorted(ranks, key=lambda each: (world.node_of(each), each))
    nodes = [world.node_of(each) for each in line]
    shift = max(nodes.count(node) for node in set(nodes))
    return line[(line.index(rank) + shift) % len(line)]


def removal(created: Created) -> tuple[Program, Program]:
    """Unlinks of all files, and rmdirs of all directories, children first; what is not there is no error."""
    files = [op(Kind.UNLINK, index, expect=_ENOENT) for index in range(len(created.files))]
    down = tuple(reversed(created.directories))
    directories = [op(Kind.RMDIR, index, expect=_ENOENT) for index in range(len(down))]
    return _named(files, created.files), _named(directories, down)


_ENOENT = 2
#: Directories of a load's programs: the root and its own, which takes the place of a step's.
HOMELESS = ("", "load")


def _named(rows: list[tuple[int, int, int, int, int, int]], names: tuple[str, ...]) -> Program:
    return Program(table(rows), tuple(Path(STEP, name) for name in names), HOMELESS)
