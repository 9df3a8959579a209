"""The native engine against the contract and, op by op, against the posix engine."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines import native_engine
from ckptstorm.engines.contract import MISMATCHES_KEPT, Notes, Setup
from ckptstorm.engines.native_engine import NativeEngine, memory_bytes
from ckptstorm.engines.posix import PosixEngine
from ckptstorm.errors import JobError
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import BYTES_MOVED, OPS_DONE, STOP, KeepTimes
from ckptstorm.testing.engines import EngineContract

pytestmark = pytest.mark.skipif(bool(NativeEngine.missing()), reason=NativeEngine.missing() or "compiled")

PAYLOAD = Payload(storm=5, round_index=2)
READ_WRITE = open_length(os.O_RDWR | os.O_CREAT)
QUEUES = ("libaio", "io_uring")
MIB = 1 << 20
_SOURCE = FilePath(__file__).parents[2]


class TestSync(EngineContract):
    """One op after the other."""

    def make(self, setup):
        """A native engine, mode sync."""
        return NativeEngine(setup)


class TestMmap(EngineContract):
    """Data through mappings; everything else as in sync."""

    def make(self, setup):
        """A native engine, mode mmap."""
        return NativeEngine(replace(setup, mode="mmap"))


class TestLibaio(EngineContract):
    """Eight ops in flight by io_submit."""

    def make(self, setup):
        """A native engine, mode libaio."""
        return NativeEngine(replace(setup, mode="libaio", queue_depth=8))


class TestIoUring(EngineContract):
    """Eight ops in flight by io_uring."""

    def make(self, setup):
        """A native engine, mode io_uring."""
        return NativeEngine(replace(setup, mode="io_uring", queue_depth=8))


@pytest.fixture
def root(tmp_path):
    """The storm's directory, open."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def run(engine, program, payload=PAYLOAD):
    """(ops run, results, notes) of a whole program."""
    prepared = engine.prepare(program, payload)
    sink = KeepTimes(len(program.ops))
    done = prepared.run(sink, 0, len(program.ops))
    return done, sink, prepared.finish()


def one_file(*rows, size_bytes=0, flags=0):
    """A program on one file, opened for reading and writing, closed at the end."""
    opened = op(Kind.OPEN, 0, length_bytes=READ_WRITE | flags)
    return Program(table([opened, *rows, op(Kind.CLOSE, 0)]), (Path(0, "f", 1, size_bytes),))


# ---- op by op against posix ----------------------------------------------------------------------------------

_PATHS = (Path(1, ""), Path(1, "a", 1), Path(1, "b", 2), Path(1, "sub"), Path(1, "sub/c", 3))
_FILES = st.sampled_from([1, 2, 4])
_ANY = st.integers(0, 4)
_OFFSET, _LENGTH = st.integers(0, 100_000), st.integers(1, 70_000)
_CREATE = os.O_RDWR | os.O_CREAT
_OPEN_FLAGS = st.sampled_from([_CREATE, _CREATE | os.O_TRUNC, _CREATE | os.O_EXCL, os.O_RDONLY, os.O_WRONLY])


def _on(kinds, file, **fields):
    return st.builds(lambda kind, f, **rest: op(kind, f, **rest), st.sampled_from(kinds), file, **fields)


