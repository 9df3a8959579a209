"""What each number means, in one sentence: printed with the numbers, stored with them, explained in the docs."""

from __future__ import annotations

from ckptstorm.record.receipts import COLD_RESIDENT_SHARE, SELF_WAIT_SHARE
from ckptstorm.record.stragglers import STRAGGLER_EXCESS_NS, STRAGGLER_MULTIPLE
from ckptstorm.record.words import percent
from ckptstorm.units import time_text

DEFINITIONS: dict[str, str] = {
    "seconds": "T = the last rank's durable minus the first rank's release, on one corrected clock.",
    "committed_seconds": "The same, until the last part of the commit (rename, directory sync) had returned.",
    "bytes_per_s": "Sum of all ranks' bytes ÷ T: never a mean of rates, never one rank's own time.",
    "iops": "Data ops (each write, writev or read as issued) ÷ T; over 4K: those of more than 4096 bytes.",
    "first_done_s": "First, median and last done: the fastest, the median and the slowest rank, from the release.",
    "tail_s": "Last done minus first done.",
    "straggler_ratio": "Slowest rank ÷ median rank.",
    "stragglers": (
        f"Ranks that took more than {STRAGGLER_MULTIPLE:g} times the median rank's time, "
        f"and at least {time_text(STRAGGLER_EXCESS_NS)} more."
    ),
    "stall_gpu_seconds": "Sum over ranks of (last done minus own release): what the GPUs waited, together.",
    "coordination_max_s": (
        "Inside the framework's collectives, the most of any rank (coordination_median_s: of the median rank): "
        "waiting for others, gathers, the commit."
    ),
    "interval": "95 % interval of the median by order statistics, whatever the distribution of rounds.",
    "trend": "Theil-Sen slope over measured rounds with Sen's 95 % interval, as a share of the median a round.",
    "latency_ns": "Over all ops of all ranks; the maximum is exact, percentiles are within 0.8 %.",
    "rank_seconds": "Percentiles over ranks of the time from release to durable.",
    "rounds": "Median over measured rounds; spread is (slowest - fastest) ÷ median; warm-up is never counted.",
    "limits": "A limit holds for the worst measured round; one whose name ends in _median for the median round.",
    "self": f"A client is the bottleneck when a rank waits for payload for more than {percent(SELF_WAIT_SHARE)} of T.",
    "cold": (
        f"Cold: at most {percent(COLD_RESIDENT_SHARE)} of the bytes were in the readers' page caches, "
        "and no fewer bytes passed the counters of client, servers or device than had to."
    ),
    "traffic": "Counters read on each node (or the servers) before the release and after the last rank; their rates.",
}
