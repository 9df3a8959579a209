"""`ckptstorm import result`: another tool's numbers by our definitions, beside its own headline."""

from __future__ import annotations

import json

import click

from ckptstorm.errors import EXIT_MET
from ckptstorm.report import imported, importers, terminal
from ckptstorm.verbs import options


@click.command()
@click.argument("kind", type=click.Choice(list(importers.IMPORTERS)))
@click.argument("path", metavar="PATH")
@click.option("--csv", "csv_folder", metavar="NEW_DIR", help="Write the frames of ckptstorm.load there (needs pandas).")
@options.JSON
def result(kind: str, path: str, csv_folder: str | None, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Read the result of another tool.

    \b
    dlio      the folder with N_per_epoch_stats.json (DLIO, MLPerf Storage)
    ior       the JSON of -O summaryFormat=JSON
    mdtest    what it printed
    fio       --output-format=json+
    elbencho  its CSV results file
    """
    runs = importers.read(kind, path)
    if csv_folder:
        from ckptstorm.report import tabular
        from ckptstorm.report.importers import frames

        tabular.write_csv(frames.import_result(kind, path), csv_folder)
        click.echo(f"written: {csv_folder}", err=True)
    if as_json:
        click.echo(json.dumps(imported.data(runs)))
    else:
        terminal.show(imported.sections(runs))
    return EXIT_MET
