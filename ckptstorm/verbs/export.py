"""`ckptstorm export`: a result folder for other programs, and for other people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ckptstorm.errors import EXIT_MET
from ckptstorm.record import files
from ckptstorm.verbs.kinds import write_new


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--perfetto", metavar="FILE", help="A trace for ui.perfetto.dev: a track a rank, a slice a phase.")
@click.option("--openmetrics", metavar="FILE", help="Gauges as OpenMetrics text.")
@click.option("--anonymous", metavar="NEW_DIR", help="A copy without hosts, paths and accounts, all numbers whole.")
def export(folder: str, **asked: Any) -> int:
    """Write a result in another form. FILE may be - for the standard output; nothing is overwritten."""
    if not any(asked.values()):
        raise click.UsageError("in which form? See ckptstorm export --help")
    record = files.load(folder)
    if asked["perfetto"]:
        from ckptstorm.report import perfetto

        _write(asked["perfetto"], perfetto.pieces(record))
    if asked["openmetrics"]:
        from ckptstorm.report import metrics

        _write(asked["openmetrics"], [metrics.openmetrics(record)])
    if asked["anonymous"]:
        from ckptstorm.report.anonymous import anonymous

        files.write(anonymous(record), asked["anonymous"])
        _told(asked["anonymous"])
    return EXIT_MET


def _write(path: str, pieces: Iterable[str]) -> None:
    if path == "-":
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    write_new(path, pieces)
    _told(path)


def _told(path: str) -> None:
    click.echo(f"written: {Path(path)}", err=True)
