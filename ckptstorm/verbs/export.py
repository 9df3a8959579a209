"""`ckptstorm export`: a result folder for other programs, and for other people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ckptstorm.errors import EXIT_MET
from ckptstorm.record import files
from ckptstorm.record.record import StormRecord
from ckptstorm.verbs.kinds import write_new


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--csv", metavar="NEW_DIR", help="The frames of ckptstorm.load as CSV files, one a frame (needs pandas).")
@click.option("--json-lines", metavar="FILE", help="The same as one JSON object a row (needs pandas).")
@click.option("--perfetto", metavar="FILE", help="A trace for ui.perfetto.dev: a track a rank, a slice a phase.")
@click.option("--openmetrics", metavar="FILE", help="Gauges as OpenMetrics text.")
@click.option("--anonymous", metavar="NEW_DIR", help="A copy without hosts, paths and accounts, all numbers whole.")
def export(folder: str, **asked: Any) -> int:
    """Write a result in another form. FILE may be - for the standard output; nothing is overwritten.

    For tables DIR may be a folder of results, or a pattern in quotes: one set of tables of all.
    """
    if not any(asked.values()):
        raise click.UsageError("in which form? See ckptstorm export --help")
    if asked["csv"] or asked["json_lines"]:
        _tables(folder, asked)
    if asked["perfetto"] or asked["openmetrics"] or asked["anonymous"]:
        _whole(files.load(folder), asked)
    return EXIT_MET


def _whole(record: StormRecord, asked: dict[str, Any]) -> None:
    """The forms that one storm has."""
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


def _tables(folder: str, asked: dict[str, Any]) -> None:
    from ckptstorm.report import frames, tabular

    loaded = frames.load(folder)
    if asked["csv"]:
        tabular.write_csv(loaded, asked["csv"])
        _told(asked["csv"])
    if asked["json_lines"]:
        _write(asked["json_lines"], tabular.json_lines(loaded))


def _write(path: str, pieces: Iterable[str]) -> None:
    if path == "-":
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    write_new(path, pieces)
    _told(path)


def _told(path: str) -> None:
    click.echo(f"written: {Path(path)}", err=True)
