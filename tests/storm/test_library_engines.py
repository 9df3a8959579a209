"""Whole storms through MPI-IO and HDF5, and what they refuse by name."""

from __future__ import annotations

import os

import pytest

from tests.storm.test_layouts import TINY

pytestmark = pytest.mark.mpi

UNEVEN = TINY.replace("vocab = 500", "vocab = 501")


@pytest.mark.parametrize(
    ("io", "layout"),
    [
        ('engine = "mpiio"', 'name = "file_per_rank"'),
        ('engine = "mpiio"\nhints = { cb_nodes = "1" }', 'name = "shared_file"\nblock_size = "64KiB"'),
        (
            'engine = "mpiio"\nmode = "collective"\ntransfer = "20KiB"',
            'name = "shared_file"\nblock_size = "64KiB"\npattern = "strided"',
        ),
        ('engine = "hdf5"', 'name = "file_per_rank"'),
    ],
)
def test_a_library_moves_the_bytes(storm, place, io, layout):
    """Uneven shards on three ranks: all bytes planned were moved and verified, and nothing is left behind."""
    ended = storm(ranks=3, job=f"{UNEVEN}[layout]\n{layout}\n[io]\n{io}\n")
    assert ended.code in (0, 1), ended.said
    assert ended.data["receipts"]["verified"]["state"] == "all"
    assert ended.data["receipts"]["durable"]["state"] == "yes"
    for phase in ended.data["phases"]:
        assert (phase["error_count"], phase["mismatch_count"]) == (0, 0), phase["failures"]
        assert phase["bytes"] == phase["planned_bytes"]
    kinds = set(ended.data["phases"][0]["latency_ns"])
    assert kinds & {"mpi_write_at", "mpi_write_at_all", "h5_write"}, kinds
    assert {"job.toml", "results"} == set(os.listdir(place))


REFUSED = {
    '[io] engine = "mpiio" cannot write [layout] name = "dcp"': ('engine = "mpiio"', 'name = "dcp"'),
    "this h5py": ('engine = "hdf5"', 'name = "shared_file"'),
    '[io] mode = "collective" means nothing to [layout] name = "file_per_rank"': (
        'engine = "mpiio"\nmode = "collective"', 'name = "file_per_rank"',
    ),
    "[io] coalesce: the mpiio engine cannot honour it": (
        'engine = "mpiio"\ncoalesce = "1MiB"', 'name = "shared_file"',
    ),
    '[io] durability = "odsync": the mpiio engine cannot honour it': (
        'engine = "mpiio"\ndurability = "odsync"', 'name = "shared_file"',
    ),
    "[io] hints = {'cb_nodes': '1'}: the posix engine cannot honour it": (
        'engine = "posix"\nhints = { cb_nodes = "1" }', 'name = "shared_file"',
    ),
    '[io] mode = "collective": the posix engine cannot honour it': (
        'engine = "posix"\nmode = "collective"', 'name = "shared_file"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_by_name(storm, sentence):
    """What a library's engine cannot do is refused with the key, before anything is made."""
    io, layout = REFUSED[sentence]
    ended = storm(ranks=2, job=f"{TINY}[layout]\n{layout}\n[io]\n{io}\n")
    assert ended.code == 2, ended.said
    assert sentence in ended.said