_OPS = st.one_of(
    _on([Kind.OPEN], _FILES, length_bytes=st.builds(open_length, _OPEN_FLAGS)),
    _on([Kind.WRITE, Kind.READ], _FILES, offset_bytes=_OFFSET, length_bytes=_LENGTH),
    _on([Kind.WRITE, Kind.READ], _FILES, offset_bytes=_OFFSET, length_bytes=_LENGTH),
    _on([Kind.WRITEV], _FILES, offset_bytes=_OFFSET, length_bytes=_LENGTH, flags=st.integers(0, 255)),
    _on([Kind.FSYNC, Kind.FDATASYNC, Kind.CLOSE, Kind.FSTAT, Kind.STATFS, Kind.UNLOCK], _FILES),
    _on([Kind.MKDIR, Kind.RMDIR, Kind.READDIR, Kind.FSYNC_DIR, Kind.STAT, Kind.UNLINK, Kind.UTIME], _ANY),
    _on([Kind.RENAME, Kind.LINK], _ANY, offset_bytes=_ANY),
    _on([Kind.CHMOD], _ANY, length_bytes=st.sampled_from([0o600, 0o755])),
    _on([Kind.TRUNCATE, Kind.SETXATTR], _FILES, length_bytes=st.integers(0, 2000)),
    _on([Kind.FALLOCATE, Kind.FADVISE], _FILES, offset_bytes=_OFFSET, length_bytes=st.integers(0, 5000)),
    _on([Kind.LOCK], _FILES, flags=st.sampled_from([5, 6])),
    _on([Kind.MPI_SYNC, Kind.H5_WRITE], _FILES),
)


def _program(rows):
    """Rows as a program whose outcome does not depend on the order of ops in flight together.

    A file is opened when it is not open. Ops in flight together are of one kind on one file: the fstat
    between others waits for them.
    """
    out, is_open, before = [op(Kind.MKDIR, 0), op(Kind.MKDIR, 3)], set(), None
    for row in rows:
        kind, file = Kind(row[0]), row[3]
        if kind == Kind.OPEN and file in is_open:
            continue
        if kind == Kind.OPEN:
            is_open.add(file)
        elif kind == Kind.CLOSE:
            is_open.discard(file)
        if kind in (Kind.READ, Kind.WRITE, Kind.WRITEV):
            if before not in (None, (kind, file)):
                out.append(op(Kind.FSTAT, file))
            before = (kind, file)
        out.append(row)
    return Program(table(out), _PATHS, ("", "d"))


def _tree(top):
    """Every file's content, every directory's name."""
    return {
        str(path.relative_to(top)): path.read_bytes() if path.is_file() else None for path in FilePath(top).rglob("*")
    }


