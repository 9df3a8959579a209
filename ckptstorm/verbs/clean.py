"""`ckptstorm clean`: what a storm left in its directory goes."""

from __future__ import annotations

import json

import click

from ckptstorm.errors import EXIT_MET
from ckptstorm.storm import cleaning
from ckptstorm.verbs import options


@click.command()
@click.argument("directory", metavar="DIR")
@options.JSON
def clean(directory: str, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Remove what a storm left in its directory: exactly the files it made, nothing else."""
    cleaned = cleaning.clean(directory)
    click.echo(json.dumps(cleaned.data()) if as_json else cleaned.sentence())
    return EXIT_MET
