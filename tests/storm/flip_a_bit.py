"""A rank's entry for a test: between save and restore, rank 0 flips one bit of rank 1's file."""

from __future__ import annotations

import os

from ckptstorm import __main__
from ckptstorm.storm import settle

_dropped = settle.drop_written


def _flip_then_drop(crew, step):
    if crew.cluster.rank == 0:
        fd = os.open(f"{step}/__1_0.distcp", os.O_RDWR, dir_fd=crew.root_fd)
        byte = os.pread(fd, 1, 123_456)[0]
        os.pwrite(fd, bytes([byte ^ 1]), 123_456)
        os.fsync(fd)
        os.close(fd)
    _dropped(crew, step)


settle.drop_written = _flip_then_drop
__main__.main()
