"""Causes planted in real storage: a slow interface, a slow server, a heavy role, none. The storm says which it was."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import clean_environment
from tests.services.gluster import gluster
from tests.services.loop import loop
from tests.services.moosefs import moosefs
from tests.services.nodes import mpiexec_arguments

pytestmark = pytest.mark.mpi

JOB = """
[storm]
rounds = 4
warmup = 1
allow = ["warm"]
[model]
shard_bytes = "8MiB"
[layout]
name = "file_per_rank"
[restore]
verify = 0.0
"""


HEAVY = """
[storm]
rounds = 5
allow = ["warm"]
[model]
name = "gpt2-124m"
layers = 1
vocab = 1000
[parallel]
sharding = "zero1"
[layout]
name = "deepspeed"
[io]
durability = "fsync"
[restore]
verify = 0.0
"""


@pytest.fixture
def storm_on(mpiexec, place):
    """A storm of nodes that each see their own client at one path; returns what storm.json says."""

    def run(clients, at, per_node=2, job=JOB, path=""):
        (place / "job.toml").write_text(job)
        nodes = mpiexec_arguments(at.parent, clients, at, per_node)
        command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml", "--json"]
        environment = clean_environment()
        environment["PATH"] = f"{path}:{environment['PATH']}"
        ended = subprocess.run(
            [mpiexec, *nodes, *command, "--dir", str(at / "data")],
            capture_output=True, text=True, timeout=120, env=environment, cwd=place, check=False,
        )  # fmt: skip
        assert ended.returncode in (0, 1), ended.stderr
        return json.loads(ended.stdout)

    return run


def _culprits(told):
    found = told["attribution"].get("save", {"causes": []})
    return {cause["kind"]: cause for cause in found["causes"] if cause["share"] >= 0.25 and cause["chance"] <= 0.05}


def test_a_slow_interface_is_the_nodes(storm_on):
    """Two nodes with a client each, one behind 60 Mbit/s: its ranks are late, wherever their files lie."""
    with moosefs() as box:
        box.nodes[1].slow("60mbit")
        told = storm_on([node.mount for node in box.nodes], box.folder / "shared", path=box.tools)
    culprits = _culprits(told)
    assert culprits["node"]["name"] == "127.0.0.3", told["attribution"]
    assert culprits["node"]["times"] > 1.5
    assert "role" not in culprits


def test_a_slow_server_is_the_targets(storm_on):
    """One of two bricks writes 10 MiB/s: whose file falls on it is late, on whichever node it runs."""
    with gluster(clients=2) as volume:
        volume.bricks[1].disk.throttle(10 << 20)
        job = JOB.replace("rounds = 4", "rounds = 5")
        told = storm_on(list(volume.mounts), volume.folder / "shared", per_node=3, job=job, path=volume.tools)
    culprits = _culprits(told)
    assert culprits["target"]["name"] == volume.bricks[1].name, told["attribution"]
    assert "node" not in culprits


def test_a_heavy_role_is_the_roles(storm):
    """ZeRO-1's rank 0 also saves the weights: on one node with one slow disk it is late, for what it has to write."""
    with loop("xfs") as disk:
        disk.throttle(80 << 20)
        told = storm("--dir", str(disk.mount / "data"), job=HEAVY, ranks=4).data
    culprits = _culprits(told)
    assert set(culprits) == {"role"}, told["attribution"]
    assert culprits["role"]["name"].startswith("shards of "), told["attribution"]


def test_when_nothing_is_planted_nobody_is_blamed(storm_on, place):
    """Even shards on two names of one healthy kernel: neither node nor role stands out beyond chance."""
    told = storm_on([None, None], place / "shared")
    assert _culprits(told) == {}
