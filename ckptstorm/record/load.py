"""What a record keeps of one stage of a load, beside its phase rows: actions, nodes, seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.actions import ActionTable
from ckptstorm.record.beside import Beside
from ckptstorm.record.latencies import Percentiles, percentiles

#: One row a node and action: counts, and percentiles over the node's own actions.
NODE_DTYPE = np.dtype(
    [
        ("phase", "<u4"),
        ("node", "<u4"),
        ("action", "u1"),
        ("count", "<i8"),
        ("bytes", "<i8"),
        ("p50_ns", "<i8"),
        ("p90_ns", "<i8"),
        ("p99_ns", "<i8"),
        ("p999_ns", "<i8"),
        ("max_ns", "<i8"),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class LoadRecord:
    """One stage of a load in one round, of all ranks.

    Attributes:
        load: the load's name in the job; the stage's own is the phase's.
        actions: words, in the order of `table`.
        table: of all ranks: histograms, maxima, bytes.
        nodes: rows of `NODE_DTYPE`, by node and action.
        seconds: (ops, bytes) that ended in each second after the release (and the ramp); shape (seconds, 2).
        beside: how it kept its rate in one window, of a load that ran beside a save; None of one alone.
    """

    load: str
    actions: tuple[str, ...]
    table: ActionTable
    nodes: NDArray[np.void]
    seconds: NDArray[np.int64]
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class ActionSummary:
    """What one action of a stage came to.

    Attributes:
        action: its word.
        count, per_s: of all ranks, and ÷ T.
        bytes_per_s: moved ÷ T.
        latency_ns: of all ranks.
        node_per_s_least, node_per_s_median, node_per_s_most: over the nodes that take part, each ÷ T.
        node_p99_ns_most: the p99 of the node where it is longest.
    """

    action: str
    count: int
    per_s: float
    bytes_per_s: float
    latency_ns: Percentiles
    node_per_s_least: float
    node_per_s_median: float
    node_per_s_most: float
    node_p99_ns_most: int


def summarize_actions(load: LoadRecord, seconds: float) -> tuple[ActionSummary, ...]:
    """Every action that was done at all; `seconds` is T of the phase."""
    found = []
    for number, word in enumerate(load.actions):
        latency = percentiles(load.table.counts[number], int(load.table.max_ns[number]))
        if not latency.count:
            continue
        nodes = load.nodes[load.nodes["action"] == number]
        rates = sorted(nodes["count"].tolist()) or [latency.count]
        per = 1 / seconds if seconds > 0 else 0.0
        found.append(
            ActionSummary(
                word,
                latency.count,
                latency.count * per,
                int(load.table.bytes[number]) * per,
                latency,
                rates[0] * per,
                rates[(len(rates) - 1) // 2] * per,
                rates[-1] * per,
                int(nodes["p99_ns"].max(initial=latency.p99 if not len(nodes) else 0)),
            )
        )
    return tuple(found)
