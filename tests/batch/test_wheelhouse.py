"""The recipe for clusters without internet: the wheelhouse is filled, and installs where there is no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.require import missing

ROOT = Path(__file__).parents[2]


@pytest.mark.io
def test_what_the_wheelhouse_holds_installs_without_a_network(tmp_path):
    """The script as it is documented; then a fresh environment in a namespace that has not even a loopback."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        missing("namespaces", "a place without a network needs root")
    source, house, env = tmp_path / "source", tmp_path / "house", tmp_path / "env"
    for name in ("ckptstorm", "jobs", "slurm"):  # a copy: nothing is built into a developer's tree
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("meson.build", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    filled = subprocess.run(  # without a compiler: its work is not what is tested
        ["bash", str(source / "slurm/wheelhouse.sh"), str(house)],
        env=os.environ | {"PYTHON": sys.executable, "CC": "false"},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    if "Could not find a version" in filled.stderr or "Connection" in filled.stderr:
        missing("registry", filled.stderr[-300:])
    assert filled.returncode == 0, filled.stderr
    assert any(path.name.startswith("ckptstorm-") for path in house.glob("*.whl"))
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    offline = ["unshare", "--net"]
    install = [*offline, str(env / "bin/pip"), "install", "-q", "--no-index", "--find-links", str(house), "ckptstorm"]
    ended = subprocess.run(install, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    shown = subprocess.run(
        [*offline, str(env / "bin/ckptstorm"), "sbatch", "laptop", "--site", "one-node", "--ranks", "4"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH --ntasks-per-node=4" in shown.stdout