def _outcome(make, program, on_error):
    """All that an engine leaves behind, but the times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as top:
        fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        try:
            done, sink, notes = run(make(Setup(fd, on_error=on_error)), program)
        finally:
            os.close(fd)
        told = replace(notes, generate_wait_ns=0, verify_wait_ns=0)
        return done, sink.times.result.tolist(), sink.control[: BYTES_MOVED + 1].tolist(), told, _tree(top)


@pytest.mark.io
@pytest.mark.parametrize(("mode", "depth"), [("sync", 1), ("libaio", 4), ("io_uring", 4), ("io_uring", 64)])
@given(rows=st.lists(_OPS, max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_program_ends_as_with_posix(mode, depth, rows):
    """Results, counters, mismatches and file contents are those of the reference engine, for random programs."""
    program = _program(rows)
    expected = _outcome(PosixEngine, program, "continue")
    found = _outcome(lambda setup: NativeEngine(replace(setup, mode=mode, queue_depth=depth)), program, "continue")
    assert expected == found


@pytest.mark.io
@given(rows=st.lists(_OPS, max_size=20))
@settings(max_examples=60, deadline=None)
def test_an_error_ends_any_program_where_posix_does(rows):
    """Under on_error = "stop" the native engine in sync mode runs the very ops that posix runs."""
    program = _program(rows)
    assert _outcome(PosixEngine, program, "stop") == _outcome(NativeEngine, program, "stop")


# ---- ops that posix does not have ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "mmap", "io_uring"])
def test_mapped_reads_are_verified_and_short_at_the_end(root, mode):
    """mmap_read answers like read, at any alignment, and its bytes are compared; msync answers 0."""
    program = one_file(
        op(Kind.WRITE, 0, 0, 100_000),
        op(Kind.MMAP_READ, 0, 0, 100_000),
        op(Kind.MMAP_READ, 0, 5001, 4097),
        op(Kind.MMAP_READ, 0, 99_990, 100),
        op(Kind.MMAP_READ, 0, 200_000, 100),
        op(Kind.MSYNC, 0),
        op(Kind.MSYNC, 0, 4096, 4096),
    )
    done, sink, notes = run(NativeEngine(Setup(root, mode=mode)), program)
    assert done == len(program.ops)
    assert sink.times.result[1:-1].tolist() == [100_000, 100_000, 4097, 10, 0, 0, 0]
    assert (notes.verified_bytes, notes.mismatch_count) == (104_107, 0)


def test_a_mapping_lasts_until_the_close_and_follows_a_growing_file(root):
    """A read beyond what was mapped sees what has been written since; after a close nothing is mapped."""

    def mapped_files():
        with open("/proc/self/maps") as maps:
            return sum(line.rstrip().endswith("/f") for line in maps)

    program = one_file(
        op(Kind.WRITE, 0, 0, 5000),
        op(Kind.MMAP_READ, 0, 0, 9000),
        op(Kind.WRITE, 0, 5000, 5000),
        op(Kind.MMAP_READ, 0, 4000, 6000),
    )
    prepared = NativeEngine(Setup(root)).prepare(program, PAYLOAD)
    sink = KeepTimes(len(program.ops))
    prepared.run(sink, 0, 5)
    assert mapped_files() == 1
    prepared.run(sink, 5, 6)
    assert mapped_files() == 0
    assert sink.times.result.tolist() == [0, 5000, 5000, 5000, 6000, 0]
    assert prepared.finish().mismatch_count == 0


def test_copy_moves_bytes_between_two_open_files(root, tmp_path):
    """copy is copy_file_range from the start of `file` to the start of the path that the offset names."""
    rows = [
        op(Kind.OPEN, 0, length_bytes=READ_WRITE),
        op(Kind.OPEN, 1, length_bytes=READ_WRITE),
        op(Kind.WRITE, 0, 0, 9000),
        op(Kind.COPY, 0, 1, 8000),
    ]
    _, sink, _ = run(NativeEngine(Setup(root)), Program(table(rows), (Path(0, "from"), Path(0, "to"))))
    assert sink.times.result.tolist() == [0, 0, 9000, 8000]
    assert (tmp_path / "to").read_bytes() == (tmp_path / "from").read_bytes()[:8000]


def test_an_open_file_lock_keeps_others_out(root, tmp_path):
    """flags 0x12 takes an OFD lock of the range: a second description is refused it while the first is open."""
    prepared = NativeEngine(Setup(root)).prepare(one_file(op(Kind.LOCK, 0, 100, 50, flags=0x12)), PAYLOAD)
    sink = KeepTimes(3)
    assert prepared.run(sink, 0, 2) == 2
    assert sink.times.result[1] == 0
    with open(tmp_path / "f", "r+b") as other:
        inside = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 120, 1, 0)
        with pytest.raises(BlockingIOError):
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, inside)
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 100, 0))
    prepared.finish()


# ---- buffers, O_DIRECT ---------------------------------------------------------------------------------------


def _direct_or_skip(root):
    try:
        os.close(os.open("probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT, dir_fd=root))
    except OSError:
        pytest.skip("this file system has no O_DIRECT")


@pytest.mark.parametrize(("mode", "depth"), [("sync", 1), ("libaio", 8), ("io_uring", 8)])
def test_direct_is_in_force_and_said_so(root, mode, depth):
    """A file that its op opens with O_DIRECT is so: the flag is read back, and the bytes are right."""
    _direct_or_skip(root)
    pieces = range(0, 8 * MIB, 64 << 10)
    engine = NativeEngine(Setup(root, mode=mode, is_direct=True, queue_depth=depth))
    writes = one_file(*(op(Kind.WRITE, 0, at, 64 << 10) for at in pieces), flags=os.O_DIRECT)
    reads = one_file(*(op(Kind.READ, 0, at, 64 << 10) for at in pieces), size_bytes=8 * MIB, flags=os.O_DIRECT)
    for program in (writes, reads):
        done, sink, notes = run(engine, program)
        assert done == len(program.ops)
        assert set(sink.times.result[1:-1].tolist()) == {64 << 10}
        assert (notes.direct_file_count, notes.mismatch_count) == (1, 0)
    assert notes.verified_bytes == 8 * MIB


def test_a_misaligned_direct_op_is_an_error_of_its_own(root):
    """The kernel's EINVAL for one op is that op's result; the others in flight are not touched by it."""
    _direct_or_skip(root)
    rows = [op(Kind.WRITE, 0, k << 12, 4096 if k != 3 else 1000) for k in range(8)]
    for mode in QUEUES:
        setup = Setup(root, mode=mode, is_direct=True, queue_depth=8, on_error="continue")
        _, sink, _ = run(NativeEngine(setup), one_file(*rows, flags=os.O_DIRECT))
        results = sink.times.result.tolist()[1:-1]
        if results[3] == 1000:
            pytest.skip("this file system takes unaligned O_DIRECT")
        assert results == [4096] * 3 + [-errno.EINVAL] + [4096] * 4


def test_memory_does_not_grow_with_the_program():
    """Twice the largest op for each place in the queue; a million small ops take no more than a thousand."""

    def writes(count, length):
        return Program(table([op(Kind.WRITE, 0, 0, length)] * count), (Path(0, "f"),))

    assert memory_bytes(writes(10, MIB), 1) == 2 * MIB
    assert memory_bytes(writes(10, MIB), 8) == 16 * MIB
    assert memory_bytes(writes(1000, 4096), 1) == memory_bytes(writes(100_000, 4096), 1) == 512 << 10
    assert memory_bytes(Program(table([op(Kind.STAT, 0)]), (Path(0, "f"),)), 8) == 0


def test_without_a_payload_bytes_are_not_checked(root, tmp_path):
    """No payload: the same incompressible bytes again and again, nothing verified; for comparisons with other tools."""
    program = one_file(op(Kind.WRITE, 0, 0, 8192), op(Kind.READ, 0, 0, 8192))
    for mode, depth in (("sync", 1), ("io_uring", 4), ("libaio", 4)):
        _, sink, notes = run(NativeEngine(Setup(root, mode=mode, queue_depth=depth)), program, None)
        assert sink.times.result.tolist() == [0, 8192, 8192, 0]
        assert notes == Notes()
    assert len(set((tmp_path / "f").read_bytes())) == 256


# ---- many ops, many mismatches, threads ----------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "depth"), [("sync", 1), ("libaio", 32), ("io_uring", 32)])
def test_a_long_program_keeps_its_order(root, mode, depth):
    """Far more ops than a chunk or a batch holds: each has its own times, counters add up, bytes are verified."""
    count = 40_000
    rows = [op(kind, 0, at * 512, 512) for kind in (Kind.WRITE, Kind.READ) for at in range(count)]
    rows.insert(count, op(Kind.FSTAT, 0))
    program = one_file(*rows, size_bytes=count * 512)
    done, sink, notes = run(NativeEngine(Setup(root, mode=mode, queue_depth=depth)), program)
    assert done == len(program.ops)
    assert sink.times.result.tolist() == program.expected_bytes().tolist()
    assert (sink.times.start_ns > 0).all() and (sink.times.end_ns >= sink.times.start_ns).all()
    assert sink.control[OPS_DONE] == done and sink.control[BYTES_MOVED] == 2 * count * 512
    assert (notes.verified_bytes, notes.mismatch_count) == (count * 512, 0)
    barrier = count + 1
    assert sink.times.start_ns[barrier] >= sink.times.end_ns[:barrier].max()
    assert sink.times.start_ns[barrier + 1 :].min() >= sink.times.end_ns[barrier]


def test_all_mismatches_are_counted_and_the_first_described(root, tmp_path):
    """Twenty bad reads: twenty counted, eight told, in program order."""
    (tmp_path / "f").write_bytes(bytes(20 * 4096))
    program = one_file(*(op(Kind.READ, 0, at * 4096, 4096) for at in range(20)), size_bytes=20 * 4096)
    *_, notes = run(NativeEngine(Setup(root)), program)
    assert notes.mismatch_count == 20
    assert [seen.offset_bytes // 4096 for seen in notes.mismatches] == list(range(MISMATCHES_KEPT))
    assert "holds zeros" in notes.mismatches[0].sentence()


def test_a_read_waits_for_the_write_that_it_overlaps(root):
    """Write and read of one range, over and over, with 32 in flight: every read finds what was written before it."""
    rows = [op(kind, 0, at % 7 * 1000, 3000) for at in range(500) for kind in (Kind.WRITE, Kind.READ)]
    for mode in QUEUES:
        _, sink, notes = run(NativeEngine(Setup(root, mode=mode, queue_depth=32)), one_file(*rows))
        assert set(sink.times.result[1:-1].tolist()) == {3000}
        assert notes.mismatch_count == 0


def test_the_gil_is_free_while_it_runs_and_a_stop_is_obeyed(root):
    """The main thread sees the counters move, asks to stop, and the program ends within 100 ms."""
    for mode, depth in (("sync", 1), ("libaio", 16), ("io_uring", 16)):
        prepared = NativeEngine(Setup(root, mode=mode, queue_depth=depth)).prepare(
            one_file(*[op(Kind.WRITE, 0, 0, 4 * MIB)] * 20_000), PAYLOAD
        )
        sink = KeepTimes(20_002)
        worker = threading.Thread(target=prepared.run, args=(sink, 0, 20_002))
        worker.start()
        until = monotonic_ns() + 20_000_000_000
        while sink.control[OPS_DONE] < 20 and monotonic_ns() < until:
            time.sleep(0.001)
        assert sink.control[BYTES_MOVED] > 0
        sink.control[STOP] = 1
        asked = monotonic_ns()
        worker.join()
        assert sink.times.end_ns.max() - asked < 100_000_000
        assert 20 <= sink.control[OPS_DONE] < 20_000
        assert int((sink.times.end_ns > 0).sum()) == sink.control[OPS_DONE]
        prepared.finish()


def test_an_op_that_never_ends_is_left_behind(root, tmp_path):
    """A read of an empty pipe hangs for ever: asked to stop, the ring's program ends without it, as an op not run."""
    os.mkfifo(tmp_path / "f")
    program = Program(table([op(Kind.OPEN, 0, length_bytes=READ_WRITE), op(Kind.READ, 0, 0, 100)]), (Path(0, "f"),))
    prepared = NativeEngine(Setup(root, mode="io_uring", queue_depth=2)).prepare(program, PAYLOAD)
    sink = KeepTimes(2)
    worker = threading.Thread(target=prepared.run, args=(sink, 0, 2))
    worker.start()
    time.sleep(0.05)
    assert worker.is_alive() and sink.control[OPS_DONE] == 1
    sink.control[STOP] = 1
    asked = monotonic_ns()
    worker.join()
    assert monotonic_ns() - asked < 400_000_000  # 100 ms, and room for a busy machine
    assert (sink.times.start_ns[1], sink.times.end_ns[1], sink.times.result[1]) == (0, 0, 0)
    assert prepared.run(sink, 1, 2) == 1
    prepared.finish()


