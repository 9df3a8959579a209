"""From a layout's steps to op tables: the one place that knows block sizes, buffers and kernel limits."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.formats import ofstream
from ckptstorm.layouts.formats.python_io import KERNEL_LIMIT_BYTES, Reader, write_calls
from ckptstorm.layouts.formats.rust_io import BUFFER_BYTES, buffered
from ckptstorm.program import OP_DTYPE, SYNCS, Kind, Ops, Path, Program, open_length
from ckptstorm.steps import Call, Draft, Facts, ReadFile, ReadRecord, Record, WriteFile, WriterApi

Int64s = NDArray[np.int64]

#: What `Program.in_step` replaces: (the storm's root, the step directory).
DIRECTORIES = ("", "step-0")

_Row = tuple[int, int, int, int, int, int]
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY


def lower(draft: Draft, facts: Facts) -> Program:
    """The op table of one thread.

    Args:
        draft: what the framework does, in order.
        facts: of the target and of [io].

    Returns:
        A program whose directories are placeholders until `Program.in_step`.
    """
    table = _Table(facts)
    for index, item in enumerate(draft):
        if isinstance(item, WriteFile):
            table.write_file(item)
        elif isinstance(item, ReadFile):
            table.read_file(item)
        else:
            # Only a new name asks what comes later; thousands of stats must not copy the draft each.
            table.call(item, draft[index + 1 :] if item.kind in (Kind.RENAME, Kind.LINK) else ())
    return table.program()


def record_writes(record: Record, api: WriterApi, facts: Facts) -> dict[Kind, list[int]]:
    """Lengths of the write ops of one flushed record that starts with an empty buffer."""
    assert record.is_flushed
    lengths = _writes((record,), api, facts)[0]
    if api != "ofstream":
        return {Kind.WRITE: lengths}
    parts = [call[1] for call in _streamed((record,), _largest(facts))]
    both = list(zip(lengths, parts, strict=True))
    return {Kind.WRITE: [length for length, many in both if not many], Kind.WRITEV: [n for n, many in both if many]}


def file_sync(facts: Facts, is_synced: bool) -> Kind | None:  # noqa: FBT001 - the layout's own wish, as data
    """What is called before a written file is closed, when the layout itself syncs it or does not."""
    if facts.durability == "layout":
        return Kind.FSYNC if is_synced else None
    return {"fsync": Kind.FSYNC, "fdatasync": Kind.FDATASYNC}.get(facts.durability)


class _Table:
    """Rows so far, as blocks of arrays, and the paths that they name."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._paths: dict[Path, int] = {}
        self._blocks: list[Ops] = []

    def program(self) -> Program:
        # Told the dtype, NumPy does not look for a common one of 100,000 blocks: a quarter of the time.
        ops = np.concatenate(self._blocks, dtype=OP_DTYPE) if self._blocks else np.empty(0, OP_DTYPE)
        return Program(ops, tuple(self._paths), DIRECTORIES)

    def call(self, call: Call, later: Draft) -> None:
        """A namespace or sync call, as the durability asked for makes it."""
        durability = self._facts.durability
        if call.kind in SYNCS and durability == "none":
            return
        target = self._file(call.target) if call.target is not None else 0
        self._row(call.kind, call.path, target, call.mode or call.length_bytes, call.expect, call.flags)
        if call.kind in (Kind.RENAME, Kind.LINK) and durability not in ("layout", "none"):
            assert call.target is not None
            directory = Path(call.target.directory_index, os.path.dirname(call.target.name))
            # A new name is durable only when its directory is.
            if not any(isinstance(item, Call) and item.kind is Kind.FSYNC_DIR for item in later):
                self._row(Kind.FSYNC_DIR, directory)

    def write_file(self, file: WriteFile) -> None:
        """Open, writes, sync, close; with the layout's own sync before what is still in the buffer."""
        flags = file.open_flags | (os.O_DSYNC if self._facts.durability == "odsync" else 0)
        self._row(Kind.OPEN, file.path, 0, open_length(flags, file.mode))
        for index, call in enumerate(file.opening):
            self.call(call, file.opening[index + 1 :])
        written, held = _writes(file.records, file.api, self._facts)
        sync = file_sync(self._facts, file.is_synced)
        if self._facts.durability != "layout":
            written, held = written + held, []
        if file.stride_bytes:
            self._strided(file)
        else:
            self._append(file.path, written, file.offset_bytes)
        if file.api == "ofstream" and written:
            self._gather(file)
        if sync is not None:
            self._row(sync, file.path)
        # Python writes what an unflushed buffer holds at close: the framework's fsync came too early.
        self._append(file.path, held, file.offset_bytes + sum(written))
        for index, call in enumerate(file.closing):
            self.call(call, file.closing[index + 1 :])
        self._row(Kind.CLOSE, file.path)

    def _gather(self, file: WriteFile) -> None:
        """Mark which of the writes just appended are writev, and of how many parts."""
        parts = [call[1] for call in _streamed(file.records, _largest(self._facts))]
        self._blocks[-1]["flags"] = parts
        self._blocks[-1]["kind"] = np.where(np.array(parts) > 0, Kind.WRITEV, Kind.WRITE)

    def _strided(self, file: WriteFile) -> None:
        """Each record at its own place, a stride after the one before."""
        assert file.api == "direct"
        start = file.offset_bytes
        for record in file.records:
            lengths = np.array(_split(record.pieces, _largest(self._facts)), dtype=np.int64)
            within = np.cumsum(lengths) - lengths
            places = start + file.stride_bytes * np.arange(record.count, dtype=np.int64)
            offsets = (places[:, None] + within[None, :]).reshape(-1)
            self._data(Kind.WRITE, file.path, offsets, np.tile(lengths, record.count))
            start += file.stride_bytes * record.count

    def _append(self, path: Path, lengths: list[int], start: int) -> None:
        if lengths:
            ends = np.cumsum(np.array(lengths, dtype=np.int64))
            self._data(Kind.WRITE, path, start + np.concatenate(([0], ends[:-1])), np.diff(ends, prepend=0))

    def read_file(self, file: ReadFile) -> None:
        self._row(Kind.OPEN, file.path, 0, open_length(os.O_RDONLY))
        for index, call in enumerate(file.opening):
            self.call(call, file.opening[index + 1 :])
        offsets, lengths = _reads(file, self._facts)
        self._data(Kind.MMAP_READ if file.api == "mmap" else Kind.READ, file.path, offsets, lengths)
        self._row(Kind.CLOSE, file.path)

    def _file(self, path: Path) -> int:
        return self._paths.setdefault(path, len(self._paths))

    def _row(self, kind: Kind, path: Path, offset: int = 0, length: int = 0, expect: int = 0, flags: int = 0) -> None:
        row = (int(kind), flags, expect, self._file(path), offset, length)
        self._blocks.append(np.array([row], dtype=OP_DTYPE))

    def _data(self, kind: Kind, path: Path, offsets: Int64s, lengths: Int64s) -> None:
        block = np.zeros(len(lengths), dtype=OP_DTYPE)
        block["kind"], block["file"] = int(kind), self._file(path)
        block["offset_bytes"], block["length_bytes"] = offsets, lengths
        self._blocks.append(block)


