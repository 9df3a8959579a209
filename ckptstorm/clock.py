"""The one clock: integer nanoseconds, monotonic, passed in where time must be faked.

Durations never come from a wall clock: steps of NTP or daylight saving would become latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: A clock is any function that returns integer nanoseconds and never goes back.
Clock = Callable[[], int]

NS_PER_S = 1_000_000_000

#: CLOCK_MONOTONIC of this node (its zero is the node's boot, so two nodes differ by an offset).
monotonic_ns: Clock = time.monotonic_ns