def test_a_close_lets_go_of_the_file(root, tmp_path):
    """A ring knows open files by a table of its own: after a close, nothing holds the file (or its lock) any more."""
    rows = [op(Kind.LOCK, 0, flags=2), op(Kind.WRITE, 0, 0, 4096), op(Kind.WRITE, 0, 4096, 4096)]
    prepared = NativeEngine(Setup(root, mode="io_uring", queue_depth=2)).prepare(one_file(*rows), PAYLOAD)
    with open(tmp_path / "f", "wb") as other:
        prepared.run(KeepTimes(5), 0, 4)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        prepared.run(KeepTimes(5), 4, 5)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    prepared.finish()


@pytest.mark.parametrize(("mode", "depth"), [("sync", 1), ("libaio", 4), ("io_uring", 4)])
def test_a_ring_repeats_until_its_deadline(root, mode, depth):
    """A time-based load runs its ops lap after lap; no op begins after the deadline; bytes are verified all along."""

    class Last:
        def __init__(self):
            self.control = np.zeros(8, dtype=np.int64)
            self.count = self.latest = 0

        def store(self, first, start_ns, end_ns, result):
            assert first == self.count
            self.count += len(start_ns)
            self.latest = max(self.latest, int(start_ns.max()))

    program = one_file(
        *(op(kind, 0, at * 999, 999) for kind in (Kind.WRITE, Kind.FSTAT, Kind.READ) for at in range(50))
    )
    prepared = NativeEngine(Setup(root, mode=mode, queue_depth=depth)).prepare(program, PAYLOAD)
    assert prepared.run(KeepTimes(1), 0, 1) == 1
    sink, deadline = Last(), monotonic_ns() + 100_000_000
    count = prepared.repeat(sink, 1, 151, deadline)
    assert count == sink.count > 300
    assert sink.latest <= deadline + 20_000_000
    notes = prepared.finish()
    assert notes.mismatch_count == 0 and notes.verified_bytes > 999 * 50


