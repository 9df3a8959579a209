"""Fixtures that start real storms: the installed package, a real mpiexec, a directory of the test's own."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = str(Path(__file__).parents[1])


def _import_the_installed_package() -> None:
    """What is tested must be what was installed; but pytest puts the source tree first on the path."""
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if entry != _ROOT]
    try:
        importlib.import_module("ckptstorm")
    except ImportError:  # not installed: a developer's run from the source tree
        pass
    finally:
        sys.path[:] = path


_import_the_installed_package()

#: Far above what any storm here takes: a hang fails the test, and names the command.
PATIENCE_S = 100

TINY = """
[io]
engine = "posix"
[storm]
rounds = 1
allow = ["tmpfs", "warm"]
[model]
name = "gpt2-124m"
layers = 1
vocab = 1000
"""


@dataclass
class Ended:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Both streams."""
        return self.out + self.err

    @property
    def data(self) -> dict[str, Any]:
        """What it printed, as JSON."""
        return json.loads(self.out)


def clean_environment() -> dict[str, str]:
    """No launcher's variables: a test may itself run under Slurm or mpiexec."""
    ours = ("PMI", "OMPI", "PMIX", "SLURM", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the test's own, as the current one: a source tree must not be what runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


Ckptstorm = Callable[..., Ended]


@pytest.fixture
def ckptstorm(place: Path) -> Ckptstorm:
    """Run the command line as a user would."""

    def run(*arguments: str, **environment: str) -> Ended:
        command = [sys.executable, "-P", "-m", "ckptstorm", *arguments]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=clean_environment() | environment,
            cwd=place,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def storm(place: Path, ckptstorm: Ckptstorm) -> Callable[..., Ended]:
    """Run a storm of a tiny model (or of the job text given) and return its summary as JSON."""

    def run(*arguments: str, ranks: int = 2, job: str = TINY, **environment: str) -> Ended:
        (place / "job.toml").write_text(job)
        return ckptstorm("run", "job.toml", "--ranks", str(ranks), "--json", *arguments, **environment)

    return run


@pytest.fixture
def mpiexec() -> str:
    """The mpiexec of this environment."""
    found = Path(sys.executable).parent / "mpiexec"
    return str(found) if found.exists() else shutil.which("mpiexec") or pytest.fail("no mpiexec")
