"""`ckptstorm compare`: is it better or worse than before, or can it not be told?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ckptstorm.errors import EXIT_MET, EXIT_NOT_MET, PlaceError
from ckptstorm.record import files, settings
from ckptstorm.record.record import StormRecord
from ckptstorm.report import compared, terminal
from ckptstorm.report.compare import SAME_WITHIN, Comparison
from ckptstorm.report.compare import compare as set_against
from ckptstorm.report.drift import Series, series
from ckptstorm.report.html import page
from ckptstorm.verbs import options
from ckptstorm.verbs.kinds import percent


@click.command()
@click.argument("folders", metavar="DIR…", nargs=-1, required=True)
@click.option(
    "--baseline", metavar="DIR", help="The storm that all DIRs are set against; their drift is looked at too."
)
@click.option("--anyway", is_flag=True, help="Compare unlike storms in what is alike.")
@click.option("--fail-above", type=percent, help="Exit with 1 when a time is worse by more than this, such as 5%.")
@click.option("--same-within", type=percent, help="A change within this is none; 5%, or --fail-above if that is less.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page for a browser.")
@options.JSON
def compare(folders: tuple[str, ...], baseline: str | None, **asked: Any) -> int:
    """Set storms against each other: `compare BEFORE AFTER`, or many with --baseline.

    Only storms of one job on one world are compared. For each number: the change, its bootstrap interval over rounds,
    and better, worse, same or cannot tell.
    """
    if asked["html"] is not None:
        page.require()
    before, afters = _sides(folders, baseline)
    fail_above = asked["fail_above"]
    same_within = asked["same_within"]
    if same_within is None:
        same_within = SAME_WITHIN if fail_above is None else min(SAME_WITHIN, fail_above)
    comparisons = tuple(
        set_against(before, after, same_within, "allow" if asked["anyway"] else "refuse") for after in afters
    )
    many = series(comparisons) if len(comparisons) > 1 else None
    _print(comparisons[-1], many, asked)
    if asked["html"] is not None:
        _write_page(comparisons[-1], many, asked)
    return EXIT_NOT_MET if fail_above is not None and _has_failed(comparisons[-1], many, fail_above) else EXIT_MET


def _sides(folders: tuple[str, ...], baseline: str | None) -> tuple[StormRecord, list[StormRecord]]:
    """The storm to compare with, and the others in the order of their start."""
    if baseline is None and len(folders) != 2:
        found = "one storm was named" if len(folders) == 1 else f"{len(folders)} storms were named"
        raise PlaceError(
            f"{found}, and a comparison is of two: BEFORE and AFTER",
            "ckptstorm compare BEFORE AFTER, or ckptstorm compare DIR… --baseline DIR",
        )
    before, others = (baseline, folders) if baseline is not None else (folders[0], folders[1:])
    records = [files.load(folder) for folder in others]
    records.sort(key=lambda record: (settings.text(record.environment, "started"), record.storm_id))
    return files.load(before), records


def _print(newest: Comparison, many: Series | None, asked: dict[str, Any]) -> None:
    if asked["as_json"]:
        click.echo(json.dumps(compared.data(newest) if many is None else compared.series_data(many)))
        return
    gate = asked["fail_above"]
    shown = compared.sections(newest, gate) if many is None else compared.series_sections(many, gate)
    terminal.show(shown)


def _write_page(newest: Comparison, many: Series | None, asked: dict[str, Any]) -> None:
    from ckptstorm.report.html import comparison

    gate = asked["fail_above"]
    made = comparison.page(newest, gate) if many is None else comparison.series_page(many, gate)
    page.write(page.render(made), asked["html"])
    click.echo(f"written: {asked['html']}", err=True)


def _has_failed(newest: Comparison, many: Series | None, fail_above: float) -> bool:
    """Worse than allowed, or not to be believed; a drift counts as well."""
    drifts = many.drifts if many is not None else ()
    is_drifting = any(drift.word == "worse" and drift.worse_by > fail_above for drift in drifts)
    is_believable = newest.before.is_believable and newest.after.is_believable
    return bool(newest.worst(fail_above)) or is_drifting or not is_believable
