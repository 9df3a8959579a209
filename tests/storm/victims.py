"""A storm under way whose ranks can be killed and stopped: by number, and only those that this test started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import clean_environment

PATIENCE_S = 60.0


@dataclass
class Victim:
    """A storm's parent (or a foreign mpiexec), and what it said once it has ended."""

    place: Path
    process: subprocess.Popen[bytes]
    is_foreign: bool

    @property
    def out(self) -> str:
        """Standard output."""
        return (self.place / "out").read_text()

    @property
    def err(self) -> str:
        """Standard error."""
        return (self.place / "err").read_text()

    @property
    def data(self) -> dict[str, Any]:
        """What it printed, as JSON."""
        return json.loads(self.out)

    def rank(self, number: int) -> psutil.Process:
        """The process of a rank."""
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "-m ckptstorm" in " ".join(one.cmdline()) and one.environ().get("PMI_RANK") == str(number):
                    return one
        raise AssertionError(f"no rank {number}:\n{self.err}")

    def until(self, pattern: str) -> None:
        """Wait until a file of that pattern stands in the place."""
        self.wait_for(lambda: any(self.place.glob(pattern)), pattern)

    def until_said(self, text: str) -> None:
        """Wait until that was said on standard error."""
        self.wait_for(lambda: text in self.err, text)

    def wait_for(self, is_so, what: str) -> None:
        """Wait for anything, as long as the storm goes on."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self.process.poll() is None, f"ended before {what}:\n{self.err}"
            assert time.monotonic() < deadline, f"{what} never came:\n{self.err}"
            time.sleep(0.02)

    def ends(self) -> int:
        """Wait for its end; nothing that it started may be left."""
        code = self.process.wait(timeout=PATIENCE_S)
        if self.is_foreign:  # a launcher does not wait for those that it has killed; our parent does
            self.wait_for_none_left()
        assert self.left() == []
        return code

    def wait_for_none_left(self) -> None:
        """Wait until no process of it is left: one that waited inside the kernel may take a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while self.left():
            assert time.monotonic() < deadline, self.left()
            time.sleep(0.05)

    def left(self) -> list[int]:
        """Processes that carry this storm's mark in their environment, whoever is their parent by now."""
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mark = one.environ().get("VICTIM") == str(self.place)
                if mark and one.status() != psutil.STATUS_ZOMBIE and one.pid != os.getpid():
                    found.append(one.pid)
        return found


@contextlib.contextmanager
def victim(place: Path, job: str, *arguments: str, ranks: int = 3, launcher: tuple[str, ...] = ()) -> Iterator[Victim]:
    """Start a storm; whatever is left of it at the end is killed.

    Args:
        place: an empty directory of the test's own.
        job: its text.
        arguments: more of them.
        ranks: how many.
        launcher: words of a foreign launcher that starts the ranks; () lets `ckptstorm run --ranks` do it.
    """
    (place / "job.toml").write_text(job)
    rank = [sys.executable, "-P", "-m", *(["mpi4py", "-m"] if launcher else []), "ckptstorm", "run", "job.toml"]
    command = [*launcher, *rank, *([] if launcher else ["--ranks", str(ranks)]), *arguments]
    with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
        environment = clean_environment() | {"VICTIM": str(place)}
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, cwd=place)
    started = Victim(place, process, bool(launcher))
    try:
        yield started
    finally:
        for pid in started.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(timeout=PATIENCE_S)
