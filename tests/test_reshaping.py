"""Reshaped op tables move the same bytes: merged, aligned for O_DIRECT, dealt to threads."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.posix import PosixEngine
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.reshaping import ALIGNMENT_BYTES, coalesced, dealt, direct, misaligned
from ckptstorm.sinks import KeepTimes

_CREATE = open_length(os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def _save(sizes, names=("a",)):
    rows, paths = [], []
    for file, name in enumerate(names):
        rows.append(op(Kind.OPEN, file, length_bytes=_CREATE))
        offset = 0
        for size in sizes:
            rows.append(op(Kind.WRITE, file, offset, size))
            offset += size
        rows += [op(Kind.FSYNC, file), op(Kind.CLOSE, file)]
        paths.append(Path(0, name, size_bytes=offset))
    return Program(table(rows), tuple(paths), ("", "step-0"))


def _restore(sizes):
    rows = [op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDONLY))]
    offset = 0
    for size in sizes:
        rows += [op(Kind.READ, 0, offset, min(4096, size)), op(Kind.READ, 0, offset, size)]
        offset += size
    rows.append(op(Kind.CLOSE, 0))
    return Program(table(rows), (Path(0, "a", size_bytes=offset),), ("", "step-0"))


def _covered(program, kind, total):
    bytes_of = np.zeros(total + 2 * ALIGNMENT_BYTES, dtype=np.int64)
    for row in program.ops[program.ops["kind"] == kind]:
        bytes_of[int(row["offset_bytes"]) : int(row["offset_bytes"] + row["length_bytes"])] += 1
    return bytes_of[:total]


_SIZES = st.lists(st.integers(1, 30_000), min_size=1, max_size=30)


@given(_SIZES, st.sampled_from([4096, 8192, 65536]))
@settings(max_examples=60, deadline=None)
def test_coalescing_moves_each_byte_once_in_aligned_transfers(sizes, size_bytes):
    """Every byte is written once; all transfers but the last start and end at a multiple of the size."""
    program = coalesced(_save(sizes), size_bytes)
    assert (_covered(program, Kind.WRITE, sum(sizes)) == 1).all()
    writes = program.ops[program.ops["kind"] == Kind.WRITE]
    assert (writes["offset_bytes"] % size_bytes == 0).all()
    assert (writes["length_bytes"][:-1] == size_bytes).all()
    others = [Kind.OPEN, Kind.FSYNC, Kind.CLOSE]
    assert [int(kind) for kind in program.ops["kind"] if kind != Kind.WRITE] == others


@given(_SIZES)
@settings(max_examples=60, deadline=None)
def test_direct_is_aligned_and_reads_cover_what_was_asked(sizes):
    """After coalescing nothing is misaligned; the file is truncated to its size; reads cover each asked byte once."""
    save = direct(coalesced(_save(sizes), 65536), 65536)
    assert misaligned(save) == ""
    truncated = save.ops[save.ops["kind"] == Kind.TRUNCATE]
    assert truncated["length_bytes"].tolist() == ([sum(sizes)] if sum(sizes) % ALIGNMENT_BYTES else [])
    restore = direct(_restore(sizes), 65536)
    assert misaligned(restore) == ""
    assert (_covered(restore, Kind.READ, sum(sizes)) == 1).all()


def test_a_shared_file_is_not_cut_to_one_ranks_part():
    """The truncation after a padded write keeps what other ranks write behind it."""
    program = _save([5000])
    shared = Program(program.ops, (Path(0, "a", size_bytes=15_000),), program.directories)
    cut = direct(coalesced(shared, 4096), 4096)
    assert cut.ops["length_bytes"][cut.ops["kind"] == Kind.TRUNCATE].tolist() == [15_000]


def test_what_cannot_be_direct_is_named():
    """Without coalescing the first unaligned op is told."""
    assert misaligned(direct(_save([4096, 704]), 0)) == "write of 704 bytes at offset 4096 of a"
    assert misaligned(direct(_save([4096, 8192]), 0)) == ""
    assert misaligned(_save([704])) == ""


def test_dealing_keeps_each_file_whole_and_in_order():
    """Files go to the thread with the fewest bytes; every op is dealt once; namespace ops are not dealt."""
    program = _save([5000, 3], names=("a", "b", "c"))
    hands = dealt(program, 2)
    assert sorted(len(hand.ops) for hand in hands) == [5, 10]
    for hand in hands:
        for file in np.unique(hand.ops["file"]):
            kept = hand.ops[hand.ops["file"] == file]
            assert kept.tolist() == program.ops[program.ops["file"] == file].tolist()
    with_mkdir = Program(np.concatenate([table([op(Kind.MKDIR, 0)]), program.ops]), program.paths)
    assert dealt(with_mkdir, 2) == (with_mkdir,)
    assert dealt(_save([5]), 4)[0].ops.tolist() == _save([5]).ops.tolist()


@pytest.mark.io
def test_a_reshaped_save_leaves_the_same_file(tmp_path):
    """Run for real, with O_DIRECT where the file system has it: the same bytes as unreshaped."""
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    contents = []
    for program in (_save([704, 70_001, 873]), direct(coalesced(_save([704, 70_001, 873]), 8192), 8192)):
        prepared, sink = PosixEngine(Setup(root)).prepare(program, Payload(1, 1)), KeepTimes(len(program.ops))
        prepared.run(sink, 0, len(program.ops))
        prepared.finish()
        if (sink.times.result < 0).any():
            pytest.skip(f"no O_DIRECT on {tmp_path}")
        contents.append((tmp_path / "a").read_bytes())
        (tmp_path / "a").unlink()
    os.close(root)
    assert contents[0] == contents[1]
    assert len(contents[0]) == 704 + 70_001 + 873
