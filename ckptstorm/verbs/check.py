"""`ckptstorm check`: would this storm run here?"""

from __future__ import annotations

import json
from typing import Any

import click

from ckptstorm import tables
from ckptstorm.errors import EXIT_MET, EXIT_REFUSED
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.storm.check import check as check_all
from ckptstorm.verbs import options


@click.command()
@options.JOB
@options.RANKS_OR_4
@options.PER_NODE
@options.DIR
@options.RESULTS
@options.SET
@options.JSON
def check(job_name: str, ranks: int, ranks_per_node: int, **asked: Any) -> int:
    """Would this storm run here? In seconds, without writing anything."""
    job, _ = read_job(job_name, asked["overrides"])
    world = World(ranks, min(ranks, ranks_per_node))
    found = check_all(job, world, asked["directory"], asked["results"])
    click.echo(json.dumps(tables.findings_data(found)) if asked["as_json"] else tables.findings_text(found))
    return EXIT_REFUSED if any(finding.state == "stops" for finding in found.findings) else EXIT_MET
