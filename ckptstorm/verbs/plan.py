"""`ckptstorm plan`: what a storm would write and read."""

from __future__ import annotations

import json
from typing import Any

import click

from ckptstorm import plan_text
from ckptstorm.errors import EXIT_MET
from ckptstorm.jobfile import read_job
from ckptstorm.model.parallel import World
from ckptstorm.verbs import options


@click.command()
@options.JOB
@options.RANKS_OR_4
@options.PER_NODE
@click.option("--rank", type=click.IntRange(min=0), help="Show one rank's plan.")
@click.option("--block-size", default="4KiB", show_default=True, help="st_blksize of the target.")
@options.SET
@options.JSON
def plan(job_name: str, ranks: int, ranks_per_node: int, rank: int | None, **asked: Any) -> int:
    """What a storm would write and read, without MPI and without a disk."""
    job, _ = read_job(job_name, asked["overrides"])
    world = World(ranks, min(ranks, ranks_per_node))
    shown = plan_text.describe(job, world, rank, asked["block_size"])
    click.echo(json.dumps(shown.data) if asked["as_json"] else shown.text)
    return EXIT_MET
