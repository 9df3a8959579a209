"""Reports about other tools (public issues and results), each as a small storm that must end well.

Two more stand where their tools are: clocks that differ in tests/cluster/test_time_namespaces.py, a listing
that fails on one rank in tests/storm/test_errors.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from ckptstorm.measure import latency
from ckptstorm.measure.histogram import percentile
from ckptstorm.program import Kind, op
from tests.conftest import TINY, clean_environment
from tests.measure.programs import part
from tests.require import missing
from tests.storm.victims import victim

HOST = os.uname().nodename


def _phase(data, name):
    return next(entry for entry in data["phases"] if (entry["phase"], entry["round"]) == (name, 1))


def _memory(place):
    """A directory on a tmpfs."""
    return Path("/dev/shm") / f"ckptstorm-test-{os.getpid()}-{place.name}"


@pytest.mark.mpi
def test_1_one_ranks_clock(storm, place, ckptstorm):
    """A rate from one rank's own time hides the slow ones: 4 s planted on rank 1 are in the headline, and named."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "4s"\n'
    ended = storm(job=TINY + fault)
    assert ended.code in (0, 1)
    assert 4.0 <= _phase(ended.data, "save")["seconds"] < 8.0
    (folder,) = (place / "results").iterdir()
    assert f"straggler  rank 1 on {HOST}" in ckptstorm("report", str(folder)).out


