"""What the kernel was asked for: ranks started under strace, and their logs as calls by phase."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

# A rank's threads go to files of their own (-ff), so no call is cut in two by another thread's.
_STRACE = ("strace", "-ff", "--seccomp-bpf", "-y", "-s", "0")
_TRACED = (
    "openat,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,stat,newfstatat,statx,"
    "read,pread64,readv,write,pwrite64,writev,fsync,fdatasync,close,chmod,sendfile,getdents64"
)
_CALL = re.compile(r"(?P<name>\w+)\((?P<told>.*)\)\s+= (?P<result>-?\d+)(?:<[^>]*>)?(?: (?P<errno>E[A-Z]+))?")
_PATH = re.compile(r'<(?P<open>/[^>]*)>|"(?P<named>/[^"]*)"')
#: The phase of calls by a thread that marks none: a writer of DCP's `thread_count`.
THREAD = "thread"
_MARK = re.compile(r'"/MARK/(\w+)"')
_ASKED = re.compile(r", (\d+)$")
#: Importing torch under strace takes about 10 s; a hang must not hold the suite.
_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Traced:
    """One system call on the checkpoint.

    Attributes:
        phase: how many marks the rank had passed, and the last one: "save 0", "save 1", "restore 0".
        name: the system call.
        file: relative to the checkpoint directory, "" for the directory itself.
        asked_bytes: read and write: the length that was asked for.
        result: what it returned.
        errno: the name of the error, or "".
        is_write: whether an open is for writing.
        target: rename: the new name.
    """

    phase: str
    name: str
    file: str
    asked_bytes: int
    result: int
    errno: str
    is_write: bool
    target: str


def trace(python: str, folder: Path, task: dict[str, object]) -> list[list[Traced]]:
    """Run a reference script once a rank under strace; the calls of each rank on `folder`/checkpoint.

    Args:
        python: an interpreter that has torch.
        folder: an empty directory.
        task: `rank_count`, `tensors` (name and shape), `threads`, `saves`; `script` (dcp_reference.py).
    """
    rank_count = int(str(task["rank_count"]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = folder / "task.json"
    told.write_text(json.dumps(task | {"port": port, "directory": str(folder / "checkpoint")}))
    script = str(Path(__file__).with_name(str(task.get("script", "dcp_reference.py"))))
    ranks = []
    for rank in range(rank_count):
        logs = ("-o", str(folder / f"rank-{rank}"), "-e", f"trace={_TRACED}")
        with (folder / f"said-{rank}").open("wb") as said:
            command = [*_STRACE, *logs, python, script, str(told), str(rank)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen(command, stdout=said, stderr=said, env=environment))
    try:
        codes = [process.wait(_PATIENCE_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    said = "".join((folder / f"said-{rank}").read_text() for rank in range(rank_count))
    assert codes == [0] * rank_count, said
    return [_calls(folder, rank) for rank in range(rank_count)]


def _calls(folder: Path, rank: int) -> list[Traced]:
    """Calls of the rank's threads on the checkpoint; DCP with one thread works on the main one."""
    calls: list[Traced] = []
    for log in sorted(folder.glob(f"rank-{rank}.*")):
        text = log.read_text(errors="replace")
        phase, seen = "" if _MARK.search(text) else THREAD, 0
        for line in text.splitlines():
            mark = _MARK.search(line)
            if mark:
                seen += mark[1] == "save"
                phase = f"{mark[1]} {seen - 1}"
            elif phase and (call := _call(line, phase, str(folder / "checkpoint"))):
                calls.append(call)
    return calls


def _call(line: str, phase: str, directory: str) -> Traced | None:
    match = _CALL.match(line)
    if match is None:
        return None
    paths = [found["open"] or found["named"] for found in _PATH.finditer(match["told"])]
    inside = [path[len(directory) + 1 :] for path in paths if path == directory or path.startswith(f"{directory}/")]
    if not inside:
        return None
    asked = _ASKED.search(match["told"])
    return Traced(
        phase=phase,
        name=match["name"],
        file=inside[0],
        asked_bytes=int(asked[1]) if asked else 0,
        result=int(match["result"]),
        errno=match["errno"] or "",
        is_write="O_WRONLY" in match["told"] or "O_RDWR" in match["told"],
        target=inside[-1] if match["name"].startswith("rename") else "",
    )
