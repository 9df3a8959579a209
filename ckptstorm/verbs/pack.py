"""`ckptstorm pack`: what a rank needs, in one archive."""

from __future__ import annotations

import click

from ckptstorm.batch import pack as packing
from ckptstorm.errors import EXIT_MET
from ckptstorm.units import bytes_text


@click.command()
@click.argument("path", metavar="FILE.tar")
def pack(path: str) -> int:
    """Pack this environment for compute nodes: `[software] archive` of a site file stages it to each of them."""
    packed = packing.pack(path)
    click.echo(f"{packed.path}: {packed.file_count} files, {bytes_text(packed.bytes)}: {', '.join(packed.packages)}")
    return EXIT_MET
