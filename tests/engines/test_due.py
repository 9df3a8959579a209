"""Open-loop programs: an op starts when it is due, and a late one does not put off those after it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines.contract import Setup
from ckptstorm.engines.native_engine import NativeEngine
from ckptstorm.errors import JobError
from ckptstorm.measure import latency
from ckptstorm.measure.histogram import bucket_index
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import STOP, KeepTimes, OpTimes

pytestmark = pytest.mark.skipif(bool(NativeEngine.missing()), reason=NativeEngine.missing() or "compiled")

MS = 1_000_000
_MODES = ("sync", "libaio", "io_uring")
_OPEN = open_length(os.O_RDWR | os.O_CREAT)


@pytest.fixture
def root(tmp_path):
    """The storm's directory, open; an empty file in it."""
    (tmp_path / "f").write_bytes(bytes(1 << 20))
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def _reads(count, step_ns, kind=Kind.READ):
    """An open, then `count` ops of 4 KiB, one every `step_ns`; the ring is all but the open."""
    rows = [op(Kind.OPEN, 0, length_bytes=_OPEN), *(op(kind, 0, index % 256 * 4096, 4096) for index in range(count))]
    due = np.arange(count + 1, dtype=np.int64) * step_ns
    return Program(table(rows), (Path(0, "f", 0, 1 << 20),), due_ns=due)


def _prepared(root, program, mode="sync", payload=None):
    depth = 1 if mode == "sync" else 8
    return NativeEngine(Setup(root, verify_share=0.0, mode=mode, queue_depth=depth)).prepare(program, payload)


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("payload", [None, Payload(1, 1)])
def test_no_op_starts_before_it_is_due(root, mode, payload):
    """Every start is at or after its due instant, and nothing drifts."""
    program = _reads(100, 2 * MS)
    prepared, sink = _prepared(root, program, mode, payload), KeepTimes(101)
    origin_ns = monotonic_ns() + 10 * MS
    prepared.schedule(origin_ns)
    assert prepared.run(sink, 0, 101) == 101
    prepared.finish()
    late_ns = sink.times.start_ns - origin_ns - program.due_ns
    assert (late_ns >= 0).all()
    assert (sink.times.result[1:] == 4096).all()


@pytest.mark.parametrize("mode", _MODES)
def test_laps_go_on_with_the_schedule(root, mode):
    """Lap n of a ring begins n laps after the first; at the deadline it ends, and no op began after it."""
    program = _reads(10, 5 * MS)
    prepared, sink = _prepared(root, program, mode), KeepTimes(1000)
    prepared.run(sink, 0, 1)
    origin_ns = monotonic_ns()
    prepared.schedule(origin_ns, lap_ns=50 * MS)
    count = prepared.repeat(sink, 1, 11, origin_ns + 233 * MS)
    prepared.finish()
    due_ns = origin_ns + 5 * MS * (1 + np.arange(count))
    assert count == 46  # due at 5, 10 … 230 ms
    assert (sink.times.start_ns[:count] >= due_ns).all()
    assert int(sink.times.start_ns[:count].max()) < origin_ns + 500 * MS


def test_a_slow_op_makes_those_after_it_late_from_when_they_were_due(root, tmp_path):
    """A lock that somebody holds for 300 ms: the ops due meanwhile follow at once, and their latency counts from due.

    Closed loop, one op would have been slow. Open loop, the whole 300 ms of users are.
    """
    rows = [op(Kind.OPEN, 0, length_bytes=_OPEN)]
    rows += [
        op(kind, 0, 0, 0, flags=2 if kind == Kind.LOCK else 0) for _ in range(50) for kind in (Kind.LOCK, Kind.UNLOCK)
    ]
    due = np.concatenate([[0], np.repeat(np.arange(50) * 10 * MS, 2)]).astype(np.int64)
    program = Program(table(rows), (Path(0, "f"),), due_ns=due)
    holder = os.open(tmp_path / "f", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    prepared, sink = _prepared(root, program), KeepTimes(101)
    origin_ns = monotonic_ns()
    prepared.schedule(origin_ns)
    thread = threading.Thread(target=prepared.run, args=(sink, 0, 101))
    thread.start()
    time.sleep(0.3)
    os.close(holder)
    thread.join(20)
    prepared.finish()
    held_ns = int(sink.times.end_ns[1]) - origin_ns
    counts, most_ns = latency.select(latency.observe([(program, sink.times)], origin_ns), (Kind.LOCK,))
    assert most_ns == held_ns >= 250 * MS
    slow = int(counts[bucket_index(np.array([50 * MS], dtype=np.int64))[0] :].sum())
    assert slow >= 20  # those due at 0, 10 … 200 ms and more
    assert int((sink.times.end_ns - sink.times.start_ns > 50 * MS).sum()) == 1


@pytest.mark.parametrize("mode", _MODES)
def test_a_stop_is_obeyed_while_waiting(root, mode):
    """An op that is due in an hour does not hold up the end."""
    program = _reads(2, 3600 * 1000 * MS)
    prepared, sink = _prepared(root, program, mode), KeepTimes(3)
    prepared.schedule(monotonic_ns())
    thread = threading.Thread(target=prepared.run, args=(sink, 0, 3))
    thread.start()
    time.sleep(0.1)
    sink.control[STOP] = 1
    thread.join(5)
    assert not thread.is_alive()
    prepared.finish()
    assert int(sink.times.end_ns[0]) > 0
    assert int(sink.times.end_ns[1]) == 0


def test_without_a_schedule_ops_follow_at_once(root):
    """`due_ns` alone delays nothing: somebody must say from when it counts."""
    program = _reads(5, 3600 * 1000 * MS)
    prepared, sink = _prepared(root, program), KeepTimes(6)
    assert prepared.run(sink, 0, 6) == 6
    prepared.finish()


def test_a_schedule_of_another_length_is_refused(root):
    """C would read beyond it."""
    program = replace(_reads(5, MS), due_ns=np.zeros(3, dtype=np.int64))
    with pytest.raises(JobError, match="3 due times for 6 ops"):
        _prepared(root, program)


def test_latency_counts_from_when_the_op_was_due():
    """What `observe` tells of kept times: an op that began 5 ms late and took 1 ms took 6 ms."""
    program = Program(table([op(Kind.STAT, 0)] * 2), (Path(0, "f"),), due_ns=np.array([0, 10 * MS]))
    times = OpTimes(*(np.array(each, dtype=np.int64) for each in ([100 * MS, 115 * MS], [101 * MS, 116 * MS], [0, 0])))
    assert latency.observe([(program, times)], 100 * MS).max_ns.tolist() == [6 * MS]
