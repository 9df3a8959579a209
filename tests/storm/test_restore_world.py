"""Storms that restore in another world: ranks outside a phase wait and have no row in it."""

from __future__ import annotations

import os

import pytest

from tests.storm.test_layouts import TINY

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("save", "restore", "layout", "ranks"),
    [
        ("ranks = 4", "ranks = 2", 'name = "dcp"', (4, 2)),
        ("ranks = 2", "ranks = 4", 'name = "dcp"', (2, 4)),
        (
            'ranks = 4\nsharding = "distributed_optimizer"\ntensor = 2',
            "ranks = 2",
            'name = "megatron_dist"',
            (4, 2),
        ),
        ("ranks = 4\ntensor = 2", "ranks = 3\ntensor = 1", 'name = "file_per_rank"', (4, 3)),
    ],
)
def test_another_world_restores(storm, place, save, restore, layout, ranks):
    """Every byte that the other world reads is verified; the record has a row for each rank that took part."""
    job = f"{TINY}[layout]\n{layout}\n[parallel]\n{save}\n[restore.parallel]\n{restore}\n"
    ended = storm(ranks=4, job=job)
    assert ended.code in (0, 1), ended.said
    assert ended.data["receipts"]["verified"]["state"] == "all"
    assert not [reason for reason in ended.data["verdict"]["reasons"] if reason.startswith("RANKS")]
    taking_part = dict(zip(("save", "restore"), ranks, strict=True))
    for phase in ended.data["phases"]:
        assert (phase["error_count"], phase["mismatch_count"]) == (0, 0), phase["failures"]
        assert phase["reporting_ranks"] == taking_part.get(phase["phase"], 4)
        assert phase["bytes"] == phase["planned_bytes"]
    assert {"job.toml", "results"} == set(os.listdir(place))


def test_a_world_that_does_not_fit_is_refused(storm):
    """The MPI world is the larger of both: another number of ranks is refused, with the number that it takes."""
    ended = storm(ranks=4, job=f"{TINY}[parallel]\nranks = 8\n[restore.parallel]\nranks = 2\n")
    assert ended.code == 2
    assert "this job needs 8 ranks" in ended.said
    ended = storm("--set", "restore.parallel.ranks=3", "--set", "restore.parallel.rnks=3", ranks=4, job=TINY)
    assert ended.code == 2
    assert '[restore.parallel] rnks: unknown key; did you mean "ranks"?' in ended.said
