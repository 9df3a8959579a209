"""How a load that ran beside a save kept its rate in one window of a round, all ranks together."""

from __future__ import annotations

from dataclasses import dataclass

#: A rate is held when at least this share of what was due in a window ended in it.
HELD_SHARE = 0.99
BEFORE_SAVE, DURING_SAVE, AFTER_SAVE = "before the save", "during the save", "after the save"
DURING_RESTORE = "during the restore"
#: In the order of a round.
WINDOWS = (BEFORE_SAVE, DURING_SAVE, AFTER_SAVE, DURING_RESTORE)


@dataclass(frozen=True, slots=True)
class Beside:
    """One window.

    Attributes:
        window: one of `WINDOWS`.
        seconds: how long it was.
        due_count: actions that were due in it; ÷ seconds, the rate that the job declares.
        ended_count: actions that ended in it, whenever they were due.
        late_ns_max: the latest start of an action after it was due.
    """

    window: str
    seconds: float
    due_count: int
    ended_count: int
    late_ns_max: int

    @property
    def declared_per_s(self) -> float:
        """What was due."""
        return self.due_count / self.seconds if self.seconds > 0 else 0.0

    @property
    def achieved_per_s(self) -> float:
        """What was done."""
        return self.ended_count / self.seconds if self.seconds > 0 else 0.0

    @property
    def behind_count(self) -> int:
        """How many more were due than ended."""
        return max(0, self.due_count - self.ended_count)

    @property
    def is_held(self) -> bool:
        """Whether the rate was held."""
        return self.ended_count >= HELD_SHARE * self.due_count