def test_spans_may_jump(root):
    """A span that does not follow the last one starts its payload anew, and what was read before is still verified."""
    program = one_file(*(op(Kind.WRITE, 0, at * 5000, 5000) for at in range(60)))
    prepared = NativeEngine(Setup(root)).prepare(program, PAYLOAD)
    sink = KeepTimes(len(program.ops))
    prepared.run(sink, 0, 10)
    prepared.run(sink, 40, 61)
    prepared.run(sink, 10, 40)
    prepared.finish()
    *_, notes = run(NativeEngine(Setup(root)), one_file(op(Kind.READ, 0, 0, 300_000), size_bytes=300_000))
    assert (notes.verified_bytes, notes.mismatch_count) == (300_000, 0)


@pytest.mark.parametrize(("mode", "depth"), [("sync", 1), ("libaio", 4), ("io_uring", 4)])
def test_spans_may_run_on_several_threads(root, mode, depth):
    """A ring belongs to the thread that submits to it; the next span's thread gets one of its own."""
    program = one_file(*(op(Kind.WRITE, 0, at * 5000, 5000) for at in range(60)))
    prepared = NativeEngine(Setup(root, mode=mode, queue_depth=depth)).prepare(program, PAYLOAD)
    sink = KeepTimes(len(program.ops))
    for first in range(0, 60, 20):
        worker = threading.Thread(target=prepared.run, args=(sink, first, first + 20))
        worker.start()
        worker.join()
    prepared.run(sink, 60, 62)
    prepared.finish()
    assert program.expected_bytes().tolist() == sink.times.result.tolist()


