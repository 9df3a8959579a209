"""Start-up that does not itself storm: the packed environment, staged to every node, counted by strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ckptstorm.batch import pack as packing
from ckptstorm.errors import PlaceError
from tests.batch.test_sbatch import SITE, results_below, sbatch, told
from tests.require import missing

pytestmark = [pytest.mark.mpi, pytest.mark.io]
START = Path(__file__).parent / "up_to_the_first_barrier.py"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """This environment, packed."""
    path = tmp_path_factory.mktemp("packed") / "ckptstorm.tar"
    packed = packing.pack(str(path))
    assert {"ckptstorm", "numpy", "mpi4py", "msgspec"} <= set(packed.packages)
    assert not {"pytest", "mypy", "pandas"} & set(packed.packages)
    return path


def calls_on(prefix: str, traces: Path) -> list[int]:
    """File system calls of each rank that name a path below `prefix`, or a descriptor that leads there."""
    return [
        sum(prefix in line for line in path.read_text(errors="replace").splitlines())
        for path in sorted(traces.glob("rank.*"))
    ]


def test_a_staged_start_leaves_the_shared_file_system_alone(cluster, place, archive):
    """Before the first barrier: thousands of calls a rank on the shared disk without staging, none with it."""
    if shutil.which("strace") is None:
        missing("strace", "apt-get install strace")
    staged = place / "node-local"
    subprocess.run(["mkdir", str(staged)], check=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(staged)], check=True)
    counts = {}
    for name, prefix in (("shared", sys.prefix), ("staged", str(staged))):
        traces = place / name
        traces.mkdir()
        calls = "trace=%file,read,pread64,fstat,newfstatat,getdents64,lseek,mmap,close"
        rank = f"exec strace -f -qq -y -e {calls} -o {traces}/rank.$SLURM_PROCID {prefix}/bin/python -P {START}"
        cluster.command("srun", "-N2", "-n2", "bash", "-c", rank)
        counts[name] = calls_on(f"{sys.prefix}/", traces)
    print("calls on the shared file system before the first barrier, by rank:", counts)
    assert len(counts["shared"]) == len(counts["staged"]) == 2
    assert min(counts["shared"]) > 500
    assert max(counts["staged"]) == 0


def test_a_batch_job_stages_its_archive_and_takes_it_away(cluster, place, archive):
    """sbcast to both nodes, unpacked once on each; the ranks run from there; nothing stays behind."""
    local = place / "local"
    local.mkdir()
    site = SITE.split("[software]")[0] + f'[software]\narchive = "{archive}"\nstage_to = "{local}/$SLURMD_NODENAME"\n'
    # The emulated nodes share one disk: one is enough to show the staging.
    site = site.replace("/$SLURMD_NODENAME", "").replace("ranks_per_node = 2", "ranks_per_node = 4")
    ended = sbatch(cluster, place, "--ranks", "2", "--wait", site=site)
    assert ended.code in (0, 1), ended.said
    (folder,) = results_below(place / "results")
    prefix = told(folder)["environment"]["prefix"]
    assert re.fullmatch(rf"{re.escape(str(local))}/ckptstorm-[0-9]+", prefix)
    assert list(local.iterdir()) == []


def test_what_cannot_be_staged_is_said_before_anything_runs(cluster, place):
    """A missing archive, and a folder that somebody else has put there: exit code 2, and why."""
    site = SITE.split("[software]")[0] + f'[software]\narchive = "{place}/absent.tar"\nstage_to = "{place}"\n'
    ended = sbatch(cluster, place, "--ranks", "2", "--wait", site=site)
    assert ended.code == 2
    assert "could not be staged to every node" in ended.err


def test_the_archive_holds_what_is_needed_and_refuses_what_is_not_there(archive, tmp_path, monkeypatch):
    """No path leads out of it; the interpreter is a link; outside a virtual environment it is refused."""
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        assert tar.getmember("bin/python").linkname == os.path.realpath(sys.executable)
    assert not any(name.startswith(("/", "..")) or "/../" in name for name in names)
    with pytest.raises(PlaceError, match="cannot be written"):
        packing.pack(str(tmp_path / "absent/x.tar"))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(PlaceError, match="no virtual environment"):
        packing.pack(str(tmp_path / "x.tar"))
