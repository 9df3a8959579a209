"""Makes tests/data/results anew, by real storms on this machine: python -P tests/data/make_results.py (as root).

Two nodes are two host names (tests/services/nodes.py), the second system is JuiceFS with a client a node. The tests
read what stands in git; this is how it came to be, and how to make it again after a change of the record.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.conftest import clean_environment  # noqa: E402
from tests.services.juicefs import juicefs  # noqa: E402
from tests.services.nodes import mpiexec_arguments  # noqa: E402

_ATTEMPTS = 6
RESULTS = HERE / "results"
MPIEXEC = str(Path(sys.executable).parent / "mpiexec")


class Maker:
    """Runs storms below one temporary folder."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def on_one_node(self, name: str, job: str, ranks: int) -> None:
        """A storm of as many ranks, started by the tool itself."""
        self._keep(name, ["--ranks", str(ranks)], job, self._place / "data")

    def on_two_nodes(self, name: str, job: str, ranks_per_node: int, clients: tuple[Path | None, ...]) -> None:
        """A storm under mpiexec, each node with its own client of the file system (None: the local disk)."""
        at = self._place / "mount"
        arguments = mpiexec_arguments(self._place, clients, at, ranks_per_node)
        self._keep(name, [], job, at / "data", [MPIEXEC, *arguments])

    def _keep(self, name: str, arguments: list[str], job: str, directory: Path, start: list[str] | None = None) -> None:
        results = self._place / "results"
        python = [sys.executable, "-P", *(["-m", "mpi4py"] if start else []), "-m", "ckptstorm"]
        run = [
            "run",
            str(HERE / "jobs" / f"{job}.toml"),
            "--dir",
            str(directory),
            "--results",
            str(results),
            *arguments,
        ]
        command = [*(start or []), *python, *run]
        for _ in range(_ATTEMPTS):  # on a machine that others use a storm may be client bound, and then is not valid
            ended = subprocess.run(command, cwd=self._place, env=clean_environment(), check=False)
            if ended.returncode == 0:
                break
            shutil.rmtree(results, ignore_errors=True)
        assert ended.returncode == 0, f"{name}: exit code {ended.returncode}"
        (RESULTS / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(next(results.iterdir()), RESULTS / name)


def main() -> None:
    """All of them."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="storms-", dir="/var/tmp") as place, juicefs(clients=2) as other:
        maker = Maker(Path(place))
        maker.on_two_nodes("straggler", "straggler", 4, (None, None))
        for ranks in (1, 2, 4, 8):
            maker.on_one_node(f"scaling/ranks-{ranks}", "steady", ranks)
        maker.on_one_node("interference", "interference", 4)
        maker.on_two_nodes("systems/disk", "steady", 2, (None, None))
        maker.on_two_nodes("systems/juicefs", "steady", 2, other.mounts)


if __name__ == "__main__":
    main()
