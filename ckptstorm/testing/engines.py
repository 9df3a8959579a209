"""The contract suite of engines: subclass `EngineContract`, say how to make one, inherit the tests.

class TestMine(EngineContract):
    def make(self, setup): return MyEngine(setup)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import cast

import numpy as np
import pytest

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines.contract import Engine, Notes, Repeating, Setup
from ckptstorm.measure.folding import FoldTimes
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import BYTES_MOVED, NEVER_NS, OPS_DONE, STOP, KeepTimes, OpTimes

_PAYLOAD = Payload(storm=77, round_index=1)
_WRITE = open_length(os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
_READ = open_length(os.O_RDONLY)
#: Odd on purpose: unaligned, across pages, one byte, and larger than any internal buffer's page.
_SIZES = (704, 50_001, 873, 1, 4096, 1 << 20)


def write_program(sizes: tuple[int, ...] = _SIZES) -> Program:
    """mkdir, open, one write a size, fsync, close, and a rename as a commit."""
    rows = [op(Kind.MKDIR, 0, length_bytes=0o777, expect=errno.EEXIST), op(Kind.OPEN, 1, length_bytes=_WRITE)]
    offset = 0
    for size in sizes:
        rows.append(op(Kind.WRITE, 1, offset, size))
        offset += size
    rows += [op(Kind.FSYNC, 1), op(Kind.CLOSE, 1), op(Kind.RENAME, 1, 2)]
    paths = (Path(1, ""), Path(1, "shard.tmp", 3, offset, "shard"), Path(1, "shard", 3, offset))
    return Program(table(rows), paths, ("", "step-1"))


def read_program(sizes: tuple[int, ...] = _SIZES) -> Program:
    """Reads the same pieces back, and asks once beyond the end."""
    total = sum(sizes)
    rows = [op(Kind.STAT, 1, expect=errno.ENOENT), op(Kind.OPEN, 0, length_bytes=_READ)]
    offset = 0
    for size in sizes:
        rows.append(op(Kind.READ, 0, offset, size))
        offset += size
    rows += [op(Kind.READ, 0, total - 10, 100), op(Kind.CLOSE, 0)]
    return Program(table(rows), (Path(1, "shard", 3, total), Path(1, "absent")), ("", "step-1"))


class EngineContract:
    """What every engine must do; `moves` is False for an engine that only measures the instrument."""

    moves = True
    #: False for an engine that runs checkpoints only: loads with a time limit want rings.
    repeats = True

    def make(self, setup: Setup) -> Engine:
        """The engine under test."""
        raise NotImplementedError

    @pytest.fixture
    def root(self, tmp_path: FilePath) -> Iterator[int]:
        """The storm's directory, open."""
        fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        yield fd
        os.close(fd)

    def stored(self, file: FilePath) -> tuple[int, int]:
        """(where the payload starts, how much of it there is) in a file that the engine wrote."""
        return 0, file.stat().st_size

    def run_all(self, setup: Setup, program: Program) -> tuple[int, OpTimes, Notes, KeepTimes]:
        """Prepare, run whole, finish."""
        prepared = self.make(setup).prepare(program, _PAYLOAD)
        sink = KeepTimes(len(program.ops))
        done = prepared.run(sink, 0, len(program.ops))
        return done, sink.times, prepared.finish(), sink

    def test_an_open_that_is_never_closed_leaves_nothing_open(self, root: int) -> None:
        """A path opened again and again, and left open: after `finish` the process holds no descriptor more."""
        rows = [op(Kind.MKDIR, 0, length_bytes=0o777)] + [op(Kind.OPEN, 1, length_bytes=_WRITE)] * 5
        program = Program(table(rows), (Path(1, ""), Path(1, "again")), ("", "step-1"))
        before = os.listdir("/proc/self/fd")
        done, *_ = self.run_all(Setup(root), program)
        assert (len(before), len(rows)) == (len(os.listdir("/proc/self/fd")), done)

    def test_every_op_has_its_time_and_its_bytes(self, root: int) -> None:
        """Results are the bytes planned, times are ordered, the counters agree with the table."""
        program = write_program()
        done, times, _, sink = self.run_all(Setup(root), program)
        assert done == len(program.ops)
        assert times.result.tolist() == program.expected_bytes().tolist()
        assert (times.start_ns > 0).all() and (times.end_ns >= times.start_ns).all()
        assert sink.control[OPS_DONE] == len(program.ops)
        assert sink.control[BYTES_MOVED] == sum(_SIZES)

    def test_written_bytes_are_the_payload(self, root: int, tmp_path: FilePath) -> None:
        """The file holds the image that the payload defines, byte for byte, under its final name."""
        if not self.moves:
            pytest.skip("moves nothing")
        self.run_all(Setup(root), write_program())
        expected = np.empty(sum(_SIZES), dtype=np.uint8)
        _PAYLOAD.image(Path(1, "shard", 3)).fill(expected, 0)
        start, size = self.stored(tmp_path / "step-1" / "shard")
        assert (tmp_path / "step-1" / "shard").read_bytes()[start : start + size] == expected.tobytes()
        assert not (tmp_path / "step-1" / "shard.tmp").exists()

    def test_reading_back_verifies_every_byte(self, root: int) -> None:
        """A good file has no mismatch; a read beyond the end is short by plan; an expected errno is a result."""
        if not self.moves:
            pytest.skip("moves nothing")
        self.run_all(Setup(root), write_program())
        done, times, notes, _ = self.run_all(Setup(root), read_program())
        assert done == len(times.result)
        assert times.result[0] == -errno.ENOENT
        assert times.result[-2] == 10
        assert notes.mismatch_count == 0
        assert notes.verified_bytes == sum(_SIZES) + 10

    @pytest.mark.parametrize("at", [0, 703, 704, 39, 40, 50_000, 55_674, (1 << 20) + 55_000])
    def test_one_flipped_bit_is_named(self, root: int, tmp_path: FilePath, at: int) -> None:
        """Wherever a bit flips, the mismatch names file, offset, expected and found byte."""
        if not self.moves:
            pytest.skip("moves nothing")
        self.run_all(Setup(root), write_program())
        file = tmp_path / "step-1" / "shard"
        content = bytearray(file.read_bytes())
        start = self.stored(file)[0]
        content[start + at] ^= 0x10
        file.write_bytes(content)
        *_, notes, _ = self.run_all(Setup(root), read_program())
        assert notes.mismatch_count == 1
        seen = notes.mismatches[0]
        assert (seen.file, seen.offset_bytes, seen.found, seen.expected) == (
            "step-1/shard",
            at,
            content[start + at],
            content[start + at] ^ 0x10,
        )

    def test_an_error_is_a_result_and_ends_the_program(self, root: int) -> None:
        """An open that fails ends a program under on_error = "stop", with minus the errno as its result."""
        if not self.moves:
            pytest.skip("moves nothing")
        done, times, *_ = self.run_all(Setup(root), read_program())
        assert done == 2
        assert times.result[1] == -errno.ENOENT
        assert times.end_ns[2] == 0

    def test_continue_goes_on_after_an_error(self, root: int) -> None:
        """Under on_error = "continue" every later op on the file that is not open answers EBADF."""
        if not self.moves:
            pytest.skip("moves nothing")
        done, times, *_ = self.run_all(Setup(root, on_error="continue"), read_program())
        assert done == len(times.result)
        assert set(times.result[2:].tolist()) == {-errno.EBADF}

    def test_a_stop_is_obeyed(self, root: int) -> None:
        """A sink that asks to stop before the first op gets no op."""
        program = write_program()
        prepared = self.make(Setup(root)).prepare(program, _PAYLOAD)
        sink = KeepTimes(len(program.ops))
        sink.control[STOP] = 1
        assert prepared.run(sink, 0, len(program.ops)) == 0
        prepared.finish()

    def test_spans_run_like_the_whole(self, root: int, tmp_path: FilePath) -> None:
        """A program run in spans leaves the same file: open files survive from span to span."""
        program = write_program()
        prepared = self.make(Setup(root)).prepare(program, _PAYLOAD)
        sink = KeepTimes(len(program.ops))
        for first in range(len(program.ops)):
            assert prepared.run(sink, first, first + 1) == first + 1
        prepared.finish()
        assert sink.times.result.tolist() == program.expected_bytes().tolist()
        if self.moves:
            assert self.stored(tmp_path / "step-1" / "shard")[1] == sum(_SIZES)

    def test_a_share_is_verified_in_part(self, root: int) -> None:
        """verify_share 0 compares nothing, and says so."""
        if not self.moves:
            pytest.skip("moves nothing")
        self.run_all(Setup(root), write_program())
        *_, notes, _ = self.run_all(Setup(root, verify_share=0.0), read_program())
        assert notes.verified_bytes == 0

    def test_a_ring_ends_at_its_limit_and_takes_new_offsets_each_lap(self, root: int, tmp_path: FilePath) -> None:
        """Of 10 writes asked in laps of 4 the third lap is cut short, and each lap goes where the refill says."""
        if not self.repeats:
            pytest.skip("runs no loads")
        rows = [op(Kind.OPEN, 0, length_bytes=_WRITE), *(op(Kind.WRITE, 0, at * 4096, 4096) for at in range(4))]
        program = Program(table([*rows, op(Kind.CLOSE, 0)]), (Path(0, "ring", 0, 64 * 4096),))
        laps: list[int] = []

        def refill() -> None:
            laps.append(len(laps) + 1)
            program.ops["offset_bytes"][1:5] = (np.arange(4) + 4 * len(laps)) * 4096

        prepared = cast(Repeating, self.make(Setup(root)).prepare(program, _PAYLOAD))
        prepared.run(KeepTimes(6), 0, 1)
        sink = KeepTimes(12)
        assert prepared.repeat(sink, 1, 5, NEVER_NS, 10, refill) == 10
        prepared.run(KeepTimes(6), 5, 6)
        prepared.finish()
        assert laps == [1, 2]
        assert (sink.times.result[:10] == 4096).all() and (sink.times.end_ns[10:] == 0).all()
        if self.moves:
            expected = np.empty(10 * 4096, dtype=np.uint8)
            _PAYLOAD.image(program.paths[0]).fill(expected, 0)
            assert (tmp_path / "ring").read_bytes() == expected.tobytes()

    def test_a_ring_ends_at_its_deadline(self, root: int) -> None:
        """No op begins long after it (one chunk of a slow instrument), and the ops before it are whole."""
        if not self.repeats:
            pytest.skip("runs no loads")
        rows = [op(Kind.OPEN, 0, length_bytes=_WRITE), *(op(Kind.WRITE, 0, at * 4096, 4096) for at in range(64))]
        program = Program(table([*rows, op(Kind.CLOSE, 0)]), (Path(0, "ring", 0, 64 * 4096),))
        prepared = cast(Repeating, self.make(Setup(root)).prepare(program, _PAYLOAD))
        prepared.run(KeepTimes(1), 0, 1)
        sink, deadline_ns = FoldTimes(program, 1, 65), monotonic_ns() + 50_000_000
        count = prepared.repeat(sink, 1, 65, deadline_ns)
        assert count == int(sink.latency().counts.sum()) > 64
        assert sink.first_start_ns < deadline_ns
        prepared.finish()
