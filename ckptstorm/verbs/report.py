"""`ckptstorm report`: a result folder, read again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ckptstorm.errors import EXIT_NOT_MET
from ckptstorm.record import files, stormjson
from ckptstorm.record.record import StormRecord
from ckptstorm.record.verdict import verdict
from ckptstorm.report import many, scaling, terminal
from ckptstorm.report.html import HTML_NAME, page
from ckptstorm.report.parts import Section
from ckptstorm.report.sections import sections
from ckptstorm.verbs import options
from ckptstorm.verbs.printing import to_whoever_reads


@click.command()
@click.argument("paths", metavar="DIR…", nargs=-1, required=True)
@options.JSON
@options.HTML
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Where --html writes, if not into DIR.")
def report(paths: tuple[str, ...], as_json: bool, as_html: bool, output: Path | None) -> int:  # noqa: FBT001 - flags
    """Show a result folder (or what a lost storm left: DIR.partial); of a folder of them, the scaling table.

    Of several, one table with a line a storm, in the order of their start.
    """
    if len(paths) > 1:
        return _many(paths, as_json=as_json, output=output, as_html=as_html)
    folder = paths[0]
    is_series = scaling.is_folder_of_folders(folder)
    if as_html or output is not None:
        page.require()
        path = output or Path(folder) / HTML_NAME
        exit_code = _series_page(folder, path) if is_series else write_page(files.load(folder), path)
        click.echo(str(path))
        return exit_code
    if is_series:
        found = scaling.scaling(folder)
        _print(found.data(), scaling.sections(found), as_json=as_json)
        return _series_exit(found)
    return show(folder, as_json=as_json)


def _many(paths: tuple[str, ...], *, as_json: bool, as_html: bool, output: Path | None) -> int:
    if as_html and output is None:
        raise click.UsageError("the page of several storms belongs to none of them: where to? --output FILE")
    found = many.read(paths)
    if output is not None:
        page.write(page.render(page.Page("Checkpoint storms", many.sections(found))), output)
        click.echo(str(output))
    else:
        _print(found.data(), many.sections(found), as_json=as_json)
    return found.exit_code


def _print(data: dict[str, Any], shown: Iterable[Section], *, as_json: bool) -> None:
    with to_whoever_reads():
        if as_json:
            click.echo(json.dumps(data))
        else:
            terminal.show(shown)


def show(folder: str, *, as_json: bool) -> int:
    """Print a result folder; returns the exit code of its verdict."""
    record = files.load(folder)
    _print(stormjson.to_json(record), sections(record), as_json=as_json)
    return verdict(record).exit_code


def write_page(record: StormRecord, path: Path) -> int:
    """Write a storm's page; returns the exit code of its verdict."""
    from ckptstorm.report.html import storm

    page.write(page.render(storm.page(record)), path)
    return verdict(record).exit_code


def _series_page(folder: str, path: Path) -> int:
    found = scaling.scaling(folder)
    made = page.Page(f"Checkpoint storms in {folder}", tuple(scaling.sections(found)))
    page.write(page.render(made), path)
    return _series_exit(found)


def _series_exit(found: scaling.Scaling) -> int:
    return max((row.exit_code for row in found.rows), default=EXIT_NOT_MET)
