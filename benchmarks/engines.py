"""The native engine beside other storage benchmarks: same file system, same sizes, same flags, in turns.

    python benchmarks/engines.py                                  # tmpfs and the current directory
    python benchmarks/engines.py --only randwrite --pairs 15 --disk /mnt/scratch --plot ratios.png

Both sides run in turns, pair by pair, so that what disturbs the machine disturbs both. A ratio above 1
means that ckptstorm is faster; the table shows the median over the pairs, and the quartiles beside it.
Peers that are not on PATH are left out, and named. Our side writes without payload here (the same bytes
again and again), as the peers do; every op's latency is recorded on both sides.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from peers import KIB, MIB, Case, find, rate

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.native_engine import NativeEngine
from ckptstorm.payload import Payload
from ckptstorm.program import OP_DTYPE, Kind, Ops, Path, Program, op, open_length
from ckptstorm.sinks import KeepTimes, OpTimes

_SMALL = Case("", "", ())
_DISK = replace(_SMALL, is_direct=True, total_bytes=512 * MIB, queue_depth=32)
_LARGE = replace(_SMALL, block_bytes=MIB, file_bytes=1 << 30)
TMPFS = [
    replace(_SMALL, name="4 KiB random write, sync", verb="randwrite", peers=("fio:psync", "bare")),
    replace(_SMALL, name="4 KiB random read, sync", verb="randread", peers=("fio:psync", "bare")),
    *(
        replace(_SMALL, name=f"4 KiB {word}, {mode} 32", verb=verb, peers=(f"fio:{mode}",), mode=mode, queue_depth=32)
        for mode in ("io_uring", "libaio")
        for word, verb in (("random write", "randwrite"), ("random read", "randread"))
    ),
    replace(_LARGE, name="1 MiB write + fsync", verb="write", peers=("fio:psync", "ior", "elbencho"), with_fsync=True),
    replace(_LARGE, name="1 MiB read", verb="read", peers=("fio:psync", "ior", "elbencho")),
    *(
        replace(_SMALL, name=f"{verb} empty files, {ranks} rank(s)", verb=verb, peers=("mdtest",), ranks=ranks)
        for verb in ("create", "stat", "unlink")
        for ranks in (1, 2)
    ),
]
DISK = [
    *(
        replace(_DISK, name=f"4 KiB {word}, O_DIRECT, {mode} 32", verb=verb, peers=(f"fio:{mode}",), mode=mode)
        for mode in ("io_uring", "libaio")
        for word, verb in (("random write", "randwrite"), ("random read", "randread"))
    ),
    *(
        replace(_LARGE, name=name, verb=verb, peers=("fio:psync", "ior"), with_fsync=verb == "write", is_direct=True)
        for name, verb in (("1 MiB write + fsync, O_DIRECT", "write"), ("1 MiB read, O_DIRECT", "read"))
    ),
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the table: rates of both sides, pair by pair."""

    case: Case
    place: str
    peer: str
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """Ours over theirs, pair by pair."""
        return sorted(mine / yours for mine, yours in zip(self.ours, self.theirs, strict=True))

    def line(self) -> str:
        """As text."""
        unit, scale = (" k/s", 1e3) if self.case.is_random or self.case.is_metadata else ("MB/s", 1e6)
        low, middle, high = statistics.quantiles(self.ratios, n=4)
        mine, yours = (statistics.median(rates) / scale for rates in (self.ours, self.theirs))
        return (
            f"{self.case.name:<38} {self.place:<6} {self.peer:<13} {mine:>9.0f} {yours:>9.0f} {unit}"
            f"   {middle:5.2f}  [{low:.2f} .. {high:.2f}]"
        )


