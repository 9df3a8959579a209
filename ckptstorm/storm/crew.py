"""One rank's part in a storm: its plan, its op tables, its engine and its faults, ready for the rounds."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Literal

from ckptstorm import registry
from ckptstorm.cluster.comm import Cluster
from ckptstorm.engines import ENGINES, thread_of
from ckptstorm.engines.contract import Preparer, Setup
from ckptstorm.engines.slow import Planted, SlowEngine, errno_number
from ckptstorm.filesystems import adapter_class, adapter_of
from ckptstorm.filesystems.contract import Adapter
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.job import Fault, Job, verify_share
from ckptstorm.layouts.contract import Pointer
from ckptstorm.measure.rows import SAVES, Phase
from ckptstorm.model.parallel import World
from ckptstorm.payload import Payload
from ckptstorm.plan import facts_of, plan
from ckptstorm.program import ROOT, STEP, Kind, Path, Program, op, open_length, table
from ckptstorm.restore_source import restore_source
from ckptstorm.scene import pointer_of, reader_of
from ckptstorm.steps import RankPlan
from ckptstorm.storm.lowered import Lowered, LoweredRun, lowered
from ckptstorm.storm.meeting import Meeting
from ckptstorm.storm.orders import Orders
from ckptstorm.storm.phase import Groups
from ckptstorm.storm.staging import Area, StagedEngine, staged_bytes
from ckptstorm.storm.tested import located, made_directories

#: Engines that can delete files themselves; for the others plain system calls do it.
_DELETERS = ("native", "posix", "null")


class Crew:
    """What one rank needs through all rounds.

    Attributes:
        cluster, orders: the world and what is to be done.
        plan: this rank's plan.
        save, restore, clean_up, drain: its lowered steps, of any round.
        own_index, source_index: which of the directories under test this rank writes into, and restores from.
        directory: its own, absolute; file_system: the adapter of this node's mount of it.
        is_reader: whether it looks after that directory for all ranks of its node that share it.
        root_fd: its own directory, open.
        area: staging memory of asynchronous saves; None when the job asks for none.
    """

    def __init__(self, cluster: Cluster, orders: Orders, root_fd: int) -> None:
        self.cluster, self.orders, self.root_fd = cluster, orders, root_fd
        job = orders.job
        self.world = World(cluster.rank_count, tuple(int(node) for node in cluster.node_of_rank))
        self.plan: RankPlan = plan(job, self.world, cluster.rank)
        if orders.reading is not None:
            reader = reader_of(job, self.world)
            self.plan = replace(self.plan, restore=reader.restore(orders.reading.sources[cluster.rank]))
        self._meeting = Meeting(cluster, job, self.world, self.plan)
        facts = facts_of(job, orders.block_size_bytes)
        self._find_own_directory()
        self.save = self.located(lowered(self.plan.save, facts, job.io), self.own_index)
        self.restore = self.located(lowered(self.plan.restore, facts, job.io), self.source_index)
        self.clean_up = (LoweredRun((_unlink_program(self.plan),), "data"),)
        self.drain = (LoweredRun((_drain_program(),), "data"),) if self.is_reader else ()
        staging = int(job.storm.staging)
        self.area = Area(staging, staged_bytes(self.save)) if staging else None
        self._setup = Setup(
            root_fd, verify_share(job), job.storm.on_error, job.io.mode, job.io.direct, job.io.queue_depth,
            hints=tuple(sorted(job.io.hints.items())),
        )  # fmt: skip

    def _find_own_directory(self) -> None:
        """Which of the directories under test is this rank's, and who of the node looks after it."""
        rank, nodes = self.cluster.rank, self.cluster.node_of_rank.tolist()
        self._index_of_rank = [self.orders.own_index(other, node) for other, node in enumerate(nodes)]
        self.own_index = self._index_of_rank[rank]
        reading = self.orders.reading
        source = restore_source(self.job, self.world, rank) if reading is None else rank
        self.source_index = self._index_of_rank[source % len(nodes)]
        self.directory = self.orders.tested[self.own_index].directory
        self.file_system: Adapter = adapter_of(mount_of(self.directory))
        pairs = list(zip(nodes, self._index_of_rank, strict=True))
        self.is_reader = pairs.index((nodes[rank], self.own_index)) == rank
        #: The first of all ranks in its directory makes and removes what nobody else does.
        self.is_first_there = self._index_of_rank.index(self.own_index) == rank

    def located(self, stages: tuple[Lowered, ...], plain: int) -> tuple[Lowered, ...]:
        """The paths of any rank's programs, as this rank must name them; `plain` as in `tested.located`."""
        directories = tuple(one.directory for one in self.orders.tested)
        return located(stages, directories, self.own_index, lambda writer: self._index_of_rank[writer], plain)

    @property
    def proves_residency(self) -> bool:
        """Whether an empty page cache proves a cold read, in every directory under test."""
        return all(adapter_class(one.mount).proves_residency for one in self.orders.tested)

    def make_parents(self, step: str) -> None:
        """Directories that this rank's files go into, where the framework makes them in the first one only."""
        if self.own_index == 0:
            return
        own = made_directories(self.save)
        for parent in {"", *(os.path.dirname(name) for name in self.plan.created)} - own:
            os.makedirs(os.path.join(self.directory, step, parent), exist_ok=True)

    @property
    def job(self) -> Job:
        """The resolved job."""
        return self.orders.job

    @property
    def round_count(self) -> int:
        """Warm-up rounds and measured ones."""
        return self.job.storm.warmup + self.job.storm.rounds

    def payload(self, round_number: int) -> Payload:
        """The content of the files of a round."""
        return Payload(self.orders.seed, round_number)

    def engine(self, phase: Phase, round_number: int) -> Preparer:
        """The engine of a phase, with the faults planted that the job asks for there."""
        setup = self._setup
        if self.thread == "main":
            setup = replace(setup, comm=self.groups(phase)["world"].comm if "world" in self.groups(phase) else None)
        engine: Preparer = registry.find("engine", ENGINES, self.orders.engine)(setup)
        planted = tuple(_planted(fault) for fault in self.job.fault if self._falls_here(fault, phase, round_number))
        engine = SlowEngine(engine, planted, self.job.storm.on_error) if planted else engine
        return StagedEngine(engine, self.area) if phase in SAVES and self.area is not None else engine

    @property
    def thread(self) -> Literal["own", "main"]:
        """Where the engine's programs run."""
        return thread_of(self.orders.engine)

    def drain_engine(self) -> Preparer:
        """For syncfs: the storm's own engine, or plain system calls where that moves bytes through a library."""
        name = self.orders.engine if self.orders.engine in _DELETERS else "posix"
        engine: Preparer = registry.find("engine", ENGINES, name)(self._setup)
        return engine

    def rank_count(self, phase: Phase) -> int:
        """The first so many ranks take part in the phase, the others wait and have no row."""
        return self._meeting.rank_count(phase)

    def groups(self, phase: Phase) -> Groups:
        """Whom this rank meets in the phase."""
        return self._meeting.groups(phase)

    @property
    def pointer(self) -> Pointer | None:
        """What the layout has to name a complete checkpoint."""
        return pointer_of(self.job)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self.root_fd)

    def clean_up_engine(self) -> Preparer:
        """For deleting: whatever happened before, every file is tried."""
        name = self.orders.engine if self.orders.engine in _DELETERS else "posix"
        engine: Preparer = registry.find("engine", ENGINES, name)(Setup(self.root_fd, on_error="continue"))
        return engine

    def _falls_here(self, fault: Fault, phase: Phase, round_number: int) -> bool:
        is_round = round_number == fault.round or (fault.round is None and round_number >= 1)
        return self.cluster.rank in fault.ranks and fault.phase == phase.word and is_round


def _unlink_program(rank_plan: RankPlan) -> Program:
    """One unlink a file that the rank creates; one that a failed save never made is no error."""
    rows = [op(Kind.UNLINK, index, expect=errno.ENOENT) for index in range(len(rank_plan.created))]
    paths = tuple(Path(STEP, name, rank_plan.rank) for name in rank_plan.created)
    return Program(table(rows), paths, ("", "step-0"))


def _drain_program() -> Program:
    """syncfs, one a node: what layouts that sync nothing leave for later."""
    rows = [
        op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDONLY | os.O_DIRECTORY)),
        op(Kind.SYNCFS, 0),
        op(Kind.CLOSE, 0),
    ]
    return Program(table(rows), (Path(ROOT, ""),), ("", "step-0"))


def _planted(fault: Fault) -> Planted:
    number = errno_number(fault.errno) if fault.errno else 0
    ends: Literal["", "kill", "stop"] = "kill" if fault.kill else "stop" if fault.stop else ""
    return Planted(Kind[fault.op.upper()], fault.nth, fault.file, int(fault.delay or 0), number, ends)
