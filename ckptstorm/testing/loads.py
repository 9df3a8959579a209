"""The contract suite of loads: subclass `LoadContract`, say how to make one, inherit the tests.

class TestMine(LoadContract):
    def make(self, world): return MyLoad(MyTable(...), world)

Loads are played through in a namespace in memory: every op must find what it needs, and nothing may be left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from ckptstorm.loads.contract import Created, Load, Stage, removal
from ckptstorm.model.parallel import World
from ckptstorm.program import READS, WRITES, Kind, Program, open_flags
from ckptstorm.steps import Meet

#: One rank; few on one node; several nodes, unevenly filled.
WORLDS = (World(1), World(3, 3), World(5, (0, 0, 1, 1, 2)))
_ON_OPEN = (
    *WRITES, *READS, Kind.FSYNC, Kind.FSTAT, Kind.SETXATTR, Kind.LOCK, Kind.UNLOCK, Kind.TRUNCATE, Kind.FALLOCATE,
)  # fmt: skip


class Namespace:
    """Names, sizes and open files of one file system: enough to tell what each op answers."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.directories = {"load"}

    def play(self, program: Program, rows: Iterable[int], opened: dict[int, str]) -> Iterator[tuple[int, int]]:
        """Run ops of a program; yields (index, errno or 0). `opened` are the files that its thread has open."""
        for index in rows:
            row = program.ops[index]
            yield index, self._one(program, row, opened)

    def _one(self, program: Program, row: np.void, opened: dict[int, str]) -> int:
        kind, file = Kind(int(row["kind"])), int(row["file"])
        name = program.location(file)
        if kind == Kind.OPEN:
            return self._open(name, open_flags(int(row["length_bytes"]))[0], file, opened)
        if kind == Kind.CLOSE:
            return 0 if opened.pop(file, None) else errno.EBADF
        if kind in _ON_OPEN:
            if file not in opened:
                return errno.EBADF
            if kind in WRITES or kind == Kind.TRUNCATE:
                end = int(row["length_bytes"]) + (int(row["offset_bytes"]) if kind in WRITES else 0)
                size = self.files[opened[file]]
                self.files[opened[file]] = end if kind == Kind.TRUNCATE else max(size, end)
            return 0
        if kind in (Kind.RENAME, Kind.LINK):
            return self._second_name(kind, name, program.location(int(row["offset_bytes"])))
        return self._by_name(kind, name)

    def _open(self, name: str, flags: int, file: int, opened: dict[int, str]) -> int:
        if flags & os.O_CREAT:
            if name in self.files and flags & os.O_EXCL:
                return errno.EEXIST
            if os.path.dirname(name) not in self.directories:
                return errno.ENOENT
            self.files.setdefault(name, 0)
        if name not in self.files:
            return errno.ENOENT
        assert file not in opened, "a program opens a file twice before it closes it"
        opened[file] = name
        return 0

    def _second_name(self, kind: Kind, name: str, other: str) -> int:
        if name not in self.files:
            return errno.ENOENT
        if kind == Kind.LINK and other in self.files:
            return errno.EEXIST
        self.files[other] = self.files.pop(name) if kind == Kind.RENAME else self.files[name]
        return 0

    def _by_name(self, kind: Kind, name: str) -> int:
        is_there = name in self.files or name in self.directories
        if kind == Kind.MKDIR:
            if is_there or os.path.dirname(name) not in self.directories:
                return errno.EEXIST if is_there else errno.ENOENT
            self.directories.add(name)
            return 0
        if kind == Kind.READDIR:
            return 0 if name in self.directories else errno.ENOENT
        if kind == Kind.RMDIR:
            if name not in self.directories:
                return errno.ENOENT
            if any(os.path.dirname(each) == name for each in (*self.files, *self.directories)):
                return errno.ENOTEMPTY
            self.directories.discard(name)
            return 0
        if not is_there:
            return errno.ENOENT
        if kind == Kind.UNLINK:
            del self.files[name]
        return 0