@pytest.mark.mpi
@pytest.mark.parametrize("durability", ["fsync", "none"])
def test_2_inert_flags(place, durability):
    """Syncs are counted by the kernel's own log: as many as there are files to sync; without them it is not durable."""
    if shutil.which("strace") is None:
        missing("strace", "counts the calls")
    (place / "job.toml").write_text(TINY)
    log = place / "strace"
    words = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2", "--json"]
    ended = subprocess.run(
        ["strace", "-ff", "-qq", "-y", "-e", "trace=fsync", "-o", log, *words, "--set", f"io.durability={durability}"],
        capture_output=True, text=True, timeout=100, env=clean_environment(), cwd=place, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr
    data = json.loads(ended.stdout)
    logged = "".join(each.read_text() for each in place.glob("strace.*"))  # one log a thread: no line is cut in two
    synced = re.findall(r"fsync\(\d+<[^>]*/step-0/?([^>]*)>\) += 0", logged)
    files = {"__0_0.distcp", "__1_0.distcp", ".metadata.tmp", ""}  # and the directory, after the rename
    assert set(synced) == (files if durability == "fsync" else set())
    assert _phase(data, "save")["sync_count"] == _phase(data, "save")["planned_sync_count"] == len(synced)
    assert data["receipts"]["durable"]["state"] == ("yes" if durability == "fsync" else "not_asked")
    assert ("not durable" in data["receipts"]["durable"]["evidence"]) == (durability == "none")


@pytest.mark.mpi
def test_3_read_from_the_page_cache(storm, place):
    """The same node reads what it wrote: with pages dropped it is cold; with them kept it is warm, and invalid."""
    if storm("--set", "storm.allow=[]").data["environment"]["mount"]["type"] not in ("ext4", "xfs", "btrfs"):
        missing("disk", "the test's directory is not on a local disk")
    script = Path(__file__).with_name("keep_the_cache.py")
    mpiexec = Path(sys.executable).parent / "mpiexec"
    words = [mpiexec, "-n", "2", sys.executable, "-P", "-m", "mpi4py", script, "run", "job.toml", "--json"]
    kept = subprocess.run(
        [*words, "--set", "storm.allow=[]"],
        capture_output=True, text=True, timeout=100, env=clean_environment(), cwd=place, check=False,
    )  # fmt: skip
    assert kept.returncode == 1, kept.stderr
    data = json.loads(kept.stdout)
    assert data["receipts"]["cold"]["state"] == "warm"
    assert (
        "served reads" in data["receipts"]["cold"]["evidence"] or "page caches" in data["receipts"]["cold"]["evidence"]
    )
    assert "ranks read on the node that wrote" in data["receipts"]["cold"]["evidence"]
    assert not data["verdict"]["valid"]
    dropped = storm("--set", "storm.allow=[]")
    assert dropped.data["receipts"]["cold"]["state"] == "cold"


@pytest.mark.mpi
def test_4_direct_io_that_is_none(storm, place, ckptstorm):
    """O_DIRECT on memory is accepted and means nothing: invalid. On requests that cannot be aligned: refused."""
    refused = storm("--set", "io.direct=true")
    assert refused.code == 2
    assert "is not aligned" in refused.err
    directory = _memory(place)
    words = ("--set", "io.direct=true", "--set", "io.coalesce=1MiB", "--dir", str(directory))
    ended = storm(*words, job=TINY + '[layout]\nname = "file_per_rank"\n')
    assert ended.code == 1, ended.said
    assert ended.data["receipts"]["direct"]["state"] == "no"
    assert any(reason.startswith("DIRECT") for reason in ended.data["verdict"]["reasons"])
    assert not directory.exists()


@pytest.mark.mpi
def test_7_the_tool_is_the_bottleneck(storm, place):
    """On memory the posix engine's own making and comparing of bytes is seen, told apart, and makes it invalid."""
    directory = _memory(place)
    ended = storm("--dir", str(directory))
    assert ended.code == 1, ended.said
    assert ended.data["receipts"]["self"]["state"] == "client_bound"
    assert re.search(r"% of the save making bytes and .*% of the restore", ended.data["receipts"]["self"]["evidence"])
    assert any(reason.startswith("SELF") for reason in ended.data["verdict"]["reasons"])


@pytest.mark.mpi
def test_9_a_hang_that_names_nobody(place, ckptstorm):
    """A rank stopped in the restore: rank, host, file and offset within the time-out; partial results; code 4."""
    job = TINY.replace("rounds = 1", 'rounds = 1\ntimeout = "2s"')
    job += '[[fault]]\nranks = [1]\nphase = "restore"\nop = "read"\nnth = 20\ndelay = "1900ms"\n'
    with victim(place, job, "--json", ranks=2) as storm:
        storm.until("results/*.partial/phase-00002")
        time.sleep(0.7)
        storm.rank(1).suspend()
        assert storm.ends() == 4
        told = rf"rank 1 on {HOST} made no progress in the restore for \S+ s: read at offset \d+ of \S+"
        assert re.search(told, storm.err), storm.err
        data = storm.data
    assert _phase(data, "save")["bytes"] > 0
    assert ckptstorm("clean", "ckptstorm-data").code == 0


@pytest.mark.mpi
def test_11_incompressible_data_that_compresses(storm, place):
    """64 MiB and more of a save through zstd -3: at most 5 % smaller."""
    assert storm("--keep-files").code in (0, 1)
    content = b"".join(path.read_bytes() for path in sorted((place / "ckptstorm-data" / "step-0").iterdir()))
    assert len(content) > 64 << 20
    ratio = len(content) / len(zstandard.ZstdCompressor(level=3).compress(content))
    assert 1.0 <= round(ratio, 2) <= 1.05


def test_12_known_before_hours_are_spent(ckptstorm):
    """405B on 408 ranks: refused by name in seconds; what fits tells its memory; the check refuses what does not."""
    begun = time.monotonic()
    refused = ckptstorm(
        "plan", "mlperf-8b", "--ranks", "408", "--set", "model.name=llama3-405b", "--set", "parallel.sharding=zero1",
        "--set", "parallel.tensor=8", "--set", "parallel.pipeline=32",
    )  # fmt: skip
    assert refused.code == 2
    assert "does not divide the 408 ranks" in refused.err
    plan = ckptstorm("plan", "llama3-405b-fsdp2", "--ranks", "512")
    assert plan.code == 0
    assert re.search(r"buffers +\d+ MiB a node: 8 ranks, largest op", plan.out)
    assert time.monotonic() - begun < 30


def test_13_percentiles_that_end_before_a_checkpoint_does():
    """An op of 94 s among fast ones: the maximum is exact, the percentile within 1 %."""
    made = part([op(Kind.WRITE, 0, 0, 10) for _ in range(10)])
    made.times.end_ns[9] = made.times.start_ns[9] + 94 * 10**9
    counts, most_ns = latency.select(latency.observe([(made.program, made.times)]), (Kind.WRITE,))
    assert most_ns == 94 * 10**9
    assert abs(percentile(counts, 0.99, most_ns) / 94e9 - 1) < 0.01
