"""Storages that fail, for real: each error is counted by class, phase, rank and file, and ends as the job says."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from tests.conftest import TINY, clean_environment
from tests.services.fuse_fault import fault_fs
from tests.services.loop import loop
from tests.services.machine import run

pytestmark = [pytest.mark.mpi, pytest.mark.io]

FILE = "__1_0.distcp"


def _phase(data, name, number=1):
    return next(entry for entry in data["phases"] if (entry["phase"], entry["round"]) == (name, number))


def _failed(ended, phase, errno, op):
    """The one class of errors that is expected; the storm ended with 3, and says so in its report."""
    assert ended.code == 3, ended.said
    assert "Traceback" not in ended.said
    (failure,) = [one for one in _phase(ended.data, phase)["failures"] if one["errno"] == errno and one["op"] == op]
    assert errno in json.dumps(ended.data["verdict"]["reasons"])
    assert ended.data["verdict"]["valid"] is False
    return failure


@pytest.mark.parametrize(
    ("fault", "phase", "errno", "op"),
    [
        ({"ops": ["write"], "after_bytes": 2 << 20, "errno": "ENOSPC"}, "save", "ENOSPC", "write"),
        ({"ops": ["fsync"], "errno": "EIO"}, "save", "EIO", "fsync"),
        ({"ops": ["create"], "errno": "EDQUOT"}, "save", "EDQUOT", "open"),
        ({"ops": ["flush"], "errno": "EIO"}, "save", "EIO", "close"),
        ({"ops": ["open"], "errno": "ESTALE"}, "restore", "ESTALE", "open"),
        ({"ops": ["read"], "after_bytes": 3 << 20, "errno": "EIO"}, "restore", "EIO", "read"),
        ({"ops": ["write"], "after_bytes": 1 << 20, "short": 1000}, "save", "SHORT", "write"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_a_file_system_answers_is_told_by_class_rank_and_file(storm, place, fault, phase, errno, op):
    """One file of one rank fails, all others stay well: exactly that is in the record, whatever the op."""
    with fault_fs(place) as fs:
        fs.plant(glob=f"*/{FILE}", **fault)
        ended = storm("--dir", str(fs.mount / "data"))
        failure = _failed(ended, phase, errno, op)
        # In a restore rank 0 reads a few items of rank 1's file too: what both hold was saved once.
        ranks = {1} if phase == "save" else {0, 1}
        assert set(dict(failure["ranks"])) <= ranks
        assert failure["rank"] in ranks
        assert failure["host"] == os.uname().nodename
        assert failure["file"] == f"step-0/{FILE}"
        assert [name for name, _ in failure["files"]] == [f"step-0/{FILE}"]
        assert sum(count for _, count in failure["ranks"]) == failure["count"]
        assert len(failure["ranks"]) == failure["rank_count"]
        fs.clear()
        assert os.listdir(fs.mount) == []


def test_files_that_cannot_be_removed_are_told(storm, place, ckptstorm):
    """An unlink that fails: an error of the clean-up, exit code 3; what is left is told, and clean removes it."""
    with fault_fs(place) as fs:
        fs.plant(ops=["unlink"], glob=f"*/{FILE}", errno="EIO")
        data = fs.mount / "data"
        ended = storm("--dir", str(data))
        assert _failed(ended, "clean up", "EIO", "unlink")["rank"] == 1
        assert f"Files left: remove them with  ckptstorm clean {data}" in ended.err
        refused = ckptstorm("clean", str(data))
        assert refused.code == 2
        assert "cannot be cleaned: Input/output error" in refused.err
        fs.clear()
        assert ckptstorm("clean", str(data)).code == 0
        assert os.listdir(fs.mount) == []


def test_on_error_continue_measures_the_next_round(storm, place):
    """A fault that falls once: round 1 has failed, round 2 is whole; the storm ends with 3 all the same."""
    with fault_fs(place) as fs:
        fs.plant(ops=["fsync"], glob=f"*/{FILE}", errno="EIO", times=1)
        job = TINY.replace("rounds = 1", 'rounds = 2\non_error = "continue"')
        ended = storm("--dir", str(fs.mount / "data"), job=job)
        assert _failed(ended, "save", "EIO", "fsync")["count"] == 1
        assert _phase(ended.data, "save", 2)["error_count"] == 0
        assert _phase(ended.data, "restore", 2)["bytes"] == _phase(ended.data, "restore", 2)["planned_bytes"]


def test_a_listing_that_fails_on_one_rank_stays_an_error(storm, place):
    """An error of readdir is not an empty directory: rank and path are named (DeepSpeed lists its tag directory)."""
    with fault_fs(place) as fs:
        fs.plant(ops=["readdir"], glob="*/step-0", errno="EIO", times=1)
        job = TINY + '[layout]\nname = "deepspeed"\n[parallel]\nsharding = "zero1"\n'
        ended = storm("--dir", str(fs.mount / "data"), job=job)
        failure = _failed(ended, "restore", "EIO", "readdir")
        assert failure["file"] == "step-0"
        assert failure["count"] == 1


def test_a_file_size_limit_is_a_result(place):
    """RLIMIT_FSIZE: EFBIG at a write of each rank, by name."""
    (place / "job.toml").write_text(TINY)
    limit = 8 << 20
    command = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2", "--json"]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        env=clean_environment(),
        cwd=place,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ended.returncode == 3, ended.stderr
    failures = _phase(json.loads(ended.stdout), "save")["failures"]
    failure = next(one for one in failures if one["errno"] == "EFBIG")
    assert (failure["op"], failure["rank_count"], failure["count"]) == ("write", 2, 2)
    assert sorted(dict(failure["ranks"])) == [0, 1]
    assert {"job.toml", "results"} == set(os.listdir(place))


def test_a_quota_is_a_result(storm, place):
    """A real quota of btrfs, told only when the data is to be written: EDQUOT, and all is cleaned up."""
    with loop("btrfs", "512M") as disk:
        run("btrfs", "quota", "enable", disk.mount)
        run("btrfs", "qgroup", "limit", "20M", disk.mount)
        ended = storm("--dir", str(disk.mount / "data"))
        assert ended.code == 3, ended.said
        seen = {one["errno"] for entry in ended.data["phases"] for one in entry["failures"]}
        assert "EDQUOT" in seen
        assert os.listdir(disk.mount) == []


def test_the_slow_engine_plants_any_errno(storm):
    """A planted ESTALE is told as planted: the fault stands in the record beside what it did."""
    fault = '[[fault]]\nranks = [1]\nphase = "restore"\nop = "open"\nnth = 2\nerrno = "ESTALE"\n'
    ended = storm(job=TINY + fault)
    assert _failed(ended, "restore", "ESTALE", "open")["rank"] == 1
    assert ended.data["job"]["fault"][0]["errno"] == "ESTALE"
