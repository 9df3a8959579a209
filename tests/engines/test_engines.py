"""Every engine in pure Python against the contract, and the planted faults of the slow one."""

from __future__ import annotations

import errno
import os

import pytest

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.null import NullEngine
from ckptstorm.engines.posix import PosixEngine
from ckptstorm.engines.slow import Planted, SlowEngine, errno_number
from ckptstorm.payload import Payload
from ckptstorm.program import Kind
from ckptstorm.sinks import STOP, KeepTimes
from ckptstorm.testing.engines import EngineContract, write_program


class TestPosix(EngineContract):
    """The reference engine keeps the contract."""

    def make(self, setup):
        """A posix engine."""
        return PosixEngine(setup)


class TestNull(EngineContract):
    """The null engine keeps what of the contract moves no data."""

    moves = False

    def make(self, setup):
        """A null engine."""
        return NullEngine(setup)


class TestSlowWithoutFaults(EngineContract):
    """A wrapper with nothing planted is the wrapped engine."""

    def make(self, setup):
        """A slow engine whose only fault falls on an op that never comes."""
        return SlowEngine(PosixEngine(setup), (Planted(Kind.FSYNC, nth=99, delay_ns=10),), setup.on_error)


@pytest.fixture
def root(tmp_path):
    """The storm's directory, open."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def _run(root, planted, on_error="stop"):
    program = write_program()
    prepared = SlowEngine(PosixEngine(Setup(root, on_error=on_error)), planted, on_error).prepare(
        program, Payload(1, 1)
    )
    sink = KeepTimes(len(program.ops))
    done = prepared.run(sink, 0, len(program.ops))
    prepared.finish()
    return program, done, sink.times


def test_a_delay_falls_on_the_op_it_names(root):
    """The nth op of a kind takes the delay longer, and is made all the same."""
    program, done, times = _run(root, (Planted(Kind.WRITE, nth=3, delay_ns=30_000_000),))
    assert done == len(program.ops)
    took = times.end_ns - times.start_ns
    assert took[4] >= 30_000_000
    assert int(took.argmax()) == 4
    assert times.result.tolist() == program.expected_bytes().tolist()


def test_an_errno_replaces_the_op(root, tmp_path):
    """A planted errno is the op's result, the op is not made, and the program ends there."""
    _, done, times = _run(root, (Planted(Kind.FSYNC, nth=1, errno=errno.EIO),))
    assert times.result[done - 1] == -errno.EIO
    assert times.end_ns[done] == 0
    assert not (tmp_path / "step-1" / "shard").exists()


def test_continue_runs_past_a_planted_errno(root, tmp_path):
    """Under on_error = "continue" the ops after the fault are made."""
    program, done, _ = _run(root, (Planted(Kind.FSYNC, nth=1, errno=errno.EIO),), "continue")
    assert done == len(program.ops)
    assert (tmp_path / "step-1" / "shard").exists()


def test_a_fault_only_falls_on_its_file(root):
    """A pattern that matches no path of the op plants nothing."""
    program, done, times = _run(root, (Planted(Kind.WRITE, nth=1, file="*.other", errno=errno.EIO),))
    assert done == len(program.ops)
    assert (times.result >= 0).all()


def test_a_stop_cuts_a_delay_short(root):
    """A planted delay of minutes ends within the nap when the sink asks to stop."""
    program = write_program()
    inner = PosixEngine(Setup(root))
    prepared = SlowEngine(inner, (Planted(Kind.WRITE, nth=1, delay_ns=10**12),), "stop").prepare(program, Payload(1, 1))
    sink = KeepTimes(len(program.ops))
    sink.control[STOP] = 1
    assert prepared.run(sink, 0, len(program.ops)) <= 3
    prepared.finish()


def test_errno_names():
    """Names are errno's own; anything else has no number."""
    assert errno_number("ENOSPC") == errno.ENOSPC
    assert errno_number("ENOTHING") == 0
    assert errno_number("errorcode") == 0


def test_the_nth_op_counts_over_all_programs_of_the_phase(root):
    """A rank's phase is several programs: the fault falls on the nth op of them all, once."""
    program = write_program()
    engine = SlowEngine(PosixEngine(Setup(root)), (Planted(Kind.FSYNC, nth=2, errno=errno.EIO),), "stop")
    results = []
    for _ in range(3):
        prepared, sink = engine.prepare(program, Payload(1, 1)), KeepTimes(len(program.ops))
        prepared.run(sink, 0, len(program.ops))
        prepared.finish()
        results.append(int(sink.times.result[program.ops["kind"] == Kind.FSYNC][0]))
    assert results == [0, -errno.EIO, 0]
