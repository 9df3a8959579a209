"""`ckptstorm list`: what there is."""

from __future__ import annotations

import json

import click

from ckptstorm import tables
from ckptstorm.errors import EXIT_MET
from ckptstorm.verbs import options


@click.command("list")
@click.argument("what", type=click.Choice(list(tables.LISTS)), required=False)
@options.JSON
def list_(what: str | None, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """What there is: engines, layouts, loads, models, file systems, jobs."""
    names = [what] if what else list(tables.LISTS)
    click.echo(json.dumps(tables.lists_data(names)) if as_json else tables.lists_text(names))
    return EXIT_MET
