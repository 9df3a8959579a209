"""Storms inside a real Slurm allocation: emulated nodes, real srun, real ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.services.slurm import Slurm

pytestmark = [pytest.mark.mpi, pytest.mark.io]
_RANK = (sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm")


def storm_of(cluster: Slurm, place: Path, *launcher: str, job: str = TINY, more: tuple[str, ...] = ()) -> dict:
    """Run a storm by this launcher in the cluster; its summary."""
    (place / "job.toml").write_text(job)
    told = cluster.command(*launcher, *_RANK, "run", "job.toml", "--json", *more, check=False)
    return json.loads(told)


def test_a_storm_joins_the_allocation(cluster, place, mpiexec):
    """An mpiexec inside the allocation starts the ranks: two nodes by name, two ranks each."""
    words = ("salloc", "-Q", "-N2", "-n4", "--ntasks-per-node=2", mpiexec, "-iface", "lo", "-n", "4")
    told = storm_of(cluster, place, *words)
    assert told["ended"] == "complete"
    assert [(node["host"], node["rank_count"]) for node in told["nodes"]] == [("n1", 2), ("n2", 2)]
    granted = told["environment"]["allocation"]
    assert granted["ranks_per_node"] == "2(x2)"
    assert (granted["partition"], granted["step_node_list"]) == ("all", "n[1-2]")
    assert granted["job"]["NumNodes"] == "2"
    assert granted["nodes"][0]["node_count"] == "2"


def test_nodes_are_slurms_not_host_names(cluster, place):
    """By srun: two emulated nodes that bear one host name are two nodes all the same: Slurm is asked, not the name."""
    (place / "job.toml").write_text(TINY)
    rename = 'exec unshare -u bash -c \'hostname same && exec "$@"\' rename "$@"'
    words = ("srun", "-N2", "-n4", "--ntasks-per-node=2", "bash", "-c", rename, "under")
    told = json.loads(cluster.command(*words, *_RANK, "run", "job.toml", "--json", check=False))
    assert [(node["host"], node["rank_count"]) for node in told["nodes"]] == [("n1", 2), ("n2", 2)]


def test_a_launcher_of_another_mpi_is_recognised(cluster, place):
    """--mpi=none leaves every rank alone in a world of 1: one sentence says what to do."""
    (place / "job.toml").write_text(TINY)
    told = cluster.command("bash", "-c", f"srun --mpi=none -n2 {' '.join(_RANK)} run job.toml 2>&1", check=False)
    assert "2 ranks were asked for" in told and "srun --mpi=pmi2" in told
