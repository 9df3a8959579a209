"""A rank's entry for a test: on one rank the engine has a bug."""

from __future__ import annotations

import os

from ckptstorm import __main__
from ckptstorm.engines import null, posix


def _run(self, sink, first, stop):
    raise RuntimeError("planted bug")


if os.environ.get("PMI_RANK") == os.environ["RAISE_ON_RANK"]:
    posix.PosixProgram.run = _run
    null.NullProgram.run = _run
__main__.main()
