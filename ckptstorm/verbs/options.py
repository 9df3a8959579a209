"""Options that several verbs share: the same word means the same everywhere."""

from __future__ import annotations

import click

JOB = click.argument("job_name", metavar="JOB")
DIR = click.option("--dir", "directory", default="./ckptstorm-data", show_default=True, help="Directory under test.")
DIRS = click.option(
    "--dir", "directories", multiple=True, default=("./ckptstorm-data",), show_default=True,
    help="Directory under test; several are dealt to ranks (--spread).",
)  # fmt: skip
SPREAD = click.option(
    "--spread", type=click.Choice(["rank", "node"]), default="rank", show_default=True,
    help="With several --dir: one rank after the other, or all ranks of a node together.",
)  # fmt: skip
RESULTS = click.option("--results", default="./results", show_default=True, help="Where result folders go.")
SET = click.option("--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override a key of the job.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
HTML = click.option("--html", "as_html", is_flag=True, help="Write report.html, for a browser.")
RANKS = click.option("--ranks", type=click.IntRange(1, 1 << 24), help="How many ranks.")
#: For verbs that start nothing: what a laptop would start.
RANKS_OR_4 = click.option(
    "--ranks", type=click.IntRange(1, 1 << 24), default=4, show_default=True, help="How many ranks."
)
PER_NODE = click.option("--ranks-per-node", type=click.IntRange(1, 4096), default=8, show_default=True)
