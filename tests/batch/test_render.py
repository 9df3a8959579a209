"""Rendered scripts against golden files, by hostile job and site files, and through bash's own parser.

Write the golden files anew with CKPTSTORM_WRITE_GOLDEN=1, and read the difference.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jinja2
import pytest

import ckptstorm
from ckptstorm.batch import render as rendering
from ckptstorm.batch.render import render
from ckptstorm.batch.script import Asked, script_of
from ckptstorm.batch.sitefile import decode
from ckptstorm.errors import JobError

GOLDEN = Path(__file__).parent / "golden"

PLAIN = """
[allocation]
ranks_per_node = 8
[storage]
directory = "/scratch/storm"
results = "/home/u/results"
save_bytes_per_s = "10GB"
"""
FULL = """
[allocation]
ranks_per_node = 4
account = "proj123"
partition = "gpu"
qos = "high"
constraint = "a100&nvme"
reservation = "acceptance"
memory = "100GiB"
gpus_per_node = 4
cpus_per_rank = 8
time_limit = "90min"
signal_before = "5min"
[launch]
mpi = "pmix"
arguments = ["--network=single_node_vni"]
memory_bind = "local"
distribution = "block:cyclic"
rails = ["mlx5_0:1", "mlx5_1:1"]
[software]
modules = ["openmpi/5.0"]
environment = { OMP_NUM_THREADS = "1" }
archive = "/proj/ckptstorm.tar"
[storage]
directory = "/scratch/storm"
results = "/home/u/results"
"""
MPIRUN = PLAIN + '[launch]\nlauncher = "mpirun"\narguments = ["--map-by", "core"]\n'
APPTAINER = PLAIN + '[container]\nruntime = "apptainer"\nimage = "/proj/c.sif"\nmounts = ["/etc/libibverbs.d"]\n'
PYXIS = PLAIN + '[container]\nruntime = "pyxis"\nimage = "registry#ckptstorm:1"\nmounts = ["/opt"]\n'
BATCH = """
[allocation]
ranks_per_node = 8
account = "proj123"
partition = "gpu"
gpus_per_node = 8
cpus_per_rank = 4
[storage]
directory = "/scratch/storm"
results = "/home/u/results"
"""
EVIL = "'; touch pwned; $(touch pwned) `touch pwned` \" \\ x"
HOSTILE = f"""
[allocation]
ranks_per_node = 2
account = {json.dumps(EVIL)}
partition = {json.dumps(EVIL)}
[launch]
arguments = [{json.dumps(EVIL)}, "two\\nlines #SBATCH --uid=0"]
distribution = {json.dumps(EVIL)}
[software]
modules = [{json.dumps(EVIL)}]
environment = {{ HOSTILE = "a\\n#SBATCH --uid=0\\n$(touch pwned)" }}
command = {json.dumps(EVIL)}
[storage]
directory = "/scratch/$(touch pwned)'; touch pwned;"
results = "/tmp/`touch pwned`"
"""

CASES = {
    "slurm-plain": (PLAIN, Asked("laptop", 16)),
    "slurm-full": (FULL, Asked("laptop", 8, ("storm.rounds=1",))),
    "slurm-mpirun": (MPIRUN, Asked("laptop", 16)),
    "slurm-apptainer": (APPTAINER, Asked("laptop", 8)),
    "slurm-pyxis": (PYXIS, Asked("laptop", 8)),
    "slurm-sweep": (
        PLAIN,
        Asked("laptop", None, (), ("ranks=4,16", "layout.name+parallel.sharding=dcp+fsdp2,deepspeed+zero3"),
              shape="sweep"),
    ),
    "slurm-split": (PLAIN, Asked("laptop", 16, shape="split")),
    "slurm-split-any": (PLAIN, Asked("laptop", 16, shape="split", restores_on="any")),
    "slurm-hostile": (HOSTILE, Asked("laptop", 4, ("model.name=gpt2-124m", "storm.allow=['warm']"))),
    "pbs": ("scheduler = 'pbs'\n" + BATCH, Asked("laptop", 16)),
    "flux": ("scheduler = 'flux'\n" + BATCH, Asked("laptop", 16)),
    "flux-mpirun": ("scheduler = 'flux'\n" + BATCH + "[launch]\nlauncher = 'mpirun'\n", Asked("laptop", 16)),
}  # fmt: skip


def rendered(name: str) -> str:
    """The script of a case, without what changes from version to version."""
    site, asked = CASES[name]
    return render(script_of(asked, decode(site, "site.toml"))).replace(ckptstorm.__version__, "VERSION")


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    """Word for word; and bash can parse it."""
    text, path = rendered(name), GOLDEN / f"{name}.sh"
    if os.environ.get("CKPTSTORM_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""


def test_hostile_values_are_words_and_nothing_runs(tmp_path):
    """The whole hostile script, run: its commands are not there, so each word arrives at a stand-in, whole."""
    for name in ("srun", "module", "mkdir"):
        (tmp_path / name).write_text('#!/bin/bash\nprintf "%s|" "$@" >> "$LOG"\n')
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log), "SLURM_JOB_ID": "7"}
    subprocess.run(["bash"], input=rendered("slurm-hostile"), text=True, env=environment, cwd=tmp_path, check=False)
    words = log.read_text().split("|")
    assert EVIL in words
    assert "two\nlines #SBATCH --uid=0" in words
    assert f"--distribution={EVIL}" in words
    assert "/scratch/$(touch pwned)'; touch pwned;/storm-7" in words
    assert not list(tmp_path.glob("**/pwned"))
    assert not Path("/tmp/pwned").exists()


def test_a_template_cannot_forget_to_quote(monkeypatch, tmp_path):
    """A template that prints a value without a filter fails; nothing is rendered."""
    (tmp_path / "slurm.sh.j2").write_text("#SBATCH --account={{ allocation.account }}\n")
    monkeypatch.setattr(rendering, "slurm_folder", lambda: tmp_path)
    rendering._environment.cache_clear()
    try:
        with pytest.raises(TypeError, match="without a filter that quotes it"):
            render(script_of(Asked("laptop", 8), decode(FULL, "s")))
        (tmp_path / "slurm.sh.j2").write_text("{{ no_such_name | word }}\n")
        with pytest.raises(jinja2.UndefinedError):
            render(script_of(Asked("laptop", 8), decode(FULL, "s")))
    finally:
        rendering._environment.cache_clear()


def test_what_cannot_be_is_refused_before_a_job_waits_in_a_queue():
    """Shapes without a template, worlds that the job cannot be on, variables that are not set here."""
    with pytest.raises(JobError, match="the template for pbs runs one storm"):
        render(script_of(Asked("laptop", 4, shape="split"), decode("scheduler = 'pbs'", "s")))
    with pytest.raises(JobError, match=r"^ranks=6: \[parallel\].* does not divide the 6 ranks") as raised:
        script_of(Asked("megatron-dist", None, ("parallel.tensor=4",), ("ranks=16,6",), shape="sweep"), decode("", "s"))
    assert "keys that must change together" in raised.value.hint
    with pytest.raises(JobError, match="NO_SUCH_VARIABLE is not set here"):
        script_of(Asked("laptop", 4, directory="${NO_SUCH_VARIABLE}/x"), decode("", "s"))


def test_the_estimate_grows_with_the_work_and_says_how_it_came_about():
    """Twice the rounds at half the speed; the site's own limit replaces it."""
    slow = PLAIN.replace("10GB", "10MB")
    quick, long = (script_of(Asked("laptop", 16), decode(site, "s")).limit for site in (PLAIN, slow))
    assert quick.minutes < 20 < long.minutes
    assert "3 rounds of 1.40 GiB" in long.sentence
    assert "as the site says" in long.sentence
    assert script_of(Asked("laptop", 8), decode(FULL, "s")).limit.minutes == 90
    loads = script_of(Asked("random-4k", 8), decode(PLAIN, "s")).limit
    assert "62 s of loads a round" in loads.sentence
    assert loads.minutes > quick.minutes
    asked = Asked("laptop", 16, ("storm.rounds=4096", "storm.duration=10min"))
    assert 20 <= script_of(asked, decode(PLAIN, "s")).limit.minutes < 60