def _largest(facts: Facts) -> int:
    return min(facts.transfer_bytes or KERNEL_LIMIT_BYTES, KERNEL_LIMIT_BYTES)


def _split(lengths: Iterable[int], most: int) -> list[int]:
    """The same bytes in the same order, none longer than `most`."""
    split: list[int] = []
    for length in lengths:
        full, rest = divmod(length, most)
        split += [most] * full + ([rest] if rest else [])
    return split


def _writes(records: tuple[Record, ...], api: WriterApi, facts: Facts) -> tuple[list[int], list[int]]:
    """Lengths of a file's write ops: those that its records cause, and those left for its close."""
    most = _largest(facts)
    if api == "direct":
        return [length for record in records for length in _split(record.pieces, most) * record.count], []
    if api == "ofstream":
        return [length for length, _ in _streamed(records, most)], []
    if api in BUFFER_BYTES:
        return [
            length
            for record in records
            for length in _split(map(sum, buffered(record.pieces, BUFFER_BYTES[api])), most) * record.count
        ], []
    lengths: list[int] = []
    known: dict[int, list[int]] = {}
    unflushed: list[int] = []  # pieces since the last flush: few, for only metadata leaves any
    for record in records:
        if unflushed or not record.is_flushed:
            unflushed += record.pieces * record.count
            if record.is_flushed:
                lengths += _flushed(unflushed, facts.block_size_bytes, most)
                unflushed = []
            continue
        if id(record) not in known:
            known[id(record)] = _flushed(record.pieces, facts.block_size_bytes, most)
        lengths += known[id(record)] * record.count
    calls, held = write_calls(unflushed, facts.block_size_bytes)
    return lengths + _split(calls, most), _split([held], most)


