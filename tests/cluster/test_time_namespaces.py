"""Clocks that really differ: ranks in time namespaces of their own, an hour or five seconds away."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record import files
from ckptstorm.record.receipts import receipts
from ckptstorm.record.summary import summarize
from tests.conftest import clean_environment
from tests.require import missing

#: A save that takes four seconds whatever the machine does: the straggler is planted, on the rank with the other clock.
JOB = """
[storm]
rounds = 1
[io]
engine = "null"
[model]
shard_bytes = "64KiB"
[layout]
name = "file_per_rank"
[[fault]]
ranks = [3]
phase = "save"
op = "write"
delay = "4s"
"""


@pytest.fixture
def storm(mpiexec, place):
    """A storm of four ranks of which the last ones live in a time namespace; gives its record."""
    if subprocess.run(["unshare", "--time", "--fork", "true"], capture_output=True, check=False).returncode:
        missing("namespaces", "another clock needs root and time namespaces (Linux 5.6)")
    (place / "job.toml").write_text(JOB)
    rank = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml"]

    def run(shift_s: int, shifted: int):
        elsewhere = ["unshare", "--time", "--monotonic", str(shift_s), "--fork", *rank]
        parts = [str(4 - shifted), *rank, ":", "-n", str(shifted), *elsewhere]
        command = [mpiexec, "-n", *(parts if shifted else ["4", *rank])]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=clean_environment(), cwd=place, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return files.load(max((place / "results").iterdir(), key=os.path.getmtime))

    return run


@pytest.mark.mpi
def test_clocks_that_differ_change_no_headline_and_are_told(storm):
    """One rank 5 s ahead, then three an hour ahead: T is within 1 % of the run with one clock, and offsets are told.

    An uncorrected clock would make T 5 s or an hour wrong; the rows of the shifted rank would lie before the release.
    """
    plain = storm(0, 0)
    assert [len(phase.clocks) for phase in plain.phases] == [0] * len(plain.phases)
    assert "all ranks read one clock" in receipts(plain)["clock"].evidence
    for shift_s, shifted in ((5, 1), (3600, 3)):
        record = storm(shift_s, shifted)
        for one, other in zip(_saves(plain), _saves(record), strict=True):
            assert one == pytest.approx(other, rel=0.01)
        for phase in record.phases:
            assert phase.clocks["rank"].tolist() == list(range(4 - shifted, 4))
            off_ns = np.abs(phase.clocks["offset_ns"] + shift_s * NS_PER_S)
            assert (off_ns <= phase.clocks["uncertainty_ns"]).all()
            assert (phase.clocks["uncertainty_ns"] < NS_PER_S // 10).all()
        told = receipts(record)["clock"]
        assert told.state == "ok"
        apart = "5.00 s" if shift_s == 5 else "60 min 0 s"
        assert f"{1 + shifted} clocks up to {apart}" in told.evidence, told.evidence


def _saves(record):
    return [summary.seconds for summary in summarize(record) if summary.phase == Phase.SAVE]
