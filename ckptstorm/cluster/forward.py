"""What the ranks print, passed on by their parent; what the launcher itself says of a dead rank goes to standard error.

Hydra prints that on standard output, in the middle of a record that a program is about to read.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import IO

#: How Hydra begins when a rank has died; the lines before it are empty, or a rule.
_OBITUARY = b"=   BAD TERMINATION OF ONE OF YOUR"


class Forward:
    """A thread that passes a launcher's standard output on, line by line."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, patience_s: float) -> None:
        """Wait until all is passed on; not for ever: a process that cannot be ended may hold the pipe."""
        self._thread.join(patience_s)

    def _run(self) -> None:
        target, held = sys.stdout.fileno(), list[bytes]()
        try:
            for line in self._source:
                if line.startswith(_OBITUARY):
                    target = sys.stderr.fileno()
                held.append(line)
                if target == sys.stdout.fileno() and not line.strip(b"=\n"):
                    continue
                _write_all(target, b"".join(held))
                held.clear()
            _write_all(target, b"".join(held))
        except BrokenPipeError:  # the reader of our output went away: the storm goes on to its own end and exit code
            for _ in self._source:
                pass
        finally:
            self._source.close()


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]
