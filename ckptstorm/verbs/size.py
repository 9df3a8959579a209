"""`ckptstorm size`: what a measured storm means for a training job on a cluster that fails."""

from __future__ import annotations

import json
from typing import Any

import click

from ckptstorm.errors import EXIT_MET, EXIT_NOT_MET
from ckptstorm.forecast import sizing
from ckptstorm.record import files
from ckptstorm.record.verdict import verdict
from ckptstorm.report import sizing as page
from ckptstorm.report import terminal
from ckptstorm.verbs import options
from ckptstorm.verbs.kinds import FiniteRange, percent, seconds

_POSITIVE = FiniteRange(0, 1e12, min_open=True)


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--gpus", type=click.IntRange(1, 1 << 24), help="GPUs of the job; default: the ranks of the storm.")
@click.option("--mttf", type=_POSITIVE, default=sizing.MTTF_H, show_default=True, help="A GPU fails once in HOURS.")
@click.option("--restart", type=seconds, default="0", help="What a restart takes besides the restore, such as 5min.")
@click.option("--blocking", type=seconds, help="What an asynchronous save holds training for, if not as measured.")
@click.option("--interval", type=seconds, help="An interval to judge too, such as 30min.")
@click.option("--overhead", type=percent, default="3%", show_default=True, help="What saving and lost work may take.")
@click.option("--price", type=FiniteRange(0, 1e6), default=0.0, help="Of one GPU-hour, to reckon in money.")
@options.JSON
def size(folder: str, gpus: int | None, mttf: float, **asked: Any) -> int:
    """How often to save, what it costs in GPU-hours and money, and what bandwidth would do."""
    record = files.load(folder)
    question = sizing.Asked(
        gpus or len(record.node_of_rank),
        mttf,
        asked["restart"],
        asked["blocking"],
        asked["interval"] or None,
        _overhead(asked["overhead"]),
        asked["price"],
    )
    found, judged = sizing.size(record, question), verdict(record)
    if asked["as_json"]:
        click.echo(json.dumps(page.data(found, record, judged)))
    else:
        terminal.show(page.sections(found, record, judged))
    return EXIT_MET if judged.valid or judged.exit_code == EXIT_MET else EXIT_NOT_MET


def _overhead(share: float) -> float:
    if not 0 < share < 1:
        raise click.BadParameter(
            f"an overhead is above 0 % and below 100 %, found {share * 100:g} %", param_hint="--overhead"
        )
    return share
