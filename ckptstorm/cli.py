"""The command line: one verb a question; it parses, calls, prints, and knows every exit code."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import ckptstorm
from ckptstorm import plan_text, tables
from ckptstorm.cluster import launch, launched
from ckptstorm.errors import EXIT_INTERRUPTED, EXIT_LOST_RANK, EXIT_MET, EXIT_REFUSED, LaunchError, StormError
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.storm import cleaning
from ckptstorm.storm.check import check as check_all

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster

_JOB = click.argument("job_name", metavar="JOB")
_DIR = click.option("--dir", "directory", default="./ckptstorm-data", show_default=True, help="Directory under test.")
_RESULTS = click.option("--results", default="./results", show_default=True, help="Where result folders go.")
_SET = click.option("--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override a key of the job.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_RANKS = click.option("--ranks", type=click.IntRange(1, 1 << 24), help="How many ranks.")
_PER_NODE = click.option("--ranks-per-node", type=click.IntRange(1, 4096), default=8, show_default=True)


def main(arguments: Sequence[str], cluster: Cluster | None = None) -> int:
    """Run one command line; returns the exit code (README). `cluster` is given on rank 0 of a started world."""
    try:
        result = commands.main(list(arguments), prog_name="ckptstorm", standalone_mode=False, obj=cluster)
        return int(result or EXIT_MET)
    except click.ClickException as error:
        error.show()
        return EXIT_REFUSED
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away: no failure of the storm
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_MET
    except StormError as error:
        if cluster is not None and error.exit_code == EXIT_LOST_RANK:
            raise
        for line in error.lines():
            click.echo(f"ckptstorm: {line}", err=True)
        return error.exit_code


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(ckptstorm.__version__, prog_name="ckptstorm")
def commands() -> None:
    """Every GPU of a cluster saves its checkpoint at once; then all restore. What happens?

    \b
    ckptstorm run laptop --ranks 4          a storm on this machine
    srun -n 512 ckptstorm run JOB           under a launcher, it joins
    ckptstorm plan JOB --ranks 16384        what would be written, without writing

    Exit codes: 0 met and valid; 1 a limit missed or the record invalid; 2 the job, the command
    line or the place is wrong; 3 the storage failed; 4 a rank was lost; 130 interrupted.
    """


@commands.command()
@_JOB
@_RANKS
@_DIR
@_RESULTS
@click.option("--keep-files", is_flag=True, help="Leave the last checkpoints; `ckptstorm clean` removes them.")
@_SET
@_JSON
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
        check_all(job, World(ranks, ranks), asked["directory"], asked["results"]).raise_if_stopped()
        return _start(ranks, asked["directory"], asked["results"])
    launched.check_world(cluster.rank_count, ranks, os.environ)
    from ckptstorm.record import stormjson
    from ckptstorm.record.verdict import verdict
    from ckptstorm.report import terminal
    from ckptstorm.storm.circumstances import Request
    from ckptstorm.storm.conduct import conduct

    command = shlex.join(["ckptstorm", *sys.argv[1:]])
    request = Request(job, text, asked["directory"], asked["results"], asked["keep_files"], command)
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


def _start(ranks: int, directory: str, results: str) -> int:
    """Start the ranks of this very command line, and explain an end that was none of ours."""
    ended = launch.start_ranks(ranks, sys.argv[1:])
    if ended in launch.ORDERLY:
        return ended
    if ended == -signal.SIGPIPE:  # the reader of our output went away: no failure of the storm
        return EXIT_MET
    click.echo(f"ckptstorm: a rank was lost: mpiexec ended with {ended}", err=True)
    click.echo(
        f"ckptstorm: what is known by then, if a round was over: ckptstorm report {results}/*.partial; "
        f"remove the files: ckptstorm clean {shlex.quote(directory)}",
        err=True,
    )
    return EXIT_LOST_RANK


@commands.command()
@_JOB
@click.option("--ranks", type=click.IntRange(1, 1 << 24), default=4, show_default=True, help="How many ranks.")
@_PER_NODE
@click.option("--rank", type=click.IntRange(min=0), help="Show one rank's plan.")
@click.option("--block-size", default="4KiB", show_default=True, help="st_blksize of the target.")
@_SET
@_JSON
def plan(job_name: str, ranks: int, ranks_per_node: int, rank: int | None, **asked: Any) -> int:
    """What a storm would write and read, without MPI and without a disk."""
    job, _ = read_job(job_name, asked["overrides"])
    world = World(ranks, min(ranks, ranks_per_node))
    shown = plan_text.describe(job, world, rank, asked["block_size"])
    click.echo(json.dumps(shown.data) if asked["as_json"] else shown.text)
    return EXIT_MET


@commands.command()
@_JOB
@click.option("--ranks", type=click.IntRange(1, 1 << 24), default=4, show_default=True, help="How many ranks.")
@_PER_NODE
@_DIR
@_RESULTS
@_SET
@_JSON
def check(job_name: str, ranks: int, ranks_per_node: int, **asked: Any) -> int:
    """Would this storm run here? In seconds, without writing anything."""
    job, _ = read_job(job_name, asked["overrides"])
    world = World(ranks, min(ranks, ranks_per_node))
    found = check_all(job, world, asked["directory"], asked["results"])
    click.echo(json.dumps(tables.findings_data(found)) if asked["as_json"] else tables.findings_text(found))
    return EXIT_REFUSED if any(finding.state == "stops" for finding in found.findings) else EXIT_MET


@commands.command()
@click.argument("folder", metavar="DIR")
@_JSON
def report(folder: str, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Show a result folder (or what a lost storm left: DIR.partial)."""
    from ckptstorm.record import files, stormjson
    from ckptstorm.record.verdict import verdict
    from ckptstorm.report import terminal

    record = files.load(folder)
    click.echo(json.dumps(stormjson.to_json(record)) if as_json else terminal.render(record))
    return verdict(record).exit_code


@commands.command()
@click.argument("directory", metavar="DIR")
@_JSON
def clean(directory: str, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Remove what a storm left in its directory: exactly the files it made, nothing else."""
    cleaned = cleaning.clean(directory)
    click.echo(json.dumps(cleaned.data()) if as_json else cleaned.sentence())
    return EXIT_MET


@commands.command("list")
@click.argument("what", type=click.Choice(list(tables.LISTS)), required=False)
@_JSON
def list_(what: str | None, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """What there is: engines, layouts, models, jobs."""
    names = [what] if what else list(tables.LISTS)
    click.echo(json.dumps(tables.lists_data(names)) if as_json else tables.lists_text(names))
    return EXIT_MET
