"""How ranks come into being: an `mpiexec` of this Python's own environment starts them.

Imports no MPI: the parent that starts ranks is no MPI process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ckptstorm.errors import EXIT_INTERRUPTED, LaunchError

#: What mpiexec ends with when the ranks ended in order.
ORDERLY = (0, 1, 2, 3, 4, EXIT_INTERRUPTED)
_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def find_mpiexec() -> str:
    """The mpiexec of this Python's own environment, else the one on PATH.

    Raises:
        LaunchError: there is none; says how to get one.
    """
    own = Path(sysconfig.get_path("scripts")) / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec") or shutil.which("mpirun")
    if found is None:
        raise LaunchError(
            "no mpiexec was found in this Python's environment or on PATH",
            "install one with `pip install 'ckptstorm[local]'`, load your site's MPI module, or start the ranks "
            "yourself: mpirun -n 4 python -P -m mpi4py -m ckptstorm run JOB",
        )
    return found


def rank_command(arguments: Sequence[str]) -> list[str]:
    """A rank's command line: -P keeps the current directory off the path, mpi4py ends all when one raises."""
    return [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", *arguments]


def start_ranks(rank_count: int, arguments: Sequence[str]) -> int:
    """Start `rank_count` ranks of `ckptstorm ARGUMENTS`, pass signals on, wait.

    Returns:
        What mpiexec ended with; `EXIT_INTERRUPTED` when a signal ended it before the ranks could answer.
    """
    command = [find_mpiexec(), "-n", str(rank_count), *rank_command(arguments)]
    environment = {**os.environ, **_open_mpi_needs()}
    process = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_end_with_parent)
    passed_on: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        passed_on.append(number)
        process.send_signal(signal.SIGTERM)  # Hydra comments on a SIGINT, on our standard output

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        ended = process.wait()
        # Ranks that had not come up yet end by the signal itself: interrupted all the same, and no rank was lost.
        return EXIT_INTERRUPTED if passed_on and ended not in ORDERLY else ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with_parent() -> None:
    """In the child, before mpiexec: when this parent dies (a closed terminal, kill -9), the storm ends in order too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _open_mpi_needs() -> dict[str, str]:
    """What Open MPI wants before it starts more ranks than cores, or as root; other MPIs ignore it."""
    needs = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    if os.geteuid() == 0:
        needs |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {name: value for name, value in needs.items() if name not in os.environ}
