"""Engines with a communicator: files that ranks share, uneven shards, and a rank that stops in the middle."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from tests.require import missing

pytestmark = pytest.mark.mpi

SCRIPT = Path(__file__).with_name("shared_on_ranks.py")
#: A rank left alone in a collective waits for ever: this is far above what any of these takes.
PATIENCE_S = 60


def run(command, place, **environment):
    """Run it in a directory of the test's own; its code and what it said."""
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=place, check=False,
        env=clean_environment() | environment,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("what", ["whole", "stopped"])
@pytest.mark.parametrize("mode", ["independent", "collective"])
def test_mpiio_shares_a_file(mpiexec, tmp_path, mode, what):
    """Three ranks with 3, 2 and 1 blocks write one file and read it back; one that stops leaves nobody waiting."""
    run([mpiexec, "-n", "3", sys.executable, "-P", "-m", "mpi4py", str(SCRIPT), "mpiio", mode, what, "."], tmp_path)


@pytest.fixture(scope="session")
def parallel_python(tmp_path_factory):
    """(mpirun, an interpreter whose h5py was built with MPI, where the package lies for it alone)."""
    mpirun, python = shutil.which("mpirun", path="/usr/bin"), "/usr/bin/python3"
    asks = "import h5py, mpi4py, sys; sys.exit(not h5py.get_config().mpi)"
    environment = clean_environment() | {"H5PY_ALWAYS_USE_MPI": "1"}
    found = mpirun and subprocess.run(
        [python, "-c", asks], env=environment, capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    if not found:
        missing("parallel-hdf5", "no h5py with MPI here: apt-get install python3-h5py-mpi python3-mpi4py")
    alone = tmp_path_factory.mktemp("package")
    package = Path(importlib.util.find_spec("ckptstorm").origin).parent
    (alone / "ckptstorm").symlink_to(package)
    return mpirun, python, str(alone)


@pytest.mark.parametrize("what", ["whole", "stopped"])
@pytest.mark.parametrize("mode", ["independent", "collective"])
def test_hdf5_shares_a_file(parallel_python, tmp_path, mode, what):
    """The same through h5py built with MPI."""
    mpirun, python, alone = parallel_python
    flags = ["--allow-run-as-root", "--oversubscribe", "-n", "3"]
    command = [mpirun, *flags, python, "-m", "mpi4py", str(SCRIPT), "hdf5", mode, what, "."]
    run(command, tmp_path, H5PY_ALWAYS_USE_MPI="1", PYTHONPATH=alone, OMPI_MCA_btl_vader_single_copy_mechanism="none")
    assert os.path.getsize(tmp_path / "step-1" / "shared") >= 9 * 100_003
