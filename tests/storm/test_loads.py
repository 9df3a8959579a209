"""Whole storms of loads through a real mpiexec: what was done, what is reported, what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import TINY, clean_environment

pytestmark = pytest.mark.mpi

ONLY_LOADS = '[storm]\nrounds = 1\nallow = ["tmpfs"]\n'
RANDOM = """
[[load]]
kind = "random"
name = "writes"
access = "write"
span = "2MiB"
block = { "4KiB" = 3, "16KiB" = 1 }
threads = 2
fsync_every = 10
warm = true
verify = true
"""
METADATA = """
[[load]]
kind = "metadata"
name = "tree"
phases = ["create+write", "stat", "list+stat", "rename", "delete"]
items = 40
depth = 1
branch = 3
size = "3901"
threads = 2
"""


def _stages(data):
    return {entry["name"]: entry for entry in data["phases"] if "load" in entry}


def test_random_writes_are_counted_and_read_back(storm, place):
    """A job that saves nothing: every planned byte is written, synced as often as asked, and verified from the disk."""
    ended = storm(job=ONLY_LOADS + RANDOM)
    assert ended.code in (0, 1), ended.said  # 1: on a busy machine the client may be the limit
    stages = _stages(ended.data)
    writes, back = stages["writes"], stages["writes verify"]
    assert writes["bytes"] == writes["planned_bytes"] > 2 << 20
    assert back["bytes"] == back["planned_bytes"] > 0 and back["mismatch_count"] == 0
    counts = {action["action"]: action["count"] for action in writes["per_action"]}
    assert counts["write"] == writes["data_op_count"]
    # 4 threads sync after each tenth write; a lap's last few are left.
    assert counts["write"] // 10 - 4 <= counts["fsync"] == writes["sync_count"] <= counts["write"] // 10
    assert sum(writes["per_second"]["op_count"]) == counts["write"] + counts["fsync"]
    assert {"job.toml", "results"} == set(os.listdir(place))


def test_metadata_counts_actions_and_leaves_nothing(storm, place):
    """Each action over each file of both ranks, once a round; the tree is gone after."""
    ended = storm(job=ONLY_LOADS.replace("rounds = 1", "rounds = 2") + METADATA)
    assert ended.code in (0, 1), ended.said
    found = {
        (entry["name"], entry["round"], action["action"]): action["count"]
        for entry in ended.data["phases"]
        for action in entry.get("per_action", ())
    }
    wanted = {"create+write": 80, "stat": 80, "list+stat": 8, "rename": 80, "delete": 80}
    assert found == {(f"tree {word}", number, word): count for word, count in wanted.items() for number in (1, 2)}
    create = _stages(ended.data)["tree create+write"]
    assert create["bytes"] == 80 * 3901
    assert create["latency_ns"]["open"]["all"]["count"] == 80
    assert {"job.toml", "results"} == set(os.listdir(place))


@pytest.mark.parametrize("engine", ["posix", "native"])
def test_a_load_by_time_stands_beside_a_checkpoint(storm, place, ckptstorm, engine):
    """Save, restore and a mix by time in one storm: the mix lasts as long as asked, and the report shows it."""
    mix = '[[load]]\nkind = "metadata"\nduration = "600ms"\nramp = "100ms"\nitems = 20\n'
    mix += 'mix = { stat = 5, "create+write" = 2, delete = 1, rename = 1, "open+lock" = 1, "open+flock" = 1 }\n'
    ended = storm(job=TINY.replace('"posix"', f'"{engine}"') + mix)
    assert ended.code in (0, 1), ended.said
    stage = _stages(ended.data)["metadata"]
    assert 0.6 <= stage["seconds"] < 1.5
    assert stage["error_count"] == 0
    assert {action["action"] for action in stage["per_action"]} >= {"stat", "create+write", "open+lock", "reset"}
    (folder,) = (place / "results").iterdir()
    report = ckptstorm("report", str(folder)).out
    assert "Loads (the median round of each)" in report
    assert "stat/s" in report


def test_a_load_that_fails_is_named(storm, place):
    """A file in the way of a load's open: exit code 3, errno, op, rank and file; what was not ours is left."""
    load = METADATA.replace('phases = ["create+write", "stat"', 'phases = ["create+write", "create+write"')
    ended = storm(job=ONLY_LOADS + load)
    assert ended.code == 2
    assert "the files are there already: put delete before it" in ended.err
    job = ONLY_LOADS + RANDOM.replace('block = { "4KiB" = 3, "16KiB" = 1 }', 'block = "512"\ndirect = true')
    ended = storm(job=job)
    if ended.code != 0:  # a file system that takes no O_DIRECT, or none of a sector
        assert ended.code == 3, ended.said
        assert "EINVAL from" in ended.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_from_outside_leaves_nothing_that_clean_does_not_find(place, ckptstorm, number):
    """Ctrl-C: in order, 130. Rank 0 killed: `clean` removes the load's files by name, and a stranger's file stays."""
    job = ONLY_LOADS + METADATA.replace("items = 40", "items = 300").replace(
        'phases = ["create+write", "stat", "list+stat", "rename", "delete"]',
        'mix = { stat = 9, rename = 1 }\nduration = "60s"',
    )
    (place / "job.toml").write_text(job)
    command = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2"]
    made = place / "ckptstorm-data" / "load-tree" / "rank-00001" / "d2"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place, env=clean_environment()
    ) as process:
        deadline = time.monotonic() + 60
        while not (made.exists() and len(list(made.iterdir())) >= 70):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        rank_0 = json.loads((place / "ckptstorm-data" / ".ckptstorm").read_text())["pid"]
        os.kill(process.pid if number == signal.SIGINT else rank_0, number)
        process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert {"job.toml", "results"} == set(os.listdir(place))
        return
    (made / "thesis.txt").write_text("mine")
    while ckptstorm("clean", "ckptstorm-data").code:  # until the killed ranks are gone
        assert time.monotonic() < deadline
        time.sleep(0.5)
    left = [name for _, _, names in os.walk(place / "ckptstorm-data") for name in names]
    assert left == ["thesis.txt"]
