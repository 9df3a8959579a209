"""What can go wrong, one class a situation, each with the exit code that the shell sees."""

from __future__ import annotations

EXIT_MET = 0
EXIT_NOT_MET = 1
EXIT_REFUSED = 2
EXIT_STORAGE = 3
EXIT_LOST_RANK = 4
EXIT_INTERRUPTED = 130


class StormError(Exception):
    """A failure that is told to the user in one sentence and a next step, never as a traceback.

    Attributes:
        exit_code: what the process ends with (docs/exit-codes in the README).
        hint: what to do next; empty when the sentence says it already.
    """

    exit_code = EXIT_REFUSED

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint

    def lines(self) -> list[str]:
        """The sentence, then the next step when there is one."""
        return [str(self), *self.hint.splitlines()]


class JobError(StormError):
    """The job file or the command line asks for something wrong or impossible."""


class PlaceError(StormError):
    """The directory, the mount, the memory or the result folder is not fit for the storm."""


class LaunchError(StormError):
    """The ranks did not come up as asked (wrong launcher, missing MPI, wrong world size)."""


class LostRankError(StormError):
    """A rank died, or made no progress for longer than `[storm] timeout`."""

    exit_code = EXIT_LOST_RANK
