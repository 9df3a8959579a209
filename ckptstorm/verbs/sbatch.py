"""`ckptstorm sbatch`: from a job file to a batch job, and back to its report."""

from __future__ import annotations

from typing import Any, Literal

import click

from ckptstorm.batch import submit
from ckptstorm.batch.render import render
from ckptstorm.batch.script import Asked, Script, script_of
from ckptstorm.batch.sitefile import read_site, with_time_limit
from ckptstorm.errors import EXIT_MET, EXIT_NOT_MET, JobError, PlaceError
from ckptstorm.record import files
from ckptstorm.record.verdict import verdict
from ckptstorm.report import scaling, terminal
from ckptstorm.verbs import options


@click.command()
@options.JOB
@click.option("--site", "site_name", required=True, help="A site file, or the name of one that comes with ckptstorm.")
@options.RANKS
@click.option("--dir", "directory", help="Directory under test; each storm gets one of its own below. [the site's]")
@click.option("--results", help="Where result folders and logs go. [the site's]")
@options.SET
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=A,B,…", help="A storm for each value, as a job array.")
@click.option("--split", is_flag=True, help="Save in one job, restore in another that it submits.")
@click.option(
    "--restore-on", type=click.Choice(["other", "any"]), default="other", show_default=True, help="Nodes, with --split."
)
@click.option("--time", "time_limit", metavar="TIME", help='A time limit ("30min") instead of the estimate.')
@click.option("--submit", "submits", is_flag=True, help="Submit it, and print the job id.")
@click.option("--wait", "waits", is_flag=True, help="Submit it, wait for its end, show the report.")
def sbatch(job_name: str, site_name: str, **asked: Any) -> int:
    """A batch script for this job on that site, on standard output."""
    site = read_site(site_name)
    if asked["time_limit"]:
        site = with_time_limit(site, asked["time_limit"])
    shape = _shape(asked)
    script = script_of(
        Asked(
            job_name,
            asked["ranks"],
            tuple(asked["overrides"]),
            tuple(asked["sweeps"]),
            asked["directory"],
            asked["results"],
            shape,
            asked["restore_on"],
        ),
        site,
    )
    text = render(script)
    if not (asked["submits"] or asked["waits"]):
        click.echo(text, nl=False)
        return EXIT_MET
    jobs = submit.submit(script, text)
    for job in jobs:
        click.echo(job)
    if not asked["waits"]:
        return EXIT_MET
    try:
        return _wait(script, jobs)
    except KeyboardInterrupt:
        click.echo(
            f"ckptstorm: no longer waiting; the job goes on: scancel {' '.join(jobs)} ends it in order", err=True
        )
        raise


def _shape(asked: dict[str, Any]) -> Literal["storm", "sweep", "split"]:
    if asked["split"] and asked["sweeps"]:
        raise JobError("--split and --sweep are two things", "sweep the whole storm, or split one of them")
    return "sweep" if asked["sweeps"] else "split" if asked["split"] else "storm"


def _wait(script: Script, jobs: list[str]) -> int:
    """Until all jobs have ended, those too that they submitted; then the report."""
    for job in jobs:
        submit.wait(job)
    if script.asked.shape == "sweep":
        found = scaling.scaling(script.results)
        terminal.show(scaling.sections(found))
        return max((row.exit_code for row in found.rows), default=EXIT_NOT_MET)
    (job,) = jobs
    if script.asked.shape == "split":
        restoring = submit.next_job(script, job)
        if not restoring:
            raise PlaceError(f"job {job} saved nothing that could be restored", f"see {submit.log_of(script, job)}")
        click.echo(restoring)
        submit.wait(restoring)
        job = restoring
    record = files.load(submit.result_of(script, job))
    terminal.show_record(record)
    return verdict(record).exit_code
