"""`ckptstorm run`: a storm, started here or joined under a launcher."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from ckptstorm.cluster import launched
from ckptstorm.errors import EXIT_LOST_RANK, EXIT_MET, EXIT_REFUSED, LaunchError
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.storm.check import check as check_all
from ckptstorm.storm.parent import Ended, run_world
from ckptstorm.verbs import options

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster


@click.command()
@options.JOB
@options.RANKS
@options.DIR
@options.RESULTS
@click.option("--keep-files", is_flag=True, help="Leave the last checkpoints; `ckptstorm clean` removes them.")
@click.option("--metrics", metavar="FILE", default="", help="Keep live numbers in this file, as OpenMetrics text.")
@options.SET
@options.JSON
@click.pass_obj
def run(cluster: Cluster | None, /, job_name: str, ranks: int | None, **asked: Any) -> int:
    """Run a storm: a job file, or the name of one that comes with ckptstorm (`list jobs`)."""
    job, text = read_job(job_name, asked["overrides"])
    if cluster is None:
        if ranks is None:
            raise LaunchError(
                "how many ranks?",
                f"ckptstorm run {job_name} --ranks 4, or under a launcher: srun -n 512 ckptstorm run {job_name}",
            )
        preflight = check_all(job, World(ranks, ranks), asked["directory"], asked["results"])
        preflight.raise_if_stopped()
        ended = run_world(job, ranks, asked["results"], preflight.block_size_bytes, sys.argv[1:])
        return after(ended, asked["directory"], as_json=asked["as_json"])
    launched.check_world(cluster.rank_count, ranks, os.environ)
    from ckptstorm.record import stormjson
    from ckptstorm.record.verdict import verdict
    from ckptstorm.report import terminal
    from ckptstorm.storm.circumstances import Request
    from ckptstorm.storm.conduct import conduct

    command = shlex.join(["ckptstorm", *sys.argv[1:]])
    request = Request(job, text, asked["directory"], asked["results"], asked["keep_files"], command, asked["metrics"])
    conducted = conduct(cluster, request)
    if asked["as_json"]:
        click.echo(json.dumps(stormjson.to_json(conducted.record)))
    else:
        click.echo(terminal.render(conducted.record))
        if conducted.folder is not None:
            click.echo(f"again:  ckptstorm report {shlex.quote(str(conducted.folder))}")
    if conducted.left_behind:
        click.echo(f"Files left: remove them with  ckptstorm clean {shlex.quote(conducted.left_behind)}", err=True)
    if conducted.problem:
        click.echo(f"ckptstorm: {conducted.problem}: the record above is all there is", err=True)
        return EXIT_REFUSED
    return verdict(conducted.record).exit_code


def after(ended: Ended, directory: str, *, as_json: bool) -> int:
    """What the parent of the ranks has to say when they did not end in order; returns the exit code."""
    if ended.exit_code == -signal.SIGPIPE:  # the reader of our output went away: no failure of the storm
        return EXIT_MET
    if ended.exit_code == EXIT_LOST_RANK:
        if ended.partial is not None:
            from ckptstorm.verbs.report import show

            show(str(ended.partial), as_json=as_json)
            click.echo(f"ckptstorm: what is known: ckptstorm report {shlex.quote(str(ended.partial))}", err=True)
        if os.path.isdir(directory):
            click.echo(f"ckptstorm: remove the files: ckptstorm clean {shlex.quote(directory)}", err=True)
    return ended.exit_code