def data_program(case: Case, seed: int) -> Program:
    """Open, the case's reads or writes, fsync when it has one, close."""
    count, blocks = case.total_bytes // case.block_bytes, case.file_bytes // case.block_bytes
    ops = np.zeros(count + 2 + case.with_fsync, dtype=OP_DTYPE)
    order = np.random.default_rng(seed).integers(0, blocks, count) if case.is_random else np.arange(count) % blocks
    ops["kind"] = Kind.WRITE if case.verb.endswith("write") else Kind.READ
    ops["offset_bytes"][1 : count + 1] = order * case.block_bytes
    ops["length_bytes"] = case.block_bytes
    direct = os.O_DIRECT if case.is_direct else 0
    ops[0] = op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDWR | os.O_CREAT | direct))
    ops[-1] = op(Kind.CLOSE, 0)
    if case.with_fsync:
        ops[-2] = op(Kind.FSYNC, 0)
    return Program(ops, (Path(0, "f", 0, case.file_bytes),))


def file_program(verb: str, count: int, rank: int) -> Program:
    """The verb on many empty files: create is open and close."""
    paths = tuple(Path(0, f"file.{rank}.{index}") for index in range(count))
    rows: Ops = np.zeros(count * (1 + (verb == "create")), dtype=OP_DTYPE)
    rows["kind"] = {"create": Kind.OPEN, "stat": Kind.STAT, "unlink": Kind.UNLINK}[verb]
    if verb == "create":
        rows["length_bytes"] = open_length(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        rows["kind"][1::2] = Kind.CLOSE
    rows["file"] = np.repeat(np.arange(count), len(rows) // count)
    return Program(rows, paths)


def timed(setup: Setup, program: Program, payload: Payload | None = None) -> OpTimes:
    """Run a program whole; every op must have succeeded."""
    prepared = NativeEngine(setup).prepare(program, payload)
    sink = KeepTimes(len(program.ops))
    done = prepared.run(sink, 0, len(program.ops))
    prepared.finish()
    assert done == len(program.ops), f"op {done - 1} ended with {sink.times.result[done - 1]}"
    return sink.times


def our_rate(case: Case, directory: str, seed: int) -> float:
    """Ops or bytes a second of the native engine."""
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    setup = Setup(root, mode=case.mode, is_direct=case.is_direct, queue_depth=case.queue_depth)
    times = timed(setup, data_program(case, seed))
    os.close(root)
    seconds = (times.end_ns.max() - times.start_ns.min()) / 1e9
    return float((1 if case.is_random else case.block_bytes) * (case.total_bytes // case.block_bytes) / seconds)


def our_file_rate(case: Case, directory: str) -> float:
    """Files a second of all ranks together: each is a process of its own, and all start at one instant."""
    top = f"{directory}/ours"
    os.makedirs(top, exist_ok=True)
    command = [sys.executable, __file__, "--rank-of", case.verb, str(case.file_count), top]
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen([*command, str(rank)], stdin=pipe, stdout=pipe, text=True) for rank in range(case.ranks)]
    for rank in ranks:
        assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
    release = f"{time.monotonic_ns() + 20_000_000}\n"
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write(release)
        rank.stdin.flush()
    spans = [tuple(int(word) for word in rank.communicate()[0].split()) for rank in ranks]
    shutil.rmtree(top)
    return case.ranks * case.file_count / (max(stop for _, stop in spans) - min(start for start, _ in spans)) * 1e9


def be_a_rank(verb: str, count: str, top: str, rank: str) -> None:
    """One process of `our_file_rate`: waits for its release, prints when its first op began and its last one ended."""
    root = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    if verb != "create":
        timed(Setup(root), file_program("create", int(count), int(rank)))
    prepared = NativeEngine(Setup(root)).prepare(program := file_program(verb, int(count), int(rank)), None)
    sink = KeepTimes(len(program.ops))
    print("ready", flush=True)
    release_ns = int(sys.stdin.readline())
    while time.monotonic_ns() < release_ns:
        pass
    assert prepared.run(sink, 0, len(program.ops)) == len(program.ops)
    print(sink.times.start_ns.min(), sink.times.end_ns.max())


def compare(case: Case, place: str, directory: str, peer: str, pairs: int) -> Comparison:
    """Both sides in turns, the first one of a pair changing each time; one run of each goes before, uncounted."""
    ours: list[float] = []
    theirs: list[float] = []
    for pair in range(-1, pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            if side:
                theirs.append(rate(peer, case, directory))
            else:
                ours.append(our_file_rate(case, directory) if case.is_metadata else our_rate(case, directory, pair + 1))
    return Comparison(case, place, peer, ours[1:], theirs[1:])


def instrument() -> None:
    """What the tool itself costs: an op that does nothing, and payload made and compared in memory."""
    case = Case("", "write", (), total_bytes=1_000_000 * 4 * KIB)
    spans = [timed(Setup(0, mode="null"), data_program(case, 0)) for _ in range(9)]
    per_op = statistics.median((t.end_ns[-1] - t.start_ns[0]) / len(t.end_ns) for t in spans)
    print(f"null op                       {per_op:6.1f} ns, two clock reads included")
    image, page = Payload(1, 1).image(Path(0, "f")), np.zeros(256 * KIB, dtype=np.uint8)
    makers: tuple[tuple[str, Callable[[], object]], ...] = (
        ("generate", lambda: image.fill(page, 0)),
        ("verify", lambda: image.check(page, 0, "f")),
        ("generate, NumPy", lambda: image.fill_with_numpy(page, 0)),
        ("verify, NumPy", lambda: image.compare_with_numpy(page, 0)),
    )
    for word, make in makers:
        took = []
        for _ in range(200):
            begun = time.perf_counter()
            make()
            took.append(time.perf_counter() - begun)
        print(f"payload {word:<20} {len(page) / statistics.median(took) / 1e9:7.1f} GB/s a core, 256 KiB at a time")


def plot(lines: list[Comparison], target: str) -> None:
    """A box a line; text alone when matplotlib is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure, axes = plt.subplots(figsize=(9, 1 + 0.35 * len(lines)), layout="constrained")
    axes.boxplot([line.ratios for line in lines], vert=False, tick_labels=[f"{c.case.name} ({c.peer})" for c in lines])
    axes.axvline(1, linewidth=0.8, color="0.5")
    axes.invert_yaxis()
    axes.set_xlabel("ckptstorm ÷ peer")
    figure.savefig(target)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="pairs of runs a line, at least 7")
    parser.add_argument("--tmpfs", default="/dev/shm", help='a directory in memory; "" leaves it out')
    parser.add_argument("--disk", default=".", help='a directory on a disk; "" leaves it out')
    parser.add_argument("--only", default="", help="cases whose name or verb contains this")
    parser.add_argument("--plot", default="", help="write the ratios to this image")
    parser.add_argument("--rank-of", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        be_a_rank(*arguments.rank_of)
        return
    instrument()
    lines: list[Comparison] = []
    absent: set[str] = set()
    for place, parent, cases in (("tmpfs", arguments.tmpfs, TMPFS), ("disk", arguments.disk, DISK)):
        wanted = [case for case in cases if arguments.only in f"{case.name} {case.verb}"]
        if parent and wanted:
            lines += place_lines(place, parent, wanted, arguments.pairs, absent)
    print(f"left out, not on PATH: {', '.join(sorted(absent))}" if absent else "every peer was found")
    if arguments.plot:
        plot(lines, arguments.plot)


def place_lines(place: str, parent: str, cases: list[Case], pairs: int, absent: set[str]) -> list[Comparison]:
    """Every case in a directory of its own below `parent`, printed as it comes."""
    lines = []
    directory = os.path.join(os.path.abspath(parent), f"ckptstorm-bench-{os.getpid()}")
    os.makedirs(directory)
    try:
        for case in cases:
            for peer in case.peers:
                if not find(peer):
                    absent.add(peer.split(":")[0])
                    continue
                lines.append(compare(case, place, directory, peer, pairs))
                print(lines[-1].line(), flush=True)
    finally:
        shutil.rmtree(directory)
    return lines


if __name__ == "__main__":
    main()
