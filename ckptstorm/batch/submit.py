"""Handing a script to Slurm, and waiting for it: `sbatch`, then `squeue` until the job has left the queue."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ckptstorm.batch.script import Script
from ckptstorm.batch.sweep import Point, is_finished
from ckptstorm.errors import JobError, LaunchError, PlaceError

#: Between two looks at the queue: soon at first, then at a pace that a controller does not mind.
_NAP_LEAST_S, _NAP_MOST_S = 0.5, 5.0
#: So many refusals of squeue in a row (a controller that restarts) before the wait is given up.
_DEAF_MAX = 30
_PATIENCE_S = 120


def submit(script: Script, text: str) -> list[str]:
    """Submit a script; a sweep as one array for each number of nodes, one after the other.

    Returns:
        Job ids, none when every storm of a sweep has its result already.

    Raises:
        JobError: only Slurm is submitted to.
        LaunchError: there is no sbatch, or it refused; in its own words.
        PlaceError: the results directory, where the log goes, cannot be made.
    """
    if script.site.scheduler != "slurm":
        raise JobError(
            f"--submit knows Slurm only, and this site says {script.site.scheduler}",
            "write the script to a file and submit it: qsub FILE, flux batch FILE",
        )
    try:
        os.makedirs(script.results, exist_ok=True)
    except OSError as error:
        raise PlaceError(f"--results {script.results}: cannot be made: {error.strerror}") from None
    if script.asked.shape != "sweep":
        return [_sbatch(text, ())]
    jobs: list[str] = []
    for node_count, indices in left_of(script.points, Path(script.results)):
        after = (f"--dependency=afterany:{jobs[-1]}",) if jobs else ()
        array = ",".join(str(index) for index in indices)
        jobs.append(_sbatch(text, (f"--nodes={node_count}", f"--array={array}%1", *after)))
    return jobs


def left_of(points: Sequence[Point], results: Path) -> list[tuple[int, list[int]]]:
    """Storms without a result, as (nodes, indices): smallest first, so that most is known soonest."""
    left = [(point.node_count, index) for index, point in enumerate(points) if not is_finished(results, point.label)]
    groups = itertools.groupby(sorted(left), key=lambda pair: pair[0])
    return [(nodes, [index for _, index in group]) for nodes, group in groups]


def wait(job: str, nap: Callable[[float], None] = time.sleep) -> None:
    """Until the job (or each part of an array) has left the queue.

    Raises:
        LaunchError: Slurm does not answer any more.
    """
    pause_s, deaf = _NAP_LEAST_S, 0
    while True:
        ended = _run(("squeue", "--noheader", "--jobs", job, "--format", "%T"))
        if ended.returncode == 0 and not ended.stdout.strip():
            return
        if ended.returncode and "Invalid job id" in ended.stderr:
            return
        deaf = deaf + 1 if ended.returncode else 0
        if deaf > _DEAF_MAX:
            raise LaunchError(f"squeue does not tell of job {job}: {ended.stderr.strip()}", "the job itself goes on")
        nap(pause_s)
        pause_s = min(2 * pause_s, _NAP_MOST_S)


def next_job(script: Script, job: str) -> str:
    """The job that the first half of a split storm submitted; "" when it did not come to that."""
    path = Path(script.results) / f"split-{job}.next"
    return path.read_text("ascii", "replace").strip() if path.is_file() else ""


def result_of(script: Script, job: str) -> Path:
    """The result folder that a job left.

    Raises:
        PlaceError: none; names the log.
    """
    for path in sorted(Path(script.results).glob("*/storm.json"), key=lambda path: -path.stat().st_mtime_ns):
        try:
            told = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if told["environment"].get("allocation", {}).get("job_id") == job:
            return path.parent
    log = log_of(script, job)
    last = log.read_text("utf-8", "replace").strip().splitlines()[-3:] if log.is_file() else []
    raise PlaceError(f"job {job} left no result: see {log}", "\n".join(last))


def log_of(script: Script, job: str) -> Path:
    """Where a job writes what it says."""
    return Path(script.results) / f"{script.name}-{job}.log"


def _sbatch(text: str, options: Sequence[str]) -> str:
    ended = _run(("sbatch", "--parsable", *options), text)
    if ended.returncode:
        refusal = ended.stderr.strip().removeprefix("sbatch: error: ").splitlines()
        raise LaunchError(f"sbatch refused: {refusal[0] if refusal else ended.returncode}", "\n".join(refusal[1:]))
    return ended.stdout.strip().partition(";")[0]


def _run(words: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except FileNotFoundError:
        raise LaunchError(
            f"there is no {words[0]} on this machine",
            "run this on a login node of the cluster, or write the script to a file: ckptstorm sbatch … > storm.sh",
        ) from None
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{words[0]} did not answer for {_PATIENCE_S} s", "ask the cluster's administrator") from None
