"""JuiceFS: metadata in SQLite, objects in a folder, and as many clients as asked for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.require import missing
from tests.services.machine import folder, mounted, need, run, until


@dataclass(frozen=True)
class JuiceFS:
    """A formatted file system.

    Attributes:
        folder: free for the test's own files.
        program: `juicefs`.
        metadata: its address ("sqlite3://…").
        objects: where the data lands.
        mounts: one a client, each with a cache of its own.
    """

    folder: Path
    program: Path
    metadata: str
    objects: Path
    mounts: tuple[Path, ...]


@contextlib.contextmanager
def juicefs(clients: int = 2, options: tuple[str, ...] = ()) -> Iterator[JuiceFS]:
    """Bring it up (about a second), and take it down.

    Args:
        clients: how many mounts.
        options: of each mount: ("--writeback",) makes fsync lie, ("--upload-limit", "160") makes saves slow (Mbit/s).
    """
    need("juicefs")
    program = Path(sys.executable).parent / "juicefs"
    if not program.exists():
        missing("juicefs", f"{program}: not installed")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder("juicefs"))
        metadata = f"sqlite3://{place}/meta.db"
        objects = place / "objects"
        form = ("--storage", "file", "--bucket", f"{objects}/", "--trash-days", "0")
        run(program, "format", *form, metadata, "ckpt")
        mounts = tuple(_client(stack, place, program, number, options) for number in range(1, clients + 1))
        yield JuiceFS(place, program, metadata, objects, mounts)


def _client(stack: contextlib.ExitStack, place: Path, program: Path, number: int, options: tuple[str, ...]) -> Path:
    mount = place / f"client{number}"
    mount.mkdir()
    own = ("--cache-dir", place / f"cache{number}", "--log", place / f"client{number}.log")
    run(program, "mount", "-d", "--no-usage-report", *own, *options, f"sqlite3://{place}/meta.db", mount)
    told = json.loads((mount / ".config").read_text())
    stack.callback(_end, int(told["PPid"]), int(told["Pid"]))
    stack.enter_context(mounted(mount))
    return mount


def _end(*pids: int) -> None:
    """An unmounted client lingers for seconds over data that is thrown away."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the client has ended")
