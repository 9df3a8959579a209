"""Staging memory: bounded, never drained before it is filled, never at a standstill, obedient to a stop."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ckptstorm.clock import monotonic_ns
from ckptstorm.errors import JobError
from ckptstorm.jobfile import decode
from ckptstorm.model.parallel import World
from ckptstorm.plan import facts_of, plan
from ckptstorm.program import Kind, Path, Program, op, table
from ckptstorm.sinks import STOP, KeepTimes
from ckptstorm.storm.lowered import LoweredRun, lowered
from ckptstorm.storm.staging import Area, StagedEngine, Trainer, check_staging, least_bytes, staged_bytes
from tests.conftest import TINY

MIB = 1 << 20


class _Slow:
    """An engine whose writes take their time, and which notes how much was copied when each span began."""

    def __init__(self, area, pause_s):
        self.area, self.pause_s, self.spans = area, pause_s, []

    def prepare(self, program, payload):
        self.program = program
        return self

    def run(self, sink, first, stop):
        written = int(self.program.ops["length_bytes"][:stop].sum())
        self.spans.append((self.area.copied_bytes, self.area.drained_bytes, written))
        threading.Event().wait(self.pause_s)
        return stop

    def finish(self):
        return None


def _writes(sizes):
    offsets = np.cumsum([0, *sizes])[:-1].tolist()
    rows = [op(Kind.WRITE, 0, offset, size) for offset, size in zip(offsets, sizes, strict=True)]
    return Program(table(rows), (Path(0, "f"),))


def _run(area, program, pause_s=0.002):
    engine = _Slow(area, pause_s)
    prepared = StagedEngine(engine, area).prepare(program, None)
    trainer = Trainer(area, 1_000_000, 0)
    trainer.start(monotonic_ns())
    done = prepared.run(KeepTimes(len(program.ops)), 0, len(program.ops))
    return engine, done, trainer.finish(0)


@pytest.mark.parametrize("size_mib", [2, 3, 8, 64])
@pytest.mark.parametrize("sizes", [[MIB] * 20, [704, MIB - 1, 873] * 20, [1] * 1000])
def test_the_drain_follows_the_copy_and_memory_is_bounded(size_mib, sizes):
    """No span writes what was not copied; never more is copied than drained plus the memory; all of it is."""
    program, total = _writes(sizes), sum(sizes)
    area = Area(size_mib * MIB, total)
    engine, done, pace = _run(area, program)
    assert done == len(program.ops)
    assert int(pace["copied_bytes"][0]) == area.drained_bytes == total
    for copied, drained, written in engine.spans:
        assert written <= copied <= drained + area.size_bytes
    assert area.size_bytes == min(size_mib * MIB, total)


def test_a_full_memory_blocks_the_training():
    """With room for a tenth, training waits for the drain; with room for all of it, it does not."""
    program = _writes([MIB] * 40)
    _, _, small = _run(Area(4 * MIB, 40 * MIB), program, pause_s=0.02)
    _, _, large = _run(Area(64 * MIB, 40 * MIB), program, pause_s=0.02)
    assert int(small["room_ns"][0]) > 0.5 * int(small["blocked_ns"][0])
    assert int(large["room_ns"][0]) < 0.5 * int(small["room_ns"][0])


def test_several_threads_share_one_memory():
    """Two programs drain at once: none waits for ever, and together they write all."""
    area = Area(4 * MIB, 40 * MIB)
    engine = _Slow(area, 0.001)
    program = _writes([MIB] * 20)
    prepared = [StagedEngine(engine, area).prepare(program, None) for _ in range(2)]
    trainer = Trainer(area, 1_000_000, 0)
    trainer.start(monotonic_ns())
    threads = [threading.Thread(target=one.run, args=(KeepTimes(20), 0, 20)) for one in prepared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert int(trainer.finish(0)["copied_bytes"][0]) == 40 * MIB


def test_a_stop_is_obeyed_while_waiting_for_the_copy():
    """Nothing was copied and nothing will be: the drain ends, and so does the trainer that waits for room."""
    area, program, sink = Area(4 * MIB, 40 * MIB), _writes([MIB] * 40), KeepTimes(40)
    prepared = StagedEngine(_Slow(area, 0), area).prepare(program, None)
    thread = threading.Thread(target=prepared.run, args=(sink, 0, 40))
    thread.start()
    sink.control[STOP] = 1
    thread.join(5)
    assert not thread.is_alive()
    trainer = Trainer(area, 1_000_000, 7)
    trainer.start(monotonic_ns())
    pace = trainer.finish(3)
    assert int(pace["copied_bytes"][0]) <= 4 * MIB
    assert (int(pace["delay_ns"][0]), int(pace["backpressure_ns"][0])) == (3, 7)


def test_too_little_memory_is_refused():
    """Less than two of the largest writes could come to a standstill; the sentence says how much is needed."""
    job = decode(TINY.replace("rounds = 1", 'rounds = 1\nstaging = "1MiB"'), "test")
    with pytest.raises(JobError, match=r"staging = 1.00 MiB.* at least .* is needed"):
        check_staging(job, World(2, 2))
    check_staging(decode(TINY.replace("rounds = 1", 'rounds = 1\nstaging = "1GiB"'), "test"), World(2, 2))


def test_staged_bytes_are_those_of_the_data_writes():
    """What a rank copies is what its data programs write, not what its commit does."""
    job = decode(TINY, "test")
    stages = lowered(plan(job, World(2, 2), 0).save, facts_of(job, 4096), job.io)
    data = [one for stage in stages if isinstance(stage, LoweredRun) and stage.part == "data" for one in stage.programs]
    assert staged_bytes(stages) == sum(int(program.expected_bytes().sum()) for program in data) > 0
    assert 0 < least_bytes(stages) <= staged_bytes(stages)
