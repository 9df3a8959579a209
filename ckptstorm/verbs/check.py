"""`ckptstorm check`: would this storm run here, on every node?"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ckptstorm import tables
from ckptstorm.cluster import launched
from ckptstorm.errors import EXIT_MET, EXIT_REFUSED, JobError
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.units import parse_bytes
from ckptstorm.verbs import options

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster


@click.command()
@options.JOB
@options.RANKS
@options.PER_NODE
@options.DIRS
@options.SPREAD
@options.RESULTS
@click.option("--rate", default="1GiB", show_default=True, help="Bytes a second that a node is assumed to move.")
@options.SET
@options.JSON
@click.pass_obj
def check(cluster: Cluster | None, /, job_name: str, ranks: int | None, ranks_per_node: int, **asked: Any) -> int:
    """Would this storm run here? In seconds; the checkpoint is not written.

    \b
    ckptstorm check JOB --ranks 64               what this node can tell
    srun -n 64 ckptstorm check JOB               what every node of the cluster tells

    One file of a few bytes is made on each node where the checkpoint would go, and removed at once.
    """
    from ckptstorm.storm.survey import further, survey
    from ckptstorm.storm.tested import check_more

    job, _ = read_job(job_name, asked["overrides"])
    if cluster is None:
        count = ranks or 4
        world = World(count, min(count, ranks_per_node))
    else:
        launched.check_world(cluster.rank_count, ranks, os.environ)
        world = World(cluster.rank_count, tuple(int(node) for node in cluster.node_of_rank))
    try:
        rate = max(1, parse_bytes(asked["rate"]))
    except ValueError as error:
        raise JobError(f"--rate {asked['rate']}: {error}") from None
    directories = asked["directories"]
    found = survey(job, world, (directories[0], asked["results"]), rate, cluster)
    more = check_more(job, world, found.totals, directories, asked["spread"])
    found = replace(found, findings=(*found.findings, *(further(one) for one in more)))
    click.echo(json.dumps(tables.findings_data(found)) if asked["as_json"] else tables.findings_text(found))
    return EXIT_REFUSED if any(finding.state == "stops" for finding in found.findings) else EXIT_MET
