"""`ckptstorm sweep`: one world, several sizes in it, a table and a law at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ckptstorm.storm.session import chosen
from tests.conftest import TINY, clean_environment

NULL = """
[storm]
rounds = 2
[io]
engine = "null"
[model]
shard_bytes = "64KiB"
[layout]
name = "file_per_rank"
"""


def test_a_smaller_world_fills_nodes_or_takes_of_each():
    """The first ranks, or the first of every node, then the second ones; uneven nodes run out one after the other."""
    world = SimpleNamespace(rank_count=7, node_of_rank=np.array([0, 0, 0, 1, 1, 2, 2]))
    assert chosen(world, 4, False) == [0, 1, 2, 3]
    assert chosen(world, 4, True) == [0, 3, 5, 1]
    assert sorted(chosen(world, 7, True)) == list(range(7))
    cyclic = SimpleNamespace(rank_count=6, node_of_rank=np.array([0, 1, 2, 0, 1, 2]))
    assert chosen(cyclic, 4, True) == [0, 1, 2, 3]


@pytest.mark.mpi
def test_each_size_is_a_storm_of_its_own(ckptstorm, place):
    """1, 2 and 4 ranks of one world: three result folders, the table with its law, the same again from the folder."""
    (place / "job.toml").write_text(TINY)
    ended = ckptstorm("sweep", "job.toml", "--ranks", "4,1,2", "--json")
    assert ended.data["storms"], ended.said
    assert [row["rank_count"] for row in ended.data["storms"]] == [1, 2, 4]
    assert ended.code == max(row["exit_code"] for row in ended.data["storms"])
    (folder,) = (place / "results").iterdir()
    again = ckptstorm("report", str(folder))
    assert max(map(len, again.out.splitlines())) <= 80
    if all(row["valid"] for row in ended.data["storms"]):
        assert "How it grows" in again.out
        assert {law["phase"] for law in ended.data["laws"] if law["law"]} == {"save", "restore"}
    assert not (place / "ckptstorm-data").exists() or not os.listdir(place / "ckptstorm-data")


@pytest.mark.mpi
def test_under_a_launcher_the_rest_of_the_world_waits(mpiexec, place):
    """A world of four that is asked for 1 and 3 ranks: the other ranks have no row; eight are not to be had."""
    (place / "job.toml").write_text(NULL)
    command = [mpiexec, "-n", "4", sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "sweep", "job.toml"]

    def run(*more):
        return subprocess.run(
            [*command, *more],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            cwd=place,
            check=False,
        )

    ended = run("--ranks", "1,3", "--spread", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [row["rank_count"] for row in json.loads(ended.stdout)["storms"]] == [1, 3]
    refused = run("--ranks", "4,8")
    assert refused.returncode == 2
    assert "--ranks 4,8: there are 4 ranks here" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("sizes", ["", "0", "1,1", "2,x", "-1,2", "1.5", "99999999999"])
def test_what_is_no_list_of_sizes_is_refused(ckptstorm, place, sizes):
    """One sentence, and nothing is made."""
    ended = ckptstorm("sweep", "laptop", "--ranks", sizes)
    assert ended.code == 2 and "not a list of world sizes" in ended.err
    assert os.listdir(place) == []


@pytest.mark.mpi
def test_a_job_that_one_size_cannot_run_is_refused_before_any_runs(ckptstorm, place):
    """Two of three sizes would do: none is run."""
    ended = ckptstorm(
        "sweep", "laptop", "--ranks", "2,3,4", "--set", "parallel.tensor=2", "--set", "layout.name=file_per_rank"
    )
    assert ended.code == 2 and "does not divide the 3 ranks" in ended.err
    assert os.listdir(place) == []
