"""Loads of a whole storm beside fio and mdtest: two ranks of ours, two processes of theirs, in turns.

    python benchmarks/loads.py                                   # tmpfs and the current directory
    python benchmarks/loads.py --only random --pairs 9 --disk /mnt/scratch --seconds 10

A ratio above 1 means that ckptstorm does more a second; the table shows the median over the pairs, and the quartiles
beside it. Our rate is the one that the record states: actions of all ranks over the time from the common release
until the last of them is done. Theirs is what they print.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace

from engines import Comparison
from peers import MIB, Case, find, rate

RANKS = 2
_RANDOM = Case("", "", ("fio",), file_bytes=256 * MIB, ranks=RANKS, queue_depth=32, mode="libaio", is_direct=True)
_FILES = Case("", "", ("mdtest",), ranks=RANKS, file_count=20_000)
DISK = [
    *(
        replace(_RANDOM, name=f"4 KiB {word}, O_DIRECT, libaio 32, 2 ranks", verb=verb, peers=("fio:libaio",))
        for word, verb in (("random write", "randwrite"), ("random read", "randread"))
    ),
    *(replace(_FILES, name=f"{verb} empty files, 2 ranks", verb=verb) for verb in ("create", "stat", "unlink")),
]
TMPFS = [
    *(
        replace(
            _RANDOM, name=f"4 KiB {word}, sync, 2 ranks", verb=verb, peers=("fio:psync",), mode="sync", queue_depth=1,
            is_direct=False,
        )
        for word, verb in (("random write", "randwrite"), ("random read", "randread"))
    ),
    *(replace(_FILES, name=f"{verb} empty files, 2 ranks", verb=verb) for verb in ("create", "stat", "unlink")),
]  # fmt: skip
_OPENING = '[storm]\nrounds = 1\nallow = ["tmpfs", "warm"]\n[[load]]\n'


@dataclass(frozen=True, slots=True)
class Trial:
    """A case with what it is run with.

    Attributes:
        case: what is done.
        seconds: how long a random load runs.
        content: of our writes: "repeated", as fio's are, or "own".
    """

    case: Case
    seconds: float
    content: str


def job_of(trial: Trial) -> str:
    """The job that does what the peer does."""
    case = trial.case
    if case.is_metadata:
        phases = '["create", "stat", "delete"]'
        return f'{_OPENING}kind = "metadata"\nphases = {phases}\nitems = {case.file_count}\ndirectory = "shared"\n'
    access = case.verb.removeprefix("rand")
    return (
        f'{_OPENING}kind = "random"\naccess = "{access}"\nspan = {case.file_bytes}\nmode = "{case.mode}"\n'
        f"queue_depth = {case.queue_depth}\ndirect = {str(case.is_direct).lower()}\nwarm = true\nprefilled = true\n"
        f'order = "uniform"\nduration = "{trial.seconds * 1000:.0f}ms"\nramp = "500ms"\ncontent = "{trial.content}"\n'
    )


def our_rate(trial: Trial, directory: str) -> float:
    """Actions a second of a storm's record."""
    verb = {"unlink": "delete"}.get(trial.case.verb, trial.case.verb.removeprefix("rand"))
    with tempfile.TemporaryDirectory() as results:
        job = os.path.join(results, "bench.toml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(job_of(trial))
        command = [sys.executable, "-P", "-m", "ckptstorm", "run", job, "--ranks", str(trial.case.ranks), "--json"]
        command += ["--dir", os.path.join(directory, "ours"), "--results", os.path.join(results, "records")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    phases = json.loads(done.stdout)["phases"]
    found = [action["per_s"] for phase in phases for action in phase.get("per_action", ()) if action["action"] == verb]
    return float(found[0])


def compare(trial: Trial, place: str, directory: str, peer: str, pairs: int) -> Comparison:
    """Both sides in turns, the first one of a pair changing each time; one run of each goes before, uncounted."""
    ours: list[float] = []
    theirs: list[float] = []
    for pair in range(-1, pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            if side:
                theirs.append(rate(peer, trial.case, directory))
            else:
                ours.append(our_rate(trial, directory))
    return Comparison(trial.case, place, peer, ours[1:], theirs[1:])


def place_lines(place: str, parent: str, trials: list[Trial], pairs: int) -> None:
    """Every case in a directory of its own below `parent`, printed as it comes."""
    directory = os.path.join(os.path.abspath(parent), f"ckptstorm-bench-{os.getpid()}")
    os.makedirs(directory)
    try:
        for trial in trials:
            for peer in trial.case.peers:
                if find(peer):
                    print(compare(trial, place, directory, peer, pairs).line(), flush=True)
                else:
                    print(f"left out, not on PATH: {peer}")
    finally:
        shutil.rmtree(directory)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs a line")
    parser.add_argument("--seconds", type=float, default=5, help="how long a random load runs")
    parser.add_argument("--tmpfs", default="/dev/shm", help='a directory in memory; "" leaves it out')
    parser.add_argument("--disk", default=".", help='a directory on a disk; "" leaves it out')
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--content", default="repeated", choices=("repeated", "own"), help="of our writes")
    arguments = parser.parse_args()
    for place, parent, cases in (("tmpfs", arguments.tmpfs, TMPFS), ("disk", arguments.disk, DISK)):
        wanted = [case for case in cases if arguments.only in case.name]
        trials = [
            Trial(replace(case, seconds=arguments.seconds), arguments.seconds, arguments.content) for case in wanted
        ]
        if parent and trials:
            place_lines(place, parent, trials, arguments.pairs)


if __name__ == "__main__":
    main()