def test_waits_for_payload_are_told(root):
    """One huge write cannot be made before it is asked for by a jump: the wait is in the notes."""
    program = one_file(op(Kind.WRITE, 0, 0, 64 * MIB), op(Kind.WRITE, 0, 64 * MIB, 64 * MIB), op(Kind.READ, 0, 0, MIB))
    prepared = NativeEngine(Setup(root, on_error="continue")).prepare(program, PAYLOAD)
    prepared.run(KeepTimes(len(program.ops)), 2, 3)
    assert prepared.finish().generate_wait_ns > 0


# ---- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_", "says", "hint"),
    [
        ({"mode": "aio"}, 'mode = "aio"', "sync, libaio, io_uring, mmap"),
        ({"queue_depth": 8}, 'queue_depth = 8: mode = "sync" has one op in flight', "io_uring"),
        ({"mode": "io_uring", "queue_depth": 0}, "queue_depth = 0", "1 to 4096"),
        ({"mode": "io_uring", "queue_depth": 5000}, "queue_depth = 5000", "1 to 4096"),
        ({"mode": "mmap", "is_direct": True}, "page cache", "direct = false"),
    ],
)
def test_what_cannot_be_honoured_is_refused(settings_, says, hint):
    """Each impossible setting is named, with what is allowed instead."""
    with pytest.raises(JobError) as refused:
        NativeEngine(Setup(0, **settings_))
    assert says in str(refused.value) and hint in refused.value.hint


