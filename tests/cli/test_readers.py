"""What is found out does not depend on who reads it, and what is evidence is not removed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import TINY, clean_environment
from tests.require import missing

FAILS = '[[fault]]\nranks = [1]\nphase = "save"\nop = "write"\nerrno = "EIO"\n'


def _code_beside(reader, *arguments, cwd):
    """The exit code of ckptstorm when its output goes to this command of a shell."""
    script = f'"$@" 2>/dev/null | {reader}; exit ${{PIPESTATUS[0]}}'
    command = ["bash", "-c", script, "bash", sys.executable, "-P", "-m", "ckptstorm", *arguments]
    return subprocess.run(command, timeout=60, env=clean_environment(), cwd=cwd, check=False).returncode


@pytest.mark.mpi
@pytest.mark.parametrize("reader", ["head -3 >/dev/null", "true"])
def test_a_reader_who_goes_away_changes_no_exit_code(place, reader):
    """A failed storm is a failed storm beneath `head`; so is its report; a list that nobody reads is no failure."""
    (place / "job.toml").write_text(TINY + FAILS)
    assert _code_beside(reader, "run", "job.toml", "--ranks", "2", cwd=place) == 3
    (folder,) = (place / "results").iterdir()
    assert _code_beside(reader, "report", str(folder), cwd=place) == 3
    assert _code_beside(reader, "list", cwd=place) == 0


def test_help_and_version_end_well(ckptstorm):
    """Asked for, they are no error; nothing asked is one."""
    assert ckptstorm("--version").code == 0
    assert ckptstorm("run", "--help").code == 0
    assert ckptstorm("run").code == 2


@pytest.mark.mpi
def test_metrics_that_cannot_be_written_are_refused_before_the_storm(ckptstorm, place):
    """A read-only directory: one sentence, exit code 2, no rank lost."""
    if os.geteuid() != 0:
        missing("root", "mounting needs root")
    (place / "job.toml").write_text(TINY)
    (place / "ro").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "ro", str(place / "ro")], check=True)
    try:
        ended = ckptstorm("run", "job.toml", "--ranks", "2", "--metrics", "ro/x")
    finally:
        subprocess.run(["umount", str(place / "ro")], check=True)
    assert ended.code == 2 and "--metrics ro/x: cannot be written" in ended.err
    assert "Traceback" not in ended.said


def test_what_is_no_number_is_no_price(ckptstorm):
    """click lets "nan" through its ranges; nothing of ours does."""
    for option in ("--mttf", "--price"):
        ended = ckptstorm("size", "nowhere", option, "nan")
        assert ended.code == 2 and "nan is no number" in ended.err


@pytest.mark.mpi
def test_a_checkpoint_with_wrong_bytes_is_not_removed(ckptstorm, place):
    """A restore that finds a flipped byte leaves the files for whoever must look; a clean one removes them."""
    (place / "job.toml").write_text(TINY)
    assert ckptstorm("run", "job.toml", "--ranks", "2", "--only", "save", "--dir", "saved").code in (0, 1)
    (step,) = (path for path in (place / "saved").iterdir() if path.name.startswith("step-"))
    largest = max((path for path in step.iterdir() if path.suffix == ".distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    restore = ("run", "job.toml", "--ranks", "2", "--only", "restore", "--from", "saved")
    ended = ckptstorm(*restore)
    assert ended.code == 3 and "WRONG BYTES" in ended.out
    assert "Files left" in ended.err and largest.exists()
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    assert ckptstorm(*restore).code in (0, 1)
    assert not (place / "saved").exists()
