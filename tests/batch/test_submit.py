"""Submitting and waiting where Slurm is absent, refuses, or falls silent: stand-ins for its commands on PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptstorm.batch import submit
from ckptstorm.batch.script import Asked, Script, script_of
from ckptstorm.batch.sitefile import decode
from ckptstorm.errors import JobError, LaunchError, PlaceError


def _script(place: Path, scheduler: str = "slurm") -> Script:
    asked = Asked("laptop", 4, directory=str(place / "d"), results=str(place / "results"))
    return script_of(asked, decode(f"scheduler = '{scheduler}'", "s"))


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a command of this name and these lines on PATH, alone."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, *lines: str) -> None:
        (folder / name).write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
        (folder / name).chmod(0o755)

    return make


def test_without_slurm_it_is_said_what_to_do(tmp_path, monkeypatch):
    """No sbatch here; and a site of another batch system is not submitted to."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="there is no sbatch on this machine") as raised:
        submit.submit(_script(tmp_path), "text")
    assert "login node" in raised.value.hint
    with pytest.raises(JobError, match="--submit knows Slurm only") as refused:
        submit.submit(_script(tmp_path, "pbs"), "text")
    assert "qsub" in refused.value.hint


def test_results_that_cannot_be_made_are_told_before_anything_is_queued(tmp_path, stand_in):
    """A file in the way of the log's folder: no job is submitted that could not even write its log."""
    stand_in("sbatch", "touch submitted; echo 1")
    (tmp_path / "results").write_text("")
    with pytest.raises(PlaceError, match="cannot be made"):
        submit.submit(_script(tmp_path), "text")
    assert not os.path.exists("submitted")


def test_sbatch_is_handed_the_script_and_refuses_in_its_own_words(tmp_path, stand_in):
    """The text on its standard input; a federation's job id without its cluster; a refusal's first line."""
    stand_in("sbatch", f"cat > {tmp_path}/seen", "echo '123;cluster'")
    assert submit.submit(_script(tmp_path), "the script") == ["123"]
    assert (tmp_path / "seen").read_text() == "the script"
    stand_in("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2", "exit 1")
    with pytest.raises(LaunchError, match="sbatch refused: Batch job submission failed: Invalid account"):
        submit.submit(_script(tmp_path), "text")


def test_waiting_outlives_a_controller_that_restarts(tmp_path, stand_in):
    """Refusals in between are borne, naps grow and stay bounded; a controller that never answers is given up."""
    stand_in(
        "squeue",
        f"echo x >> {tmp_path}/count",
        f"case $(wc -l < {tmp_path}/count) in",
        "1|4) echo RUNNING ;;",
        "2|3) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;",
        "esac",
    )
    naps: list[float] = []
    submit.wait("1", naps.append)
    assert naps == [0.5, 1.0, 2.0, 4.0]
    stand_in("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    submit.wait("1", naps.append)  # forgotten: ended long ago
    stand_in("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(LaunchError, match="squeue does not tell of job 1"):
        submit.wait("1", naps.append)
    assert max(naps) == 5.0
