"""Where the next block lies, as a function of its number alone: no list of blocks is ever kept.

A span of a petabyte has 2^38 blocks of 4 KiB. A permutation of them as a list would be 2 TB; here it is a
Feistel network (Luby and Rackoff 1988, in the form of Black and Rogaway 2002 for any domain): numbers of an
a × b grid just larger than the span are mixed by four rounds, and the few that fall outside are mixed again
until they fall inside (cycle walking). It is exact, costs no memory, and any part of it can be made alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

_GOLDEN, _MIX, _MIX2 = (np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
#: Four rounds make a Feistel network indistinguishable from a random permutation, if the round function is.
_ROUNDS = 4
#: 53 bits make a float between 0 and 1.
_TO_UNIT = 2.0**-53


def mixed(numbers: Numbers, key: int) -> Numbers:
    """64 bits drawn for each number under a key (splitmix64's finaliser, Steele, Lea, Flood 2014)."""
    x = numbers * _GOLDEN + np.uint64(key & (1 << 64) - 1)
    x = (x ^ (x >> np.uint64(30))) * _MIX
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


def units(numbers: Numbers, key: int) -> NDArray[np.float64]:
    """A float in [0, 1) drawn for each number."""
    return np.asarray((mixed(numbers, key) >> np.uint64(11)).astype(np.float64) * _TO_UNIT)


@dataclass(frozen=True, slots=True)
class Permutation:
    """All numbers below `count`, each once, in an order that `key` draws.

    Attributes:
        count: of numbers, 1 to 2^60.
        key: of this order.
    """

    count: int
    key: int

    def at(self, positions: Numbers) -> Numbers:
        """The numbers at these positions (below `count`) of the order."""
        if self.count == 1:
            return np.zeros_like(positions)
        rows = math.isqrt(self.count - 1) + 1
        columns = -(-self.count // rows)
        found = self._mix(positions, np.uint64(rows), np.uint64(columns))
        while (outside := found >= self.count).any():
            found[outside] = self._mix(found[outside], np.uint64(rows), np.uint64(columns))
        return found

    def _mix(self, numbers: Numbers, rows: np.uint64, columns: np.uint64) -> Numbers:
        row, column = numbers // columns, numbers % columns
        for number in range(_ROUNDS):
            key = self.key * _ROUNDS + number
            if number % 2:
                column = (column + mixed(row, key) % columns) % columns
            else:
                row = (row + mixed(column, key) % rows) % rows
        return row * columns + column


def permuted(key: int, count: int) -> Callable[[Numbers], Numbers]:
    """Every number below `count` once before any comes again, in another order each time round."""

    def at(turns: Numbers) -> Numbers:
        found = np.empty_like(turns)
        laps = turns // np.uint64(count)
        for lap in np.unique(laps):
            mine = laps == lap
            order = Permutation(count, key + int(lap) * 0x9E37_79B9)
            found[mine] = order.at(turns[mine] % np.uint64(count))
        return found

    return at


def uniform(key: int, count: int) -> Callable[[Numbers], Numbers]:
    """Every number by lot, each time anew."""
    return lambda turns: np.asarray(mixed(turns, key) % np.uint64(count))


def zipf(key: int, count: int, theta: float) -> Callable[[Numbers], Numbers]:
    """The k-th most wanted number comes with weight k^-theta; which number that is, a permutation draws.

    By rejection from the continuous distribution (Hörmann and Derflinger 1996): exact for any count, no table.
    """
    scattered = Permutation(count, key + 1)

    def primitive(x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The integral of x^-theta."""
        return np.log(x) if theta == 1 else (x ** (1 - theta)) / (1 - theta)

    def inverse(y: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(y) if theta == 1 else ((1 - theta) * y) ** (1 / (1 - theta))

    low = primitive(np.array(1.5)) - 1.0
    high = primitive(np.array(count + 0.5))

    def at(turns: Numbers) -> Numbers:
        ranks = np.zeros(len(turns), dtype=np.uint64)
        left, attempt = np.arange(len(turns)), 0
        while len(left):
            drawn = low + units(turns[left], key + 2 + attempt) * (high - low)
            rank = np.clip(np.rint(inverse(drawn)), 1, count)
            is_taken = drawn >= primitive(rank + 0.5) - rank ** (-theta)
            ranks[left[is_taken]] = rank[is_taken].astype(np.uint64) - np.uint64(1)
            left, attempt = left[~is_taken], attempt + 1
        return scattered.at(ranks)

    return at