def _streamed(records: tuple[Record, ...], most: int) -> list[tuple[int, int]]:
    """(length, parts) of the calls of a C++ stream that is opened for these records and closed after them."""
    return ofstream.write_calls((piece for record in records for piece in record.pieces * record.count), most)


def _flushed(pieces: Iterable[int], buffer_bytes: int, most: int) -> list[int]:
    calls, held = write_calls(pieces, buffer_bytes)
    return _split([*calls, held], most)


def _reads(file: ReadFile, facts: Facts) -> tuple[Int64s, Int64s]:
    """Offsets and lengths of the read ops of a file, none longer than `[io] transfer`."""
    offsets, lengths = _buffered_reads(file, facts.block_size_bytes) if file.api == "python" else _direct_reads(file)
    most = _largest(facts)
    if len(lengths) == 0 or int(lengths.max()) <= most:
        return offsets, lengths
    pieces = [
        (offset + at, min(most, length - at))
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True)
        for at in range(0, length, most)
    ]
    return _columns(pieces)


def _columns(calls: list[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    both = np.array(calls, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _direct_reads(file: ReadFile) -> tuple[Int64s, Int64s]:
    return _columns([
        (start + seek.offset_bytes, seek.length_bytes)
        for start, record in zip(file.offsets_bytes, file.records, strict=True)
        for seek in record.seeks
    ])  # fmt: skip


def _buffered_reads(file: ReadFile, buffer_bytes: int) -> tuple[Int64s, Int64s]:
    """Follow the file object through all items, working out each distinct situation once.

    A situation is the record and what the buffer holds, both relative to where the record starts.
    A record that lies inside the buffer asks for nothing: with large buffers that is most of them.
    """
    known: dict[tuple[int, int, int, int, int], tuple[Int64s, int, int, int]] = {}
    blocks: list[Int64s] = []
    starts: list[int] = []
    low = high = position = 0
    for start, record in zip(file.offsets_bytes, file.records, strict=True):
        end = start + record.size_bytes
        warm = high > position and low <= start <= high
        if warm and end < high:
            position = start + record.seeks[-1].offset_bytes + record.seeks[-1].length_bytes
            continue
        left = file.path.size_bytes - start
        ahead = min(left, record.size_bytes + buffer_bytes)
        key = (id(record), ahead, *((low - start, high - start, position - start) if warm else (0, 0, 0)))
        if key not in known:
            known[key] = _situation(record, buffer_bytes, key[1:])
        calls, low, high, position = known[key]
        blocks.append(calls)
        starts.append(start)
        low, high, position = low + start, high + start, position + start
    if not blocks:
        return _columns([])
    both = np.concatenate(blocks)
    return both[:, 0] + np.repeat(np.array(starts), [len(block) for block in blocks]), both[:, 1]


def _situation(record: ReadRecord, buffer_bytes: int, key: tuple[int, int, int, int]) -> tuple[Int64s, int, int, int]:
    """(calls, low, high, position) after `record` from a buffer like `key`; all relative to its start."""
    ahead, low, high, position = key
    reader = Reader(buffer_bytes, ahead, position, low, high, [])
    reader.follow(record.seeks, 0)
    calls = np.array(reader.calls, dtype=np.int64).reshape(-1, 2)
    return calls, reader.low, reader.high, reader.position
