"""From an op table to another that moves the same bytes: coalesced, aligned for O_DIRECT, dealt to threads.

A storm that reshapes no longer makes the framework's requests. That is the question sometimes: what
would this storage do if the framework wrote large aligned blocks? The record says so.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ckptstorm.program import OP_DTYPE, READS, Kind, Ops, Program, op, table

#: O_DIRECT wants memory, offset and length in multiples of the device's logical block: 512 or 4096.
#: 4096 is right for both.
ALIGNMENT_BYTES = 4096

_APPENDS = (Kind.WRITE, Kind.WRITEV)
_Row = tuple[int, int, int, int, int, int]


def coalesced(program: Program, size_bytes: int) -> Program:
    """Merge writes that follow one another in a file into transfers that start and end at multiples of `size_bytes`.

    The first and the last transfer of a stream are as short as its start and end make them.
    """
    ops = program.ops
    blocks: list[Ops] = []
    done = 0
    for first, last in _streams(ops):
        blocks.append(ops[done:first])
        start = int(ops["offset_bytes"][first])
        stop = int(ops["offset_bytes"][last] + ops["length_bytes"][last])
        blocks.append(_transfers(Kind.WRITE, int(ops["file"][first]), start, stop, size_bytes))
        done = last + 1
    return replace(program, ops=np.concatenate([*blocks, ops[done:]]))


def direct(program: Program, size_bytes: int) -> Program:
    """Open every file that is written or read with O_DIRECT, and align what is done to it.

    A stream's last write is padded to the alignment and the file then truncated to its size. Reads
    become transfers of up to `size_bytes` over the blocks that were asked for, ascending.
    With `size_bytes` 0 nothing is changed but the flag: `misaligned` says whether that can work.
    """
    opened = _with_flag(program)
    if size_bytes == 0:
        return opened
    ops = opened.ops
    blocks: list[Ops] = []
    index = 0
    for first, last in _spans(ops):
        blocks.append(ops[index:first])
        span = ops[first : last + 1]
        file = int(span["file"][0])
        if span["kind"][0] in _APPENDS:
            blocks.append(_padded(span, file, program.paths[file].size_bytes))
        else:
            blocks.append(_covering(span, file, size_bytes))
        index = last + 1
    return replace(opened, ops=np.concatenate([*blocks, ops[index:]]))


def misaligned(program: Program) -> str:
    """The first op that O_DIRECT would refuse, as "write of 704 bytes at offset 0 of __0_0.distcp"; "" if none."""
    ops = program.ops
    opens = ops[ops["kind"] == Kind.OPEN]
    files = np.unique(opens["file"][(opens["length_bytes"] & np.uint64(os.O_DIRECT)) != 0])
    is_data = np.isin(ops["kind"], (*_APPENDS, Kind.READ)) & np.isin(ops["file"], files)
    odd = is_data & (((ops["offset_bytes"] | ops["length_bytes"]) % np.uint64(ALIGNMENT_BYTES)) != 0)
    if not odd.any():
        return ""
    row = ops[int(odd.argmax())]
    word, name = Kind(int(row["kind"])).word, program.paths[int(row["file"])].name
    return f"{word} of {int(row['length_bytes'])} bytes at offset {int(row['offset_bytes'])} of {name}"


def dealt(program: Program, thread_count: int) -> tuple[Program, ...]:
    """The files of a program dealt to threads, each to the one with the fewest bytes; one program when it cannot be.

    Only a program that does nothing but open, move, sync and close files can be: namespace ops keep their order.
    """
    ops = program.ops
    loose = (Kind.OPEN, Kind.CLOSE, Kind.FSYNC, Kind.FDATASYNC, Kind.TRUNCATE, *_APPENDS, *READS)
    files = np.unique(ops["file"])
    if thread_count == 1 or len(files) < 2 or not np.isin(ops["kind"], loose).all():
        return (program,)
    volume = np.bincount(ops["file"], weights=program.expected_bytes(), minlength=len(program.paths))
    loads, hands = np.zeros(thread_count), np.zeros(len(program.paths), dtype=np.int64)
    for file in sorted(files.tolist(), key=lambda file: (-volume[file], file)):
        hands[file] = int(loads.argmin())
        loads[hands[file]] += max(1.0, float(volume[file]))
    return tuple(replace(program, ops=ops[hands[ops["file"]] == hand]) for hand in range(min(thread_count, len(files))))


def _streams(ops: Ops) -> list[tuple[int, int]]:
    """(first, last) of each run of writes to one file, each starting where the one before ended."""
    is_write = np.isin(ops["kind"], _APPENDS)
    ends = ops["offset_bytes"] + ops["length_bytes"]
    follows = np.zeros(len(ops), dtype=np.bool_)
    follows[1:] = (
        is_write[1:] & is_write[:-1] & (ops["file"][1:] == ops["file"][:-1]) & (ops["offset_bytes"][1:] == ends[:-1])
    )
    return _runs(is_write, follows)


def _spans(ops: Ops) -> list[tuple[int, int]]:
    """(first, last) of each run of writes, or of reads, of one file."""
    is_write, is_read = np.isin(ops["kind"], _APPENDS), ops["kind"] == Kind.READ
    follows = np.zeros(len(ops), dtype=np.bool_)
    follows[1:] = (ops["file"][1:] == ops["file"][:-1]) & (
        (is_write[1:] & is_write[:-1]) | (is_read[1:] & is_read[:-1])
    )
    return _runs(is_write | is_read, follows)


def _runs(is_in: NDArray[np.bool_], follows: NDArray[np.bool_]) -> list[tuple[int, int]]:
    firsts = np.flatnonzero(is_in & ~follows)
    is_last = is_in.copy()
    is_last[:-1] &= ~(is_in[1:] & follows[1:])
    return list(zip(firsts.tolist(), np.flatnonzero(is_last).tolist(), strict=True))


def _transfers(kind: Kind, file: int, start: int, stop: int, size_bytes: int) -> Ops:
    cuts = [start, *range(start // size_bytes * size_bytes + size_bytes, stop, size_bytes), stop]
    return table([op(kind, file, low, high - low) for low, high in itertools.pairwise(cuts) if high > low])


def _padded(span: Ops, file: int, size_bytes: int) -> Ops:
    """The writes with the last one rounded up, then the truncation to the true size.

    A file that several ranks share is longer than this rank's part of it: nothing of theirs is cut off.
    """
    stop = int(span["offset_bytes"][-1] + span["length_bytes"][-1])
    over = -stop % ALIGNMENT_BYTES
    if not over:
        return span
    padded = span.copy()
    padded["length_bytes"][-1] += over
    return np.concatenate([padded, table([op(Kind.TRUNCATE, file, length_bytes=max(stop, size_bytes))])])


def _covering(span: Ops, file: int, size_bytes: int) -> Ops:
    """Aligned reads over every block that the span asks for, each block once, ascending."""
    starts = span["offset_bytes"].astype(np.int64) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    stops = -(-(span["offset_bytes"] + span["length_bytes"]).astype(np.int64) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    rows: list[_Row] = []
    merged: list[list[int]] = []
    for low, high in sorted(zip(starts.tolist(), stops.tolist(), strict=True)):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    for low, high in merged:
        cuts = [*range(low, high, size_bytes), high]
        rows += [op(Kind.READ, file, a, b - a) for a, b in itertools.pairwise(cuts)]
    return table(rows)


def _with_flag(program: Program) -> Program:
    ops = program.ops.copy()
    moved = np.unique(ops["file"][np.isin(ops["kind"], (*_APPENDS, Kind.READ))])
    is_open = (ops["kind"] == Kind.OPEN) & np.isin(ops["file"], moved)
    ops["length_bytes"][is_open] |= np.uint64(os.O_DIRECT)
    assert ops.dtype == OP_DTYPE
    return replace(program, ops=ops)
