"""`ckptstorm sweep`: the same storm at several world sizes, one after the other, inside one allocation."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ckptstorm.cluster import launched
from ckptstorm.errors import EXIT_MET, JobError, LaunchError, LostRankError, StormError
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.storm.check import check as check_all
from ckptstorm.storm.parent import run_world
from ckptstorm.verbs import options
from ckptstorm.verbs.run import after

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster
    from ckptstorm.job import Job


@click.command()
@options.JOB
@click.option("--ranks", "sizes", required=True, metavar="N,N,…", help="World sizes, such as 1,2,4,8.")
@click.option("--spread", is_flag=True, help="Take as many ranks of each node, not node after node.")
@options.DIR
@options.RESULTS
@options.SET
@options.JSON
@click.pass_obj
def sweep(cluster: Cluster | None, /, job_name: str, sizes: str, **asked: Any) -> int:
    """Run a storm at each of these sizes, on the same nodes, and show how it grows.

    The largest size is started (or joined, under a launcher); for a smaller one the other ranks wait. Each
    storm has a result folder in RESULTS/sweep-…; `ckptstorm report` shows the table of that folder again.
    """
    counts = _counts(sizes)
    job, text = read_job(job_name, asked["overrides"])
    for count in counts:
        # One node's worth of neighbours is asked for here; a launcher's own nodes are looked at again by each storm.
        check_all(job, World(count, count), asked["directory"], asked["results"]).raise_if_stopped()
    if cluster is None:
        preflight = check_all(job, World(counts[-1], counts[-1]), asked["directory"], asked["results"])
        ended = run_world(job, counts[-1], asked["results"], preflight.block_size_bytes, sys.argv[1:])
        return after(ended, asked["directory"], as_json=asked["as_json"])
    launched.check_world(cluster.rank_count, None, os.environ)
    if counts[-1] > cluster.rank_count:
        raise LaunchError(
            f"--ranks {sizes}: there are {cluster.rank_count} ranks here", f"start {counts[-1]}, or leave sizes out"
        )
    folder = os.path.join(asked["results"], f"sweep-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}")
    asked |= {"text": text, "results": folder}
    is_interrupted = False
    for count in counts:
        is_interrupted = _storm(cluster, job, count, asked)
        if is_interrupted:
            break
    return _show(folder, as_json=asked["as_json"])


def _counts(sizes: str) -> list[int]:
    """The world sizes, ascending.

    Raises:
        JobError: not a list of different whole numbers above 0.
    """
    words = [word.strip() for word in sizes.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 1 << 24 for word in words) or len(set(words)) < len(words):
        raise JobError(f"--ranks {sizes}: not a list of world sizes", "different whole numbers from 1, such as 1,2,4,8")
    return sorted(int(word) for word in words)


def _storm(cluster: Cluster, job: Job, count: int, asked: dict[str, Any]) -> bool:
    """One storm on so many ranks; whether somebody ended it."""
    from ckptstorm.record.verdict import verdict
    from ckptstorm.storm.circumstances import Request
    from ckptstorm.storm.conduct import conduct
    from ckptstorm.storm.session import end, part_of

    part = part_of(cluster, count, spread=asked["spread"])
    command = shlex.join(["ckptstorm", *sys.argv[1:]])
    request = Request(job, asked["text"], asked["directory"], asked["results"], keeps_files=False, command=command)
    try:
        record = conduct(part, request).record
    except LostRankError:  # the ranks cannot meet any more
        raise
    except StormError as error:
        end(part, error.exit_code)
        raise
    end(part, EXIT_MET)
    if not asked["as_json"]:
        click.echo(f"{count:>7,} ranks  {'; '.join(verdict(record).reasons) or 'valid'}")
    return record.ended == "interrupted"


def _show(folder: str, *, as_json: bool) -> int:
    from ckptstorm.report import scaling, terminal

    found = scaling.scaling(folder)
    if as_json:
        click.echo(json.dumps(found.data()))
    else:
        terminal.show(scaling.sections(found))
    if not as_json:
        click.echo(f"again:  ckptstorm report {shlex.quote(folder)}")
    return max(row.exit_code for row in found.rows)
