"""`ckptstorm report`: a result folder, read again."""

from __future__ import annotations

import json

import click

from ckptstorm.errors import EXIT_NOT_MET
from ckptstorm.record import files, stormjson
from ckptstorm.record.verdict import verdict
from ckptstorm.report import scaling, terminal
from ckptstorm.verbs import options


@click.command()
@click.argument("folder", metavar="DIR")
@options.JSON
def report(folder: str, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Show a result folder (or what a lost storm left: DIR.partial); of a folder of them, the scaling table."""
    if scaling.is_folder_of_folders(folder):
        found = scaling.scaling(folder)
        click.echo(json.dumps(found.data()) if as_json else terminal.render_sections(scaling.sections(found)))
        return max((row.exit_code for row in found.rows), default=EXIT_NOT_MET)
    return show(folder, as_json=as_json)


def show(folder: str, *, as_json: bool) -> int:
    """Print a result folder; returns the exit code of its verdict."""
    record = files.load(folder)
    click.echo(json.dumps(stormjson.to_json(record)) if as_json else terminal.render(record))
    return verdict(record).exit_code
