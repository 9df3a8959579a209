"""`ckptstorm run`: a storm, started here or joined under a launcher."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ckptstorm.cluster import launched
from ckptstorm.errors import EXIT_LOST_RANK, EXIT_MET, EXIT_REFUSED, LaunchError, PlaceError
from ckptstorm.job import Job
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.report.html import HTML_NAME, page
from ckptstorm.storm import halves
from ckptstorm.storm.check import check as check_all
from ckptstorm.storm.lost_storm import has_planted_end
from ckptstorm.storm.orders import Half
from ckptstorm.storm.parent import Ended, run_world
from ckptstorm.storm.tested import check_more
from ckptstorm.verbs import options
from ckptstorm.verbs.printing import to_whoever_reads

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster
    from ckptstorm.storm.conduct import Conducted


@click.command()
@options.JOB
@options.RANKS
@options.DIRS
@options.SPREAD
@options.RESULTS
@click.option("--keep-files", is_flag=True, help="Leave the last checkpoints; `ckptstorm clean` removes them.")
@click.option("--only", type=click.Choice(["save", "restore"]), help="One half; the other one is another job's.")
@click.option("--from", "saved_in", metavar="DIR", help="With --only restore: where the save left its checkpoints.")
@click.option("--metrics", metavar="FILE", default="", help="Keep live numbers in this file, as OpenMetrics text.")
@options.SET
@options.JSON
@options.HTML
@click.pass_obj
def run(cluster: Cluster | None, /, job_name: str, ranks: int | None, **asked: Any) -> int:
    """Run a storm: a job file, or the name of one that comes with ckptstorm (`list jobs`)."""
    job, text = read_job(job_name, asked["overrides"])
    half, directory, more = _half(asked["only"], asked["saved_in"], asked["directories"])
    if asked["as_html"]:
        page.require()
    if cluster is None:
        if ranks is None:
            raise LaunchError(
                "how many ranks?",
                f"ckptstorm run {job_name} --ranks 4, or under a launcher: srun -n 512 ckptstorm run {job_name}",
            )
        part = halves.part_of(half, job, directory, ranks)
        planned = halves.as_own(part.job) if part.saved else job
        preflight = halves.preflight_of(check_all(planned, World(ranks, ranks), directory, asked["results"]), half)
        preflight.raise_if_stopped()
        check_more(job, World(ranks, ranks), preflight.totals, (directory, *more), asked["spread"])
        return _start(job, ranks, directory, asked, preflight.block_size_bytes)
    launched.check_world(cluster.rank_count, ranks, os.environ)
    from ckptstorm.record import stormjson
    from ckptstorm.record.verdict import verdict
    from ckptstorm.report import terminal
    from ckptstorm.storm.circumstances import Request
    from ckptstorm.storm.conduct import conduct

    command = shlex.join(["ckptstorm", *sys.argv[1:]])
    request = Request(job, text, directory, asked["results"], asked["keep_files"], command, asked["metrics"], half)
    request = replace(request, more=more, spread=asked["spread"])
    conducted = conduct(cluster, request)
    with to_whoever_reads():
        if asked["as_json"]:
            click.echo(json.dumps(stormjson.to_json(conducted.record)))
        else:
            terminal.show_record(conducted.record)
            if conducted.folder is not None:
                click.echo(f"again:  ckptstorm report {shlex.quote(str(conducted.folder))}")
    _say_what_is_left(conducted, job_name, half)
    if conducted.problem:
        click.echo(f"ckptstorm: {conducted.problem}: the record above is all there is", err=True)
        return EXIT_REFUSED
    if asked["as_html"] and conducted.folder is not None:
        from ckptstorm.verbs.report import write_page

        write_page(conducted.record, conducted.folder / HTML_NAME)
        click.echo(f"in a browser:  {conducted.folder / HTML_NAME}", err=True)
    return verdict(conducted.record).exit_code


def _start(job: Job, ranks: int, directory: str, asked: dict[str, Any], block_size_bytes: int) -> int:
    """Start the ranks of this very command line; where the job takes one away, start them anew to recover."""
    ended = run_world(job, ranks, asked["results"], block_size_bytes, sys.argv[1:])
    if ended.exit_code == EXIT_LOST_RANK and ended.partial is not None and has_planted_end(job):
        flags = [*["--keep-files"] * asked["keep_files"], *["--json"] * asked["as_json"]]
        words = ["recover", directory, "--lost-ns", str(_lost_ns(job, ended)), *flags]
        ended = run_world(job, ranks, asked["results"], block_size_bytes, words)
    return after(ended, directory, as_json=asked["as_json"])


def _lost_ns(job: Job, ended: Ended) -> int:
    """When the rank was lost: one that is stopped is noticed only after the time-out."""
    is_stopped = any(fault.stop for fault in job.fault)
    return max(1, ended.lost_ns - (int(job.storm.timeout) if is_stopped else 0))


def _say_what_is_left(conducted: Conducted, job_name: str, half: Half) -> None:
    """The way on from files that stay: to the restore, or to the clean-up."""
    if conducted.left_behind and half == "save" and not conducted.problem:
        again = f"ckptstorm run {shlex.quote(job_name)} --only restore --from {shlex.quote(conducted.left_behind)}"
        click.echo(f"Checkpoints are left: restore them, best on other nodes, with  {again}", err=True)
        return
    for directory in (conducted.left_behind, *conducted.more_left):
        if directory:
            click.echo(f"Files left: remove them with  ckptstorm clean {shlex.quote(directory)}", err=True)


def _half(only: str | None, saved_in: str | None, named: tuple[str, ...]) -> tuple[Half, str, tuple[str, ...]]:
    """What of the storm is run, the directory under test, and further ones."""
    directory, more = named[0], named[1:]
    if only and more:
        raise PlaceError("--only means something with one --dir alone", "run both halves, or name one directory")
    if only == "restore":
        if not saved_in:
            raise PlaceError("--only restore: of what?", "--from DIR: the --dir of the save")
        return "restore", saved_in, ()
    if saved_in:
        raise PlaceError("--from means something with --only restore alone", "name the directory under test with --dir")
    return ("save" if only == "save" else "both"), directory, more


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
