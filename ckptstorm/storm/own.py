"""What sets one rank apart from the others in a phase: its own release, its trainer, who else must hear of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ckptstorm.measure.pace import Pace, no_pace, pace_row
from ckptstorm.storm.staging import Trainer


@dataclass(frozen=True, slots=True)
class Own:
    """One rank in one phase.

    Attributes:
        delay_ns: its own release after the announced one.
        trainer: of a staged save, who copies and trains on; None else.
        is_told: whether the record is to tell of it.
        hear: told the announced release (this node's clock) before it comes.
    """

    delay_ns: int = 0
    trainer: Trainer | None = None
    is_told: bool = False
    hear: Callable[[int], None] | None = None

    def pace(self) -> Pace:
        """What the record tells; the trainer comes to its end."""
        if self.trainer is not None:
            return self.trainer.finish(self.delay_ns)
        return pace_row(delay_ns=self.delay_ns) if self.is_told else no_pace()


NOTHING_OWN = Own()
