"""A writev of the posix engine is one call of as many parts as the op says, and writes the file's bytes."""

import os

import numpy as np
import pytest

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.posix import PosixEngine
from ckptstorm.payload import Payload
from ckptstorm.program import STEP, Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import KeepTimes


@pytest.mark.parametrize(("length", "parts"), [(10_000, 2), (100, 3), (64, 2), (10, 2), (5000, 0)])
def test_parts(tmp_path, monkeypatch, length, parts):
    """Heads of 64 bytes and the rest, as far as there are bytes; a write of no parts stays a plain one."""
    calls = []
    real = os.pwritev

    def seen(fd, buffers, offset):
        calls.append([len(buffer) for buffer in buffers])
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", seen)
    path = Path(STEP, "file", 0, length)
    rows = [
        op(Kind.OPEN, 0, length_bytes=open_length(os.O_WRONLY | os.O_CREAT)),
        op(Kind.WRITEV, 0, 0, length, flags=parts),
        op(Kind.CLOSE, 0),
    ]
    (tmp_path / "step").mkdir()
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    program, payload, sink = Program(table(rows), (path,), ("", "step")), Payload(1, 1), KeepTimes(3)
    prepared = PosixEngine(Setup(root)).prepare(program, payload)
    assert prepared.run(sink, 0, 3) == 3
    prepared.finish()
    os.close(root)
    assert sink.times.result.tolist() == [0, length, 0]
    assert calls == (
        [] if parts == 0 else [[*[64] * min(parts - 1, length // 64), length - 64 * min(parts - 1, length // 64)]]
    )
    expected = np.zeros(length, dtype=np.uint8)
    payload.image(path).fill(expected, 0)
    assert (tmp_path / "step" / "file").read_bytes() == expected.tobytes()
