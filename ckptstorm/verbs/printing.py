"""Printing to a reader who may go away (`… | head`): what was found out does not depend on who reads it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def to_whoever_reads() -> Iterator[None]:
    """Print in here: a pipe whose reader has gone swallows the rest, and the exit code stays what it is."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """From here on standard output goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
