"""Collectives, clocks and places through a real mpiexec, at one, two and four ranks; two nodes by host names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptstorm.cluster.launched import check_world, launched_rank, launched_size
from ckptstorm.errors import LaunchError
from ckptstorm.measure.rows import Phase
from ckptstorm.record import files
from tests.conftest import TINY, clean_environment
from tests.require import missing

HERE = Path(__file__).parent


def _mpiexec(mpiexec, *arguments, cwd, timeout=60):
    return subprocess.run(
        [mpiexec, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=clean_environment(),
        cwd=cwd,
        check=False,
    )


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_checks_hold_on_every_rank(mpiexec, place, ranks):
    """Every check of on_ranks.py, with messages whole and cut into pieces of 200 bytes."""
    ended = _mpiexec(
        mpiexec, "-n", str(ranks), sys.executable, "-P", "-m", "mpi4py", str(HERE / "on_ranks.py"), cwd=place
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "all checks passed\n"


def _two_nodes() -> list[str]:
    """mpiexec arguments for two nodes on one machine: two host names on loopback."""
    probe = subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or probe.returncode != 0:
        missing("namespaces", "a second node needs root and UTS namespaces")
    return ["-hosts", "127.0.0.2:2,127.0.0.3:2", "-launcher", "rsh", "-launcher-exec", str(HERE / "nsrsh"), "-n", "4"]


@pytest.mark.mpi
def test_on_two_nodes_everybody_restores_another_nodes_shard(mpiexec, place):
    """Two host names are two nodes; the restore crosses them, and the record says so."""
    (place / "job.toml").write_text(TINY)
    command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml", "--json"]
    ended = _mpiexec(mpiexec, *_two_nodes(), *command, cwd=place)
    assert ended.returncode in (0, 1), ended.stderr
    data = json.loads(ended.stdout)
    assert data["world"] == data["world"] | {"ranks": 4, "nodes": 2}
    record = files.load(next((place / "results").iterdir()))
    for phase in (each for each in record.phases if each.phase in (Phase.SAVE, Phase.RESTORE)):
        for node, bins in enumerate(phase.timeline.bins):
            mine = phase.rows[phase.rows["node"] == node]
            assert bins["bytes"].sum() == mine["bytes"].sum() > 0
            assert bins["data_op_count"].sum() == mine["data_op_count"].sum()
    assert "another node" in data["receipts"]["cold"]["evidence"]
    assert data["receipts"]["verified"]["state"] == "all"


@pytest.mark.mpi
def test_a_node_that_sees_another_directory_is_named(mpiexec, place):
    """A directory that is there on both nodes but is not the same one is refused before the first byte."""
    (place / "job.toml").write_text(TINY)
    script = place / "elsewhere.sh"
    script.write_text(
        "#!/bin/bash\n"
        '[ "$(hostname)" = 127.0.0.3 ] && exec unshare -m bash -c \'mount -t tmpfs x data; exec "$@"\' x "$@"\n'
        'exec "$@"\n'
    )
    script.chmod(0o755)
    (place / "data").mkdir()
    command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml", "--dir", "data"]
    ended = _mpiexec(mpiexec, *_two_nodes(), str(script), *command, cwd=place)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "127.0.0.3 does not see rank 0's mark" in ended.stderr
    assert list((place / "data").iterdir()) == []


@pytest.mark.mpi
def test_a_node_that_mounts_it_otherwise_is_the_odd_one(mpiexec, place):
    """The same directory, mounted with another option on one node, is refused with both options."""
    (place / "job.toml").write_text(TINY)
    script = place / "otherwise.sh"
    script.write_text(
        "#!/bin/bash\n"
        "mount='mount --bind data data && mount -o remount,bind,noexec data; exec \"$@\"'\n"
        '[ "$(hostname)" = 127.0.0.3 ] && exec unshare -m bash -c "$mount" x "$@"\n'
        'exec "$@"\n'
    )
    script.chmod(0o755)
    (place / "data").mkdir()
    command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml", "--dir", "data"]
    ended = _mpiexec(mpiexec, *_two_nodes(), str(script), *command, cwd=place)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "127.0.0.3 is the odd node: it is mounted there with noexec, where rank 0 has nothing" in ended.stderr
    assert list((place / "data").iterdir()) == []


def test_launchers_are_recognised():
    """Rank and size by what Hydra, Open MPI, PMIx and Slurm tell; a batch script's shell is no rank."""
    assert launched_rank({}) is None
    assert (launched_rank({"PMI_RANK": "3"}), launched_size({"PMI_SIZE": "8"})) == (3, 8)
    assert launched_rank({"OMPI_COMM_WORLD_RANK": "2"}) == 2
    assert launched_rank({"SLURM_PROCID": "0", "SLURM_JOB_ID": "5"}) is None
    step = {"SLURM_PROCID": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}
    assert (launched_rank(step), launched_size(step)) == (4, 8)


@pytest.mark.parametrize(
    ("size", "asked", "environment", "says"),
    [
        (1, 4, {}, "alone in a world of 1"),
        (1, None, {"SLURM_STEP_NUM_TASKS": "16"}, "16 ranks were asked for"),
        (4, 8, {}, "the launcher started 4"),
    ],
)
def test_a_wrong_world_is_explained(size, asked, environment, says):
    """Singletons and a wrong count name what came up, what was asked, and what to do."""
    with pytest.raises(LaunchError) as caught:
        check_world(size, asked, environment)
    assert says in "\n".join(caught.value.lines())
    check_world(4, 4, {})
    check_world(4, None, {})


@pytest.mark.mpi
def test_singletons_are_told_once(place, ckptstorm):
    """A launcher of another MPI makes worlds of one: rank 0's process explains, and the rest keep quiet."""
    (place / "job.toml").write_text(TINY)
    first = ckptstorm("run", "job.toml", SLURM_PROCID="0", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="4")
    other = ckptstorm("run", "job.toml", SLURM_PROCID="1", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="4")
    assert (first.code, other.code) == (2, 2)
    assert "4 ranks were asked for" in first.err
    assert "srun --mpi=pmi2" in first.err
    assert other.said == ""