class LoadContract:
    """What must hold for every load. Override `make`; let it be small."""

    @pytest.fixture(autouse=True)
    def short_laps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A lap of a second's work is played through in a minute: here it is short."""
        monkeypatch.setattr("ckptstorm.loads.random_io.RING_OPS", 100)
        monkeypatch.setattr("ckptstorm.loads.sequence.LAP_ACTIONS", 60)

    def make(self, world: World) -> Load:
        """The load under test, on this world."""
        raise NotImplementedError

    def worlds(self) -> tuple[World, ...]:
        """Those that the load is possible on."""
        return WORLDS

    def test_every_op_finds_what_it_needs_and_nothing_is_left(self) -> None:
        """Played through on all ranks, twice: no unexpected errno, and after the removal an empty directory."""
        for world in self.worlds():
            load, names = self.make(world), Namespace()
            for _ in range(2):
                play_through(load, world, names)
                assert names.files == {} and names.directories == {"load"}

    def test_what_is_made_is_told_beforehand(self) -> None:
        """Every name that an op makes is among those that some rank says it creates; no two ranks say the same."""
        for world in self.worlds():
            load = self.make(world)
            told = [load.created(rank) for rank in range(world.rank_count)]
            files = [name for created in told for name in created.files]
            directories = [name for created in told for name in created.directories]
            assert len(set(files)) == len(files) and len(set(directories)) == len(directories)
            assert _safe(told)
            for program in _programs(load, world):
                for row in program.ops:
                    made = _made(program, row)
                    assert made is None or made in {*files, *directories}

    def test_stages_are_the_same_everywhere(self) -> None:
        """All ranks run the same stages in the same order, with the same actions, or the storm would hang."""
        for world in self.worlds():
            load = self.make(world)
            for index in range(load.stage_count()):
                stages = [_stage(load, rank, index) for rank in range(world.rank_count)]
                assert len({(stage.name, stage.actions, stage.duration_ns, stage.ramp_ns) for stage in stages}) == 1

    def test_rings_are_well_formed(self) -> None:
        """A ring begins with an action, names only actions of its stage, and paths that there are."""
        for world in self.worlds():
            load = self.make(world)
            for rank in range(world.rank_count):
                for index in range(load.stage_count()):
                    stage = _stage(load, rank, index)
                    for thread in stage.threads:
                        assert len(thread.leads) == 0 or thread.leads[0]
                        assert (thread.action_of < len(stage.actions)).all()
                        assert (thread.program.ops["file"] < max(len(thread.program.paths), 1)).all()

    def test_plans_are_values(self) -> None:
        """Made again, by a rank that knows nothing of the first time, it is the same to the byte."""
        world = self.worlds()[-1]
        once, again = self.make(world), self.make(world)
        for rank in range(world.rank_count):
            for index in range(once.stage_count()):
                pairs = zip(_stage(once, rank, index).threads, _stage(again, rank, index).threads, strict=True)
                for one, other in pairs:
                    assert one.program.ops.tobytes() == other.program.ops.tobytes()
                    assert one.program.paths == other.program.paths
                    if one.refill and other.refill:
                        assert (one.refill(3) == other.refill(3)).all()

    def test_the_footprint_is_not_too_small(self) -> None:
        """No more files than said, and no more bytes (sizes drawn by lot come out a little differently)."""
        for world in self.worlds():
            load = self.make(world)
            told = [load.created(rank) for rank in range(world.rank_count)]
            count = sum(len(created.files) + len(created.directories) for created in told)
            assert count <= load.footprint().file_count + 1


def play_through(load: Load, world: World, names: Namespace) -> None:
    """Prepare, run every stage (rings without an end twice), remove; any op that should not fail does not."""
    ranks = range(world.rank_count)
    steps = [load.prepare(rank).steps for rank in ranks]
    assert len({len(each) for each in steps}) == 1, "every rank has as many steps, or barriers would not meet"
    for at in range(len(steps[0])):
        for rank in ranks:
            step = steps[rank][at]
            for program in () if isinstance(step, Meet) else step:
                _expect(names, program, range(len(program.ops)), {})
    for index in range(load.stage_count()):
        for rank in ranks:
            for thread in _stage(load, rank, index).threads:
                opened: dict[int, str] = {}
                _expect(names, thread.program, range(thread.first), opened)
                ring, left = range(thread.first, thread.stop), thread.op_limit
                for _ in range(2):
                    rows = ring if left is None else ring[: max(left, 0)]
                    _expect(names, thread.program, rows, opened)
                    left = None if left is None else left - len(rows)
                _expect(names, thread.program, range(thread.stop, len(thread.program.ops)), opened)
                assert not opened or thread.op_limit is not None
    removed = [removal(load.created(rank)) for rank in ranks]
    for part in (0, 1):
        for rank in ranks:
            _expect(names, removed[rank][part], range(len(removed[rank][part].ops)), {})


def _expect(names: Namespace, program: Program, rows: Iterable[int], opened: dict[int, str]) -> None:
    for index, answer in names.play(program, rows, opened):
        row = program.ops[index]
        if answer and answer != int(row["expect"]):
            where = program.location(int(row["file"]))
            pytest.fail(f"op {index}, {Kind(int(row['kind'])).word} of {where}: {errno.errorcode[answer]}")


def _stage(load: Load, rank: int, index: int) -> Stage:
    done: tuple[int, ...] = ()
    if index:
        before = load.stage(rank, index - 1).threads
        done = tuple(thread.op_limit or len(thread.leads) for thread in before)
    return load.stage(rank, index, done)


def _programs(load: Load, world: World) -> Iterator[Program]:
    for rank in range(world.rank_count):
        for step in load.prepare(rank).steps:
            yield from () if isinstance(step, Meet) else step
        for index in range(load.stage_count()):
            yield from (thread.program for thread in _stage(load, rank, index).threads)


def _made(program: Program, row: np.void) -> str | None:
    """The name that an op makes, below the load's directory."""
    kind = Kind(int(row["kind"]))
    if kind == Kind.OPEN and not open_flags(int(row["length_bytes"]))[0] & os.O_CREAT:
        return None
    if kind in (Kind.OPEN, Kind.MKDIR):
        return program.paths[int(row["file"])].name
    return program.paths[int(row["offset_bytes"])].name if kind in (Kind.RENAME, Kind.LINK) else None


def _safe(told: list[Created]) -> bool:
    names = [name for created in told for name in (*created.files, *created.directories)]
    return all(name and not name.startswith("/") and ".." not in name.split("/") for name in names)
