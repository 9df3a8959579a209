"""All ranks of a small world at once: counted one by one, and run in one process, meet by meet."""

from __future__ import annotations

import errno
import os
from collections import Counter

import numpy as np

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.posix import PosixEngine
from ckptstorm.payload import Payload
from ckptstorm.plan import plan, totals
from ckptstorm.program import DATA, Kind
from ckptstorm.scene import layout_of
from ckptstorm.sinks import KeepTimes
from ckptstorm.sizes import SIZE_CLASS_NAMES, size_class
from ckptstorm.steps import Facts, Meet
from ckptstorm.testing.layouts import programs

FACTS = Facts(4096)


def assert_totals_are_the_sum(job, world):
    """Closed form equals brute force: ops by kind, data ops by size, bytes; of save and restore."""
    sums, layout = totals(job, world, FACTS), layout_of(job, world)
    for classes in (layout.save_classes(), layout.restore_classes()):
        assert sum(count for _, count in classes) == world.rank_count
    for phase, closed in (("save", sums.save), ("restore", sums.restore)):
        kinds, sizes, data_bytes = Counter(), np.zeros(len(SIZE_CLASS_NAMES), dtype=np.int64), 0
        for rank in range(world.rank_count):
            for program in programs(getattr(plan(job, world, rank), phase), FACTS):
                kinds.update(Kind(kind).word for kind in program.ops["kind"].tolist())
                moved = program.expected_bytes()[np.isin(program.ops["kind"], DATA)]
                sizes += np.bincount(size_class(moved), minlength=len(sizes))
                data_bytes += int(moved.sum())
        assert closed.by_kind == dict(sorted(kinds.items()))
        assert list(closed.data_by_size.values()) == sizes.tolist()
        assert closed.data_bytes == data_bytes


def segments(steps):
    """Steps between one meet and the next."""
    parts = [[]]
    for step in steps:
        if isinstance(step, Meet):
            parts.append([])
        else:
            parts[-1].append(step)
    return parts


class Disk:
    """A directory under test, and all ranks' programs run in it by the posix engine."""

    def __init__(self, job, world, root):
        self.job, self.world, self.root = job, world, root
        self._payload = Payload(storm=5, round_index=1)

    def run(self, phase):
        """Run a phase of all ranks, meet by meet; every op does what is planned. Notes of all programs."""
        ranks = range(self.world.rank_count)
        parts = [segments(getattr(plan(self.job, self.world, rank), phase)) for rank in ranks]
        notes = []
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for at in range(max(map(len, parts))):
                for rank in (rank for rank in ranks if at < len(parts[rank])):  # some take no part in a phase
                    notes += [self._run(fd, program) for program in programs(parts[rank][at], FACTS)]
        finally:
            os.close(fd)
        return notes

    def _run(self, fd, program):
        prepared = PosixEngine(Setup(fd)).prepare(program, self._payload)
        sink = KeepTimes(len(program.ops))
        done = prepared.run(sink, 0, len(program.ops))
        results, expected = sink.times.result, program.expected_bytes()
        for op, result, moved in zip(program.ops, results.tolist(), expected.tolist(), strict=True):
            is_expected = result < 0 and -result == int(op["expect"])
            assert is_expected or result == moved, (Kind(op["kind"]), errno.errorcode.get(-result, result), moved)
        assert done == len(program.ops)
        return prepared.finish()

    def names(self):
        """Files in the step directory."""
        return {path.name for path in (self.root / "step-0").iterdir()}

    def planned_read_bytes(self):
        """What all ranks' restores read."""
        return totals(self.job, self.world, FACTS).restore.data_bytes


def assert_saves_and_restores(job, world, root):
    """What all ranks save, all ranks read back, every byte verified; clean-up knows every name."""
    disk = Disk(job, world, root)
    disk.run("save")
    created = [name for rank in range(world.rank_count) for name in plan(job, world, rank).created]
    assert len(created) == len(set(created))
    assert disk.names() <= set(created)
    notes = disk.run("restore")
    assert sum(note.mismatch_count for note in notes) == 0
    assert sum(note.verified_bytes for note in notes) == disk.planned_read_bytes() > 0
    for name in created:
        (root / "step-0" / name).unlink(missing_ok=True)
    assert disk.names() == set()
    return notes
