"""When ranks and rounds begin: the words of `[storm] rounds`, `skew` and `stagger`, and the delays that they mean.

Trainers do not start to save at one instant: a rank is as late as its last step was slow, and some sites
let nodes take turns on purpose. Both move a rank's own release, and its stall counts from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ckptstorm.units import parse_duration

#: Measured rounds of `rounds = "until 5%"` that names no other number: the width of an interval of the median
#: falls with the square root of the rounds, so who is not sure after 50 needs hundreds.
UNTIL_ROUNDS = 50
#: Measured rounds within a `duration`: their histograms fill some 1.5 GB on rank 0, and their table in storm.h5.
DURATION_ROUNDS = 2048
ROUNDS_MAX = 4096

_UNTIL = re.compile(r"\s*until\s+(\d{1,2}(?:\.\d{1,3})?)\s*%\s*(?:,\s*at\s+most\s+(\d{1,4})\s*)?\Z")
_STAGGER = re.compile(r"\s*by\s+(node|rank)\s+(\S+)\s*\Z")


class Rounds(int):
    """How many measured rounds there are at most; `within` is how sure the median must be before (0: not asked)."""

    says: ClassVar[str] = f'a whole number from 1 to {ROUNDS_MAX}, or "until 5%", or "until 5%, at most 80"'
    within: float = 0.0

    @classmethod
    def parse(cls, value: object) -> Rounds:
        """5, "until 5%", "until 5%, at most 80". Raises ValueError."""
        match = _UNTIL.match(value) if isinstance(value, str) else None
        if match and float(match[1]) > 0 and 1 <= int(match[2] or UNTIL_ROUNDS) <= ROUNDS_MAX:
            return cls.until(float(match[1]) / 100, int(match[2] or UNTIL_ROUNDS))
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= ROUNDS_MAX:
            return cls(value)
        raise ValueError("expected a number of rounds, or how sure to be")

    @classmethod
    def until(cls, within: float, most: int = UNTIL_ROUNDS) -> Rounds:
        """Until the median is known to ± `within` (a share), or after `most` rounds."""
        made = cls(most)
        made.within = within
        return made

    def plain(self) -> int | str:
        """As a job file holds it."""
        return f"until {round(self.within * 100, 3):g}%, at most {int(self)}" if self.within else int(self)


class Stagger(str):
    """ "by node 200ms": each node (or rank) is released that much after the one before; "0s": all together."""

    says: ClassVar[str] = '"by node 200ms", "by rank 5ms" or "0s"'
    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Stagger:
        """As a job file holds it. Raises ValueError."""
        staggered(cls(value), np.zeros(1, dtype=np.int64))
        return cls(value)

    def plain(self) -> str:
        """As a job file holds it."""
        return str(self)


class Skew(str):
    """How late ranks come to a save: a distribution, drawn anew each round; "0s": all together."""

    says: ClassVar[str] = '"2s" or "uniform 2s", "normal 200ms", "exponential 200ms", "lognormal 10s 0.05" or "0s"'
    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Skew:
        """As a job file holds it. Raises ValueError."""
        distribution(cls(value))
        return cls(value)

    def plain(self) -> str:
        """As a job file holds it."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of times.

    Attributes:
        name: uniform (0 to scale), normal (standard deviation), exponential (mean), lognormal (median).
        scale_ns: its scale.
        sigma: lognormal only: the standard deviation of the logarithm.
    """

    name: str
    scale_ns: int
    sigma: float = 0.0


def with_rounds(storm: dict[str, Any]) -> dict[str, Any]:
    """A [storm] table that asks for a duration and names no rounds: as many as fit, up to `DURATION_ROUNDS`."""
    is_open = storm.get("duration", 0) not in (0, "0", "0s") and "rounds" not in storm
    return storm | {"rounds": DURATION_ROUNDS} if is_open else storm


def distribution(skew: Skew) -> Distribution:
    """What a skew says. Raises ValueError: not one of its forms."""
    words = skew.split()
    try:
        if len(words) == 1:
            return Distribution("uniform", parse_duration(words[0]))
        if len(words) == 2 and words[0] in ("uniform", "normal", "exponential"):
            return Distribution(words[0], parse_duration(words[1]))
        if len(words) == 3 and words[0] == "lognormal" and 0 < float(words[2]) <= 3:
            return Distribution(words[0], parse_duration(words[1]), float(words[2]))
    except ValueError:
        pass
    raise ValueError("expected a distribution of times")


def delays_ns(
    skew: Skew, stagger: Stagger, node_of_rank: NDArray[np.int32], seed: int, round_number: int
) -> NDArray[np.int64]:
    """How long after the announced release each rank is released; one of them at once.

    The same on every rank of a storm, as it is a function of the arguments alone.

    Args:
        skew, stagger: of the job.
        node_of_rank: shape (ranks,).
        seed: of the storm. round_number: 0 and below are warm-up.

    Returns:
        Shape (ranks,), nanoseconds, the least of them 0.
    """
    drawn = _drawn_ns(distribution(skew), len(node_of_rank), seed, round_number)
    delays = drawn + staggered(stagger, node_of_rank.astype(np.int64))
    return np.asarray(delays - delays.min(), dtype=np.int64)


def staggered(stagger: Stagger, node_of_rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """The planned part of the delays, by node or by rank. Raises ValueError: not one of its forms."""
    match = _STAGGER.match(stagger)
    try:
        step_ns = parse_duration(match[2] if match else str(stagger))
    except ValueError:
        step_ns = None
    if step_ns is None or (match is None and step_ns):
        raise ValueError("expected turns of nodes or ranks")
    places = np.arange(len(node_of_rank), dtype=np.int64) if match and match[1] == "rank" else node_of_rank
    return np.asarray(places * int(step_ns), dtype=np.int64)


def _drawn_ns(law: Distribution, count: int, seed: int, round_number: int) -> NDArray[np.int64]:
    if law.scale_ns == 0:
        return np.zeros(count, dtype=np.int64)
    chance = np.random.Generator(np.random.PCG64([seed, round_number + (1 << 32)]))
    if law.name == "uniform":
        drawn = chance.uniform(0, law.scale_ns, count)
    elif law.name == "normal":
        drawn = chance.normal(0, law.scale_ns, count)
    elif law.name == "exponential":
        drawn = chance.exponential(law.scale_ns, count)
    else:
        drawn = law.scale_ns * np.exp(chance.normal(0, law.sigma, count))
    return np.asarray(drawn, dtype=np.int64)
