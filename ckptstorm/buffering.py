"""From a framework's write and read calls to system calls: its buffers, and the limits of kernel and job."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.formats import ofstream
from ckptstorm.layouts.formats.python_io import KERNEL_LIMIT_BYTES, Reader, write_calls
from ckptstorm.layouts.formats.rust_io import BUFFER_BYTES, buffered
from ckptstorm.steps import Facts, ReadFile, ReadRecord, Record, WriterApi

Int64s = NDArray[np.int64]


def largest(facts: Facts) -> int:
    """The largest data op: that of [io] transfer, and never more than the kernel moves at once."""
    return min(facts.transfer_bytes or KERNEL_LIMIT_BYTES, KERNEL_LIMIT_BYTES)


def split(lengths: Iterable[int], most: int) -> list[int]:
    """The same bytes in the same order, none longer than `most`."""
    split: list[int] = []
    for length in lengths:
        full, rest = divmod(length, most)
        split += [most] * full + ([rest] if rest else [])
    return split


def write_ops(records: tuple[Record, ...], api: WriterApi, facts: Facts) -> tuple[list[int], list[int]]:
    """Lengths of a file's write ops: those that its records cause, and those left for its close."""
    most = largest(facts)
    if api == "direct":
        return [length for record in records for length in split(record.pieces, most) * record.count], []
    if api == "ofstream":
        return [length for length, _ in streamed(records, most)], []
    if api in BUFFER_BYTES:
        return [
            length
            for record in records
            for length in split(map(sum, buffered(record.pieces, BUFFER_BYTES[api])), most) * record.count
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
    return lengths + split(calls, most), split([held], most)


def streamed(records: tuple[Record, ...], most: int) -> list[tuple[int, int]]:
    """(length, parts) of the calls of a C++ stream that is opened for these records and closed after them."""
    return ofstream.write_calls((piece for record in records for piece in record.pieces * record.count), most)


def _flushed(pieces: Iterable[int], buffer_bytes: int, most: int) -> list[int]:
    calls, held = write_calls(pieces, buffer_bytes)
    return split([*calls, held], most)


def read_ops(file: ReadFile, facts: Facts) -> tuple[Int64s, Int64s]:
    """Offsets and lengths of the read ops of a file, none longer than `[io] transfer`."""
    offsets, lengths = _buffered_reads(file, facts.block_size_bytes) if file.api == "python" else _direct_reads(file)
    most = largest(facts)
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
