"""`ckptstorm import`: what other tools wrote, as ours."""

from __future__ import annotations

import click

from ckptstorm.registry import Entry
from ckptstorm.verbs.group import TableGroup

#: What can be imported.
WHAT = {
    "job": Entry("ckptstorm.verbs.import_job:job", "A job file of fio, as a job of ours."),
    "result": Entry("ckptstorm.verbs.import_result:result", "A result of DLIO, IOR, mdtest, fio or elbencho."),
}


@click.group("import", cls=TableGroup, table=WHAT)
def import_() -> None:
    """What other tools wrote, as ours."""
