"""Engines that move bytes through a library pass the contract of engines; what is their own stands in test_shared."""

from __future__ import annotations

import errno
import os

import h5py
import numpy as np
import pytest

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.hdf5 import Hdf5Engine
from ckptstorm.engines.mpiio import MpiioEngine
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import KeepTimes
from ckptstorm.testing.engines import EngineContract, write_program


class TestMpiio(EngineContract):
    """A rank by itself; MPI comes up in the test's own process."""

    repeats = False

    def make(self, setup):
        """An MPI-IO engine."""
        return MpiioEngine(setup)


class TestHdf5(EngineContract):
    """The payload lies in the one dataset of the file."""

    repeats = False

    def make(self, setup):
        """An HDF5 engine."""
        return Hdf5Engine(setup)

    def stored(self, file):
        """Where HDF5 put the dataset."""
        with h5py.File(file) as opened:
            return opened["data"].id.get_offset(), opened["data"].size


@pytest.fixture
def root(tmp_path):
    """The storm's directory, open."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def results(engine, program):
    """What each op returned."""
    prepared, sink = engine.prepare(program, Payload(1, 1)), KeepTimes(len(program.ops))
    prepared.run(sink, 0, len(program.ops))
    prepared.finish()
    return sink.times.result.tolist()


@pytest.mark.parametrize("make", [MpiioEngine, Hdf5Engine])
def test_a_link_is_not_followed(make, root, tmp_path):
    """A symbolic link where a file should be leads out of the directory: it is an error, and nothing is written."""
    (tmp_path / "step-1").mkdir()
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "step-1" / "shard.tmp").symlink_to(tmp_path / "elsewhere")
    assert results(make(Setup(root)), write_program())[:2] == [-errno.EEXIST, -errno.ELOOP]
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


@pytest.mark.parametrize("make", [MpiioEngine, Hdf5Engine])
def test_a_full_disk_is_a_result(make, root):
    """What the library answers is told as an errno: /dev/full cannot take a byte, a missing directory no file."""
    write = open_length(os.O_WRONLY | os.O_CREAT)
    program = Program(table([op(Kind.OPEN, 0, length_bytes=write)]), (Path(1, "nowhere/file", 0, 10),), ("", "step-1"))
    assert results(make(Setup(root)), program) == [-errno.ENOENT]


def test_hints_reach_the_file(root, tmp_path):
    """A hint that ROMIO knows is in the file's own info."""
    from mpi4py import MPI

    engine = MpiioEngine(Setup(root, hints=(("cb_buffer_size", "1048576"),)))
    prepared = engine.prepare(write_program(), Payload(1, 1))
    sink = KeepTimes(len(write_program().ops))
    prepared.run(sink, 0, 2)
    info = next(iter(prepared._backend._open.values())).Get_info()
    assert info.Get("cb_buffer_size") == "1048576"
    info.Free()
    prepared.finish()
    assert MPI.COMM_WORLD.size == 1


def test_hdf5_holds_one_dataset_of_bytes(root, tmp_path):
    """Any HDF5 tool can read the file: one contiguous dataset of as many bytes as were written."""
    results(Hdf5Engine(Setup(root)), write_program())
    with h5py.File(tmp_path / "step-1" / "shard") as opened:
        assert list(opened) == ["data"]
        assert (opened["data"].dtype, opened["data"].chunks) == (np.uint8, None)


def test_no_load_runs_through_a_library(ckptstorm, place):
    """A load wants threads of its own and rings: refused by name before anything is made."""
    (place / "job.toml").write_text(
        '[io]\nengine = "mpiio"\n[model]\nshard_bytes = "1MiB"\n[layout]\nname = "file_per_rank"\n'
        '[[load]]\nkind = "random"\nspan = "1MiB"\namount = "1MiB"\nwarm = true\n'
    )
    ended = ckptstorm("run", "job.toml", "--ranks", "2")
    assert ended.code == 2 and "the mpiio engine runs on the main thread, and runs no loads" in ended.err
    assert not (place / "ckptstorm-data").exists()
