"""How ranks come into being: an `mpiexec` of this Python's own environment starts them.

Imports no MPI: the parent that starts ranks is no MPI process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from ckptstorm.errors import EXIT_INTERRUPTED, LaunchError

#: What mpiexec ends with when the ranks ended in order.
ORDERLY = (0, 1, 2, 3, 4, EXIT_INTERRUPTED)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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


def start(rank_count: int, arguments: Sequence[str], more_environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `rank_count` ranks of `ckptstorm ARGUMENTS`, in a session of their own.

    Raises:
        LaunchError: there is no mpiexec.
    """
    command = [find_mpiexec(), "-n", str(rank_count), *rank_command(arguments)]
    environment = {**os.environ, **_open_mpi_needs(), **more_environment}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, start_new_session=True, preexec_fn=_end_with_parent
    )


@contextlib.contextmanager
def passing_signals_on(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """While inside, a signal that asks this process to end asks the ranks instead.

    Yields:
        The signals passed on so far.
    """
    passed_on: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        passed_on.append(number)
        process.send_signal(signal.SIGTERM)  # Hydra comments on a SIGINT, on our standard output

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield passed_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def adopt_orphans() -> None:
    """From now on, processes below this one whose parents end become its own children, and can be found and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[int]:
    """Every process that this one started, directly or not."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                parents[int(name)] = 0 if fields[0] in (b"Z", b"X") else int(fields[1])
    found, fresh = set[int](), {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return sorted(found)


def end_descendants(patience_s: float) -> list[int]:
    """Kill every process that this one started, and collect them.

    Returns:
        Those that do not end: they wait inside the kernel for a storage that does not answer.
    """
    deadline = time.monotonic() + patience_s
    while True:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _end_with_parent() -> None:
    """In the child, before mpiexec: when this parent dies (a closed terminal, kill -9), the storm ends in order too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _open_mpi_needs() -> dict[str, str]:
    """What Open MPI wants before it starts more ranks than cores, or as root; other MPIs ignore it."""
    needs = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    if os.geteuid() == 0:
        needs |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {name: value for name, value in needs.items() if name not in os.environ}
