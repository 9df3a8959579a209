"""Visibility after the commit: on one kernel at once, on another client when its cache lets go, or never."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from ckptstorm.measure.rows import Phase
from ckptstorm.measure.visibility import NEVER, NOTHING
from ckptstorm.record import files
from tests.conftest import clean_environment
from tests.record import synthetic
from tests.record.synthetic import Make
from tests.services.juicefs import juicefs
from tests.services.nodes import mpiexec_arguments

JOB = """
[storm]
rounds = 2
allow = ["warm", "tmpfs"]
[io]
engine = "posix"
[model]
name = "gpt2-124m"
layers = 1
vocab = 1000
[layout]
name = "{layout}"
{options}
"""


@pytest.fixture
def two_nodes(mpiexec, place):
    """A storm of two nodes with two ranks each; gives its record and the receipt."""

    def run(clients, at, layout="dcp", options="", *more):
        (place / "job.toml").write_text(JOB.format(layout=layout, options=options))
        nodes = mpiexec_arguments(at.parent, clients, at, 2)
        command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml", "--json"]
        ended = subprocess.run(
            [mpiexec, *nodes, *command, "--dir", str(at / "data"), *more],
            capture_output=True, text=True, timeout=100, env=clean_environment(), cwd=place, check=False,
        )  # fmt: skip
        assert ended.returncode in (0, 1), ended.stderr
        told = json.loads(ended.stdout)
        return files.load(place / "results" / told["storm_id"]), told["receipts"]["visible"]

    return run


def _looks(record):
    return [phase.visibility for phase in record.phases if phase.phase == Phase.SAVE]


@pytest.mark.mpi
def test_two_names_of_one_kernel_see_the_commit_at_once(two_nodes, place):
    """DCP renames `.metadata`: it, and the files to be restored, are there at the first look, on both nodes."""
    record, receipt = two_nodes([None, None], place / "shared")
    assert receipt["state"] == "ok" and "on 127.0.0." in receipt["evidence"]
    for looks in _looks(record):
        assert looks["node"].tolist() == [0, 1]
        assert (looks["pointer_ns"] >= 0).all() and (looks["step_ns"] >= 0).all()
        assert (looks["handle_ns"] == NOTHING).all()  # the step's directory was not there before the save


@pytest.mark.mpi
def test_overwriting_is_looked_at_through_a_handle_too(two_nodes, place):
    """With one step directory the second save finds a checkpoint there, and a node that has it open."""
    record, _ = two_nodes([None, None], place / "shared", "dcp", "overwrite = true")
    first, second = _looks(record)
    assert (first["handle_ns"] == NOTHING).all()
    assert (second["handle_ns"] >= 0).all()


@pytest.mark.mpi
def test_a_client_that_believes_its_cache_is_told(two_nodes):
    """A client that keeps names for five seconds sees a renamed pointer late, and the storm says so."""
    caches = ("--attr-cache", "5", "--entry-cache", "5", "--dir-entry-cache", "5")
    with juicefs(clients=2, options=caches) as store:
        record, receipt = two_nodes(list(store.mounts), store.folder / "shared", "dcp", "overwrite = true")
    _, second = _looks(record)
    late = dict(zip(second["node"].tolist(), second["pointer_ns"].tolist(), strict=True))
    assert receipt["state"] == "ok"
    assert late[0] < late[1] < 10_000_000_000  # the writer's own client knows, the other asks again in time
    assert late[1] > 100_000_000
    assert "last on 127.0.0.3" in receipt["evidence"]


@pytest.mark.mpi
def test_it_can_be_left_out_and_one_node_has_nobody_to_look(two_nodes, storm, place):
    """No rows, and the receipt says so."""
    record, receipt = two_nodes([None, None], place / "shared", "dcp", "", "--set", "storm.visibility=false")
    assert receipt["state"] == "none" and all(len(looks) == 0 for looks in _looks(record))
    assert storm(ranks=2).data["receipts"]["visible"]["state"] == "none"


def test_a_pointer_that_a_node_never_saw_makes_the_record_invalid():
    """It is named, with its node, and what can be seen is told beside it."""
    from ckptstorm.record.receipts import invalidates, receipts

    made = synthetic.record(Make(ranks=4, nodes=2, rounds=1))
    looks = made.phases[0].visibility.copy()
    looks["pointer_ns"][1] = NEVER
    receipt = receipts(synthetic.with_phase(made, 0, visibility=looks))["visible"]
    assert receipt.state == "no" and invalidates("visible", receipt, frozenset())
    assert "the pointer, looked up anew, was not seen at all by gpu001" in receipt.evidence
    assert "the files of the step, complete, after 2.00 ms" in receipt.evidence
    assert receipts(made)["visible"].state == "ok"
    assert np.isin(looks["handle_ns"], NOTHING).all()
