"""A node that fails in the middle of a save, under the srun of a rendered script: who is named, what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.batch.test_sbatch import CKPTSTORM, SITE, sbatch
from tests.conftest import TINY
from tests.services.slurm import Slurm

pytestmark = [pytest.mark.mpi, pytest.mark.io]
#: In the second round, the second node's ranks stay at their fsync for as long as the test needs.
HELD = '[[fault]]\nranks = [2, 3]\nround = 2\nphase = "save"\nop = "fsync"\ndelay = "{delay}"\n'


def _ranks_in_the_save(cluster: Slurm, place: Path, job: str) -> dict[int, int]:
    """Process of each rank, once the second save is under way."""
    end, pids = time.monotonic() + 60, list[int]()
    while len(pids) < 4:
        assert time.monotonic() < end, _log(place, job)
        pids = cluster.task_pids(job)
    while not list(place.glob("ckptstorm-data/storm-*/step-1/__3_0.distcp")):
        assert time.monotonic() < end, _log(place, job)
        time.sleep(0.05)
    time.sleep(0.6)  # two heartbeats: rank 0 knows what they do
    return {int(_variable(pid, "PMI_RANK")): pid for pid in pids}


def _variable(pid: int, name: str) -> str:
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(word.partition(b"=")[2].decode() for word in words if word.startswith(name.encode() + b"="))


def _log(place: Path, job: str) -> str:
    return (place / f"results/storm-job-{job}.log").read_text()


def _shared_memory(pids: list[int]) -> set[Path]:
    """Files in /dev/shm that these processes have mapped under a name that stands."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {Path(line.split(maxsplit=5)[5]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line}


def _is_left_in_order(cluster: Slurm, place: Path, job: str, because: str) -> None:
    """No process; a partial record that says why, exit code 4; a marked directory that `clean` removes."""
    end = time.monotonic() + 15
    while cluster.task_pids(job):  # of a rank that was stopped, Slurm's own step may end a moment later
        assert time.monotonic() < end, cluster.task_pids(job)
        time.sleep(0.05)
    (partial,) = (place / "results").glob("*.partial")
    shown = _ckptstorm(place, "report", str(partial))
    assert shown.returncode == 4, shown.stdout + shown.stderr
    assert because in " ".join(shown.stdout.split())
    assert "save" in shown.stdout and "restore" in shown.stdout  # of the first round
    (directory,) = (place / "ckptstorm-data").iterdir()
    assert (directory / ".ckptstorm").exists()
    cleaned = _ckptstorm(place, "clean", str(directory))
    assert cleaned.returncode == 0, cleaned.stderr
    assert not (place / "ckptstorm-data").exists()


def _ckptstorm(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CKPTSTORM, *words], cwd=place, capture_output=True, text=True, check=False)


def _kill_a_node(cluster: Slurm, place: Path) -> tuple[str, str]:
    """SIGKILL of all ranks of the second node in a save, long before `[storm] timeout`; the job and the node."""
    text = TINY.replace("rounds = 1", "rounds = 2") + HELD.format(delay="50s")
    site = SITE + '[launch]\narguments = ["--wait=10"]\n'
    job = sbatch(cluster, place, "--ranks", "4", "--submit", job=text, site=site).out.strip()
    ranks = _ranks_in_the_save(cluster, place, job)
    failed = _variable(ranks[2], "SLURMD_NODENAME")
    assert _variable(ranks[3], "SLURMD_NODENAME") == failed != _variable(ranks[0], "SLURMD_NODENAME")
    assert _shared_memory(list(ranks.values())) == set()
    for rank in (2, 3):
        os.kill(ranks[rank], signal.SIGKILL)
    return job, failed


def _stop_a_rank(cluster: Slurm, place: Path) -> None:
    """SIGSTOP of the rank that forwards its node's heartbeat: the next one does then, and the right one is named."""
    text = TINY.replace("rounds = 1", 'rounds = 2\ntimeout = "4s"') + HELD.format(delay="2500ms")
    job = sbatch(cluster, place, "--ranks", "4", "--submit", job=text).out.strip()
    ranks = _ranks_in_the_save(cluster, place, job)
    node = _variable(ranks[2], "SLURMD_NODENAME")
    os.kill(ranks[2], signal.SIGSTOP)
    assert cluster.wait(job) == "FAILED"
    said = _log(place, job)
    named = f"rank 2 on {node} made no progress in the save for 4."
    assert named in said and f"(process {ranks[2]} is stopped: kill -CONT wakes it)" in said, said
    assert f"rank 3 on {node}" not in said
    _is_left_in_order(cluster, place, job, named)


def test_ranks_lost_on_another_node_are_named(cluster, place):
    """A node's ranks are killed: rank 0 says whom it hears no more before srun --wait kills the others, unheard.

    While srun waits, a storm on two other nodes: a rank that is stopped is named, and not its node.
    """
    killed, stopped = place / "killed", place / "stopped"
    killed.mkdir()
    stopped.mkdir()
    job, failed = _kill_a_node(cluster, killed)
    _stop_a_rank(cluster, stopped)
    assert cluster.wait(job) == "FAILED"
    said = _log(killed, job)
    for rank in (2, 3):
        assert f"rank {rank} on {failed} has not answered in the save for " in said, said
        assert f"(its node may be gone), last seen at fsync of __{rank}_0.distcp" in said
    _is_left_in_order(cluster, killed, job, f"rank 2 on {failed} has not answered in the save")
