"""The machine as adapters see it: files below a root (a folder, in tests), and the file systems' own programs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

#: A tool that has not answered by then hangs with its servers; nothing of ours waits longer.
TOOL_PATIENCE_S = 20.0


class NoAnswerError(Exception):
    """A file cannot be read, or a program is missing, failed, or hung; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine.

    Attributes:
        root: where /proc and /sys are looked for.
        patience_s: how long a program may take.
    """

    root: str = "/"
    patience_s: float = TOOL_PATIENCE_S

    def path(self, path: str) -> Path:
        """An absolute path below the root."""
        return Path(self.root, path.lstrip("/"))

    def read(self, path: str) -> str:
        """A small file of /proc, /sys, or a mount.

        Raises:
            NoAnswerError: it cannot be read.
        """
        try:
            return self.path(path).read_text(errors="surrogateescape")
        except OSError as error:
            raise NoAnswerError(f"{path}: {error.strerror}") from None

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; nothing when it is not there."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def ask(self, *command: str, given: str = "") -> str:
        """What a program on PATH prints.

        Args:
            command: its words; no shell sees them.
            given: what it reads from standard input.

        Raises:
            NoAnswerError: not installed, failed (with the first line of what it said), or hung.
        """
        import shutil  # here: most ranks never ask a program, and these two import a dozen more
        import subprocess

        if shutil.which(command[0]) is None:
            raise NoAnswerError(f"{command[0]} is not on PATH")
        try:
            ended = subprocess.run(
                command, input=given, capture_output=True, text=True, timeout=self.patience_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoAnswerError(f"{' '.join(command)}: no answer within {self.patience_s:g} s") from None
        except OSError as error:
            raise NoAnswerError(f"{command[0]}: {error.strerror}") from None
        if ended.returncode:
            said = (ended.stderr.strip() or ended.stdout.strip() or f"ended with {ended.returncode}").splitlines()[0]
            raise NoAnswerError(f"{' '.join(command)}: {said}")
        return ended.stdout
