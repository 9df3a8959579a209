"""`ckptstorm report`: a result folder, read again."""

from __future__ import annotations

import json

import click

from ckptstorm.record import files, stormjson
from ckptstorm.record.verdict import verdict
from ckptstorm.report import terminal
from ckptstorm.verbs import options


@click.command()
@click.argument("folder", metavar="DIR")
@options.JSON
def report(folder: str, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Show a result folder (or what a lost storm left: DIR.partial)."""
    record = files.load(folder)
    click.echo(json.dumps(stormjson.to_json(record)) if as_json else terminal.render(record))
    return verdict(record).exit_code
