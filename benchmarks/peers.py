"""Runs of other storage benchmarks: each takes a case, and gives back a rate in the case's own unit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be done by both sides, in the same way.

    Attributes:
        name: for the table.
        verb: write, read, randwrite, randread, null, or create, stat, unlink.
        block_bytes, total_bytes: of each op and of all; `file_bytes` is how large the file is.
        mode, queue_depth, is_direct: as in `[io]` of a job.
        with_fsync: an fsync ends the writes, inside the time.
        ranks: processes side by side; each has a file of its own.
        seconds: how long it goes on, 0.5 s of ramp before not counted; 0: until total_bytes have moved.
        peers: what to compare with, when it is found on PATH.
    """

    name: str
    verb: str
    peers: tuple[str, ...]
    block_bytes: int = 4 * KIB
    total_bytes: int = 1 << 30
    file_bytes: int = 256 * MIB
    mode: str = "sync"
    queue_depth: int = 1
    is_direct: bool = False
    with_fsync: bool = False
    ranks: int = 1
    file_count: int = 100_000
    seconds: float = 0.0

    @property
    def is_random(self) -> bool:
        """Ops a second are compared, else bytes a second."""
        return self.verb.startswith("rand")

    @property
    def is_metadata(self) -> bool:
        """Files a second are compared."""
        return self.verb in ("create", "stat", "unlink")


def find(peer: str) -> str:
    """The program that a peer needs, or ""; a bare loop of system calls needs a compiler."""
    name = peer.split(":")[0]
    return shutil.which("cc" if name == "bare" else name) or ""


def rate(peer: str, case: Case, directory: str) -> float:
    """Ops, bytes or files a second of a peer; "fio:psync" is fio with that engine."""
    program, _, engine = peer.partition(":")
    runs = {"fio": _fio, "ior": _ior, "mdtest": _mdtest, "elbencho": _elbencho, "bare": _bare}
    return runs[program](case, directory, engine)


def _run(command: list[str], ranks: int = 1) -> str:
    if ranks > 1:
        command = ["mpiexec", "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _fio(case: Case, directory: str, engine: str) -> float:
    """scramble_buffers=0: both sides write the same bytes again and again, and pay for no new ones."""
    files = [f"--directory={directory}", f"--numjobs={case.ranks}", "--group_reporting"]
    span = [f"--runtime={case.seconds * 1000:.0f}ms", "--time_based", "--ramp_time=500ms"]
    command = [
        "fio", "--name=f", f"--rw={case.verb}", f"--bs={case.block_bytes}",
        *(files if case.ranks > 1 else [f"--filename={directory}/f"]), *(span if case.seconds else []),
        f"--size={case.file_bytes}", f"--io_size={case.total_bytes}", f"--ioengine={engine}",
        f"--iodepth={case.queue_depth}", f"--direct={int(case.is_direct)}", "--norandommap=1", "--overwrite=1",
        "--scramble_buffers=0", "--invalidate=0", f"--end_fsync={int(case.with_fsync)}", "--output-format=json",
    ]  # fmt: skip
    job = json.loads(_run(command))["jobs"][0][case.verb.removeprefix("rand")]
    return float(job["iops"] if case.is_random else job["bw_bytes"])


def _bare(case: Case, directory: str, engine: str) -> float:
    """No peer but the floor: the same system calls in a loop of C, compiled on first use."""
    del engine
    program = os.path.join(directory, "bare")
    if not os.path.exists(program):
        _run(["cc", "-O2", "-o", program, os.path.join(os.path.dirname(__file__), "bare.c")])
    sizes = [case.block_bytes, case.file_bytes, case.total_bytes // case.block_bytes]
    return float(_run([program, case.verb.removeprefix("rand"), f"{directory}/f", *map(str, sizes)]))


def _ior(case: Case, directory: str, engine: str) -> float:
    del engine
    command = ["ior", "-a", "POSIX", "-t", str(case.block_bytes), "-b", str(case.file_bytes), "-k", "-E"]
    command += ["-o", f"{directory}/f", "-w" if case.verb == "write" else "-r"]
    command += ["-e"] * case.with_fsync + ["--posix.odirect"] * case.is_direct
    line = re.search(rf"^{case.verb}\s+([\d.]+)", _run(command), re.MULTILINE)
    assert line, "IOR prints one line a phase"
    return float(line[1]) * MIB


def _mdtest(case: Case, directory: str, engine: str) -> float:
    del engine
    flags = {"create": "-C", "stat": "-T", "unlink": "-r"}[case.verb]
    top = f"{directory}/mdtest"
    os.makedirs(top, exist_ok=True)
    command = ["mdtest", "-n", str(case.file_count), "-F", "-d", top]
    before = {"create": [], "stat": ["-C"], "unlink": ["-C"]}[case.verb]
    if before:
        _run([*command, *before], case.ranks)
    text = _run([*command, flags], case.ranks)
    shutil.rmtree(top, ignore_errors=True)
    word = {"create": "File creation", "stat": "File stat", "unlink": "File removal"}[case.verb]
    line = re.search(rf"{word}\s+([\d.]+)", text)
    assert line, "mdtest prints one line a phase"
    return float(line[1])


def _elbencho(case: Case, directory: str, engine: str) -> float:
    del engine
    command = ["elbencho", "-w" if case.verb.endswith("write") else "-r", "-t", "1", "-b", str(case.block_bytes)]
    command += ["-s", str(case.file_bytes), "--iodepth", str(case.queue_depth), "--nolive", f"{directory}/f"]
    command += ["--direct"] * case.is_direct + (
        ["--rand", "--randamount", str(case.total_bytes)] if case.is_random else []
    )
    word = "IOPS" if case.is_random else "Throughput MiB/s"
    line = re.search(rf"{word}\s+:\s+[\d.]+\s+([\d.]+)", _run(command))
    assert line, "elbencho prints first done, then last done"
    return float(line[1]) * (1 if case.is_random else MIB)
