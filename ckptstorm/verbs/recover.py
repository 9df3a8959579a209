"""`ckptstorm recover`: after a rank was lost, what could training go on from?"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ckptstorm.errors import EXIT_REFUSED
from ckptstorm.storm.lost_storm import what_is_left
from ckptstorm.storm.parent import run_world
from ckptstorm.verbs import options
from ckptstorm.verbs.run import after

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--keep-files", is_flag=True, help="Leave the checkpoints; `ckptstorm clean` removes them.")
@click.option("--lost-ns", type=click.IntRange(0), default=0, hidden=True)
@options.JSON
@click.pass_obj
def recover(cluster: Cluster | None, /, directory: str, keep_files: bool, lost_ns: int, as_json: bool) -> int:  # noqa: FBT001 - flags of the command line
    """Restore what a storm that lost a rank has left, as its framework would choose it; ends its record.

    `ckptstorm run --ranks` does it by itself after a planted `kill` or `stop`. Under a launcher start as many
    ranks as the storm had: srun -n 512 ckptstorm recover DIR
    """
    if cluster is None:
        manifest, job, record = what_is_left(directory)
        results = str(Path(manifest.partial).parent)
        block_size_bytes = int(record.asked["io.block_size"][1])
        ended = run_world(job, manifest.rank_count, results, block_size_bytes, sys.argv[1:])
        return after(ended, directory, as_json=as_json)
    from ckptstorm.record import stormjson
    from ckptstorm.record.verdict import verdict
    from ckptstorm.report import terminal
    from ckptstorm.storm import resume

    conducted = resume.conduct_recovery(cluster, directory, lost_ns, keeps_files=keep_files)
    click.echo(json.dumps(stormjson.to_json(conducted.record)) if as_json else terminal.render(conducted.record))
    if conducted.left_behind:
        click.echo(f"Files left: remove them with  ckptstorm clean {shlex.quote(conducted.left_behind)}", err=True)
    if conducted.problem:
        click.echo(f"ckptstorm: {conducted.problem}: the record above is all there is", err=True)
        return EXIT_REFUSED
    return verdict(conducted.record).exit_code