@pytest.mark.parametrize(
    ("number", "mode", "says", "hint"),
    [
        (errno.EPERM, "io_uring", "does not let us have a ring (EPERM)", "/proc/sys/kernel/io_uring_disabled"),
        (errno.ENOMEM, "io_uring", "(ENOMEM)", "ulimit -l"),
        (errno.ENOSYS, "io_uring", "this kernel has no io_uring", '"libaio"'),
        (errno.EAGAIN, "libaio", "no AIO context (EAGAIN)", "aio-max-nr"),
    ],
)
def test_a_kernel_without_the_mode_is_refused(monkeypatch, number, mode, says, hint):
    """When the kernel forbids a mode, the refusal says how to find out and what to use instead."""
    from ckptstorm.engines import native

    monkeypatch.setattr(native, "probe", lambda mode: number)
    with pytest.raises(JobError) as refused:
        NativeEngine(Setup(0, mode=mode))
    assert says in str(refused.value) and hint in refused.value.hint


def test_a_missing_module_is_told(monkeypatch):
    """Without the compiled module the engine says what to do, and "auto" takes posix."""
    monkeypatch.setattr(native_engine, "_MODULE", "ckptstorm.engines.absent")
    assert "C compiler" in NativeEngine.missing()
    with pytest.raises(JobError, match="not compiled") as refused:
        NativeEngine(Setup(0))
    assert "posix" in refused.value.hint


def test_a_program_of_another_version_is_refused(root):
    """A compiled engine must not guess what another version's numbers mean."""
    with pytest.raises(JobError, match="version 99"):
        NativeEngine(Setup(root)).prepare(replace(one_file(), version=99), PAYLOAD)


@pytest.mark.parametrize("row", [op(Kind.STAT, 1), op(Kind.RENAME, 0, 1), op(Kind.COPY, 0, 1 << 40)])
def test_a_path_that_is_not_there_is_refused(root, row):
    """An index beyond the paths would be memory that is not ours."""
    with pytest.raises(JobError, match="the program has 1"):
        NativeEngine(Setup(root)).prepare(Program(table([row]), (Path(0, "f"),)), PAYLOAD)


def test_seccomp_shows_as_a_refusal(tmp_path):
    """A real EPERM from io_uring_setup (strace injects it) ends in the refusal, not in a crash."""
    strace = subprocess.run(
        ["sh", "-c", "command -v strace"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not strace:
        pytest.skip("strace is not installed")
    code = "from ckptstorm.engines.native_engine import *; print(refusal(Setup(0, mode='io_uring'))[0])"
    command = [
        strace,
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=io_uring_setup:error=EPERM",
        sys.executable,
        "-P",
        "-c",
        code,
    ]
    out = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    if "ptrace" in out.stderr.lower():
        pytest.skip("strace may not trace here")
    assert "does not let us have a ring (EPERM)" in out.stdout


# ---- installing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compiler", "compiled"), [("", ["_kernels", "engines/native"]), ("/bin/false", [])], ids=["compiler", "none"]
)
def test_a_wheel_is_built_with_a_compiler_or_without(tmp_path, compiler, compiled):
    """With a C compiler the wheel holds both compiled modules beside the .py files; without, it holds the rest."""
    pytest.importorskip("mesonpy")
    if not (_SOURCE / "meson.build").exists():
        pytest.skip("these tests stand outside the source tree")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(tmp_path)]
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path} | ({"CC": compiler} if compiler else {})
    subprocess.run([*command, str(_SOURCE)], env=environment, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert sorted(name.split(".")[0] for name in names if name.endswith(".so")) == [f"ckptstorm/{m}" for m in compiled]
    assert "ckptstorm/engines/native_engine.py" in names
    assert not [name for name in names if name.endswith((".c", ".h", ".pyx", "meson.build"))]
