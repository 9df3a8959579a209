"""`ckptstorm import job`: another tool's job file as a job of ours."""

from __future__ import annotations

import click

from ckptstorm.errors import EXIT_MET
from ckptstorm.foreign import FOREIGN
from ckptstorm.registry import find


@click.command()
@click.argument("kind", type=click.Choice(list(FOREIGN)))
@click.argument("path", metavar="FILE")
def job(kind: str, path: str) -> int:
    """Print the job that asks the same; options without a meaning here are refused, each by its name.

    \b
    ckptstorm import job fio randwrite.fio > randwrite.toml
    """
    click.echo(find("tool", FOREIGN, kind)(path), nl=False)
    return EXIT_MET
