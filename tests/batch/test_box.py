"""A cluster in a box: Slurm whose nodes each have a MooseFS client of their own, and a split storm across them."""

from __future__ import annotations

import pytest

from tests.batch.test_sbatch import SITE, results_below, sbatch, told
from tests.conftest import TINY
from tests.services.moosefs import moosefs
from tests.services.slurm import slurm

pytestmark = [pytest.mark.mpi, pytest.mark.io]


def test_a_split_storm_on_a_distributed_file_system(place):
    """What n1's client wrote, n2's client reads: no node reads what it wrote, by name and by mount."""
    at = place / "pfs"
    at.mkdir()
    with moosefs(nodes=2, servers=2) as storage:
        setups = {f"n{number}": f"mount --bind {node.mount} {at}" for number, node in enumerate(storage.nodes, 1)}
        with slurm(node_count=2, cpus=4, node_setups=setups) as cluster:
            # MooseFS's own tools ask the master from a node's network, which only the mounts are in here.
            site = f'{SITE}environment = {{ PATH = "{storage.tools}:{cluster.environment["PATH"]}" }}\n'
            split = ("--ranks", "2", "--split", "--wait", "--dir", str(at / "storm"))
            ended = sbatch(cluster, place, *split, site=site, job=TINY)
            assert ended.code in (0, 1), ended.said
            joined = next(
                record
                for record in map(told, results_below(place / "results"))
                if record["environment"]["halves"]["run"] == "restore"
            )
    assert joined["environment"]["mount"]["type"] == "fuse"
    assert {
        *joined["environment"]["halves"]["save"]["nodes"],
        *joined["environment"]["halves"]["restore"]["nodes"],
    } == {
        "n1",
        "n2",
    }
    assert joined["receipts"]["cold"]["state"] == "cold"
    assert joined["receipts"]["verified"]["state"] == "all"
