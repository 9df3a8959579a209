"""The columns of the frames, each with its unit and meaning in one sentence, as docs/frames.md shows them."""

from __future__ import annotations

#: Columns that say which storm, phase and round a row belongs to.
_STORM = {"storm_id": "the storm's name"}
_PHASE = _STORM | {
    "phase": "save, restore, settle, clean up …, or a load's stage by its own name",
    "round": "from 1 measured; 0 and below are warm-up",
}
_NODE = {"node": "index of the node", "host": "its name"}

#: {frame: {column: meaning}}, in the order of the columns.
COLUMNS: dict[str, dict[str, str]] = {
    "storms": _STORM
    | {
        "path": "the result folder",
        "valid": "whether the numbers may be believed",
        "met": "whether every limit held",
        "exit_code": "what the storm ended with",
        "reasons": "why invalid or not met, one sentence each, joined by a line break",
        "ended": "complete, or how it ended early",
        "simulated": "whether a model made the numbers",
        "model": "what was saved",
        "layout": "as which files",
        "sharding": "cut how over the ranks",
        "engine": "what moved the bytes",
        "durability": "what had to be true before a save counted as done",
        "ranks": "ranks of the world",
        "nodes": "nodes of the world",
        "mount_type": "file system of the directory under test, as the kernel names it",
        "directory": "the directory under test",
        "launcher": "what started the ranks",
        "started": "time of day, UTC",
        "version": "of ckptstorm",
        "save_rounds": "finished measured saves",
        "save_seconds": "median over measured rounds of T; seconds",
        "save_seconds_worst": "the slowest of them; seconds",
        "save_bytes_per_s": "median bandwidth; bytes per second",
        "save_iops": "median data ops per second",
        "restore_rounds": "finished measured restores",
        "restore_seconds": "median over measured rounds of T; seconds",
        "restore_seconds_worst": "the slowest of them; seconds",
        "restore_bytes_per_s": "median bandwidth; bytes per second",
        "restore_iops": "median data ops per second",
        "receipts": "each receipt's name and state, as in durable=yes, joined by spaces",
    },
    "phases": _PHASE
    | {
        "is_measured": "whether the round counts",
        "is_finished": "whether every rank did all that was planned, without an error",
        "seconds": "T: the last rank's durable minus the first rank's release; seconds",
        "committed_seconds": "the same until the commit; seconds",
        "bytes": "moved by data ops of all ranks",
        "planned_bytes": "what should have moved",
        "bytes_per_s": "bytes ÷ T",
        "data_op_count": "writes and reads as issued",
        "iops": "data ops ÷ T",
        "iops_over_4k": "those of more than 4096 bytes ÷ T",
        "metadata_op_count": "ops that are neither data ops nor syncs",
        "sync_count": "syncs that succeeded",
        "error_count": "ops that failed",
        "mismatch_count": "reads that differed from what was written",
        "first_done_s": "the fastest rank; seconds after the release",
        "median_done_s": "the median rank; seconds after the release",
        "last_done_s": "the slowest rank; seconds after the release",
        "tail_s": "last done minus first done; seconds",
        "straggler_ratio": "slowest ÷ median rank",
        "straggler_count": "stragglers, by the definition in reading-a-result",
        "stall_gpu_seconds": "sum over ranks of (last done minus own release)",
        "reporting_ranks": "ranks that sent a row",
        "unfinished_ranks": "of these, ranks that did not do all that was planned",
        "generate_share": "the largest wait of a rank for bytes to be made ÷ T; 0 to 1",
        "verify_share": "the largest wait of a rank for bytes to be compared ÷ T; 0 to 1",
        "coordination_median_s": "in the framework's collectives, the median rank; seconds",
        "coordination_max_s": "in the framework's collectives, the most of any rank; seconds",
        "coordination_share": "the same ÷ T; above 1 when a commit is waited for long after T",
        "drain_ns": "settle only: until syncfs had returned everywhere; -1 not measured",
        "resident_share": "restore only: share of the bytes already in the readers' page caches; -1 unknown",
    },
    "ranks": _PHASE
    | {"rank": "which rank"}
    | _NODE
    | {
        "seconds": "from the earliest release of any rank until durable; not a number when it did not get there",
        "is_straggler": "by the definition in reading-a-result",
        "release_ns": "when it started, after the announced release",
        "first_op_ns": "when its first op started, after the announced release; -1 never",
        "durable_ns": "when its last data op and sync had returned, after the announced release; -1 never",
        "committed_ns": "when its part of the commit had returned, after the announced release; -1 never",
        "done_ns": "when it knew that the phase was over for it, after the announced release",
        "bytes": "moved by data ops",
        "verified_bytes": "compared with what was written",
        "generate_wait_ns": "what its ops waited for bytes to be made, summed over threads",
        "verify_wait_ns": "what its ops waited for bytes to be compared, summed over threads",
        "coordination_ns": "in the framework's collectives",
        "cpu_ns": "CPU time of its process",
        "data_op_count": "data ops that succeeded",
        "data_op_over_4k_count": "those of more than 4096 bytes",
        "metadata_op_count": "ops that are neither data ops nor syncs, and succeeded",
        "sync_count": "syncs that succeeded",
        "error_count": "ops that failed",
        "mismatch_count": "reads that differed",
        "first_errno": "errno of its first error; 0 none",
        "state": "bits: 1 errors, 2 incomplete, 4 stopped, 8 mismatch, 16 synced, 32 sync due",
    },
    "kind_ns": _PHASE
    | {
        "rank": "which rank",
        "…_ns": "inside ops of that kind (write_ns, fsync_ns …), summed over threads; absent when no rank spent any",
    },
    "latency": _PHASE
    | {
        "kind": "what the ops do",
        "size_class": "upper bound of the bytes that they moved; all for kinds without sizes",
        "low_ns": "the shortest time that the bin holds",
        "high_ns": "the longest",
        "count": "ops in the bin; empty bins are left out",
        "max_ns": "exact maximum of all bins of this kind and size class in this phase and round",
        "sum_ns": "exact sum of them",
    },
    "loads": _PHASE
    | {
        "load": "the load's name",
        "window": "of a load beside a save: before the save, during the save …; empty of one alone",
        "seconds": "how long the stage or window was; seconds",
        "action": "what a user asks for: create, stat, read …",
        "count": "actions that ended",
        "per_s": "actions ÷ seconds",
        "bytes_per_s": "moved ÷ seconds",
        "p50_ns": "half of the actions took up to this; beside a save from when they were due",
        "p90_ns": "90 % of them",
        "p99_ns": "99 %",
        "p999_ns": "99.9 %",
        "max_ns": "the slowest, exactly",
        "node_per_s_least": "the rate of the node that had the lowest",
        "node_p99_ns_most": "the p99 of the node where it was longest",
        "due_count": "of a load beside a save: actions of any kind that were due in the window",
        "ended_count": "and that ended in it",
        "late_ns_max": "the latest start of one after it was due",
    },
    "timeline": _PHASE
    | _NODE
    | {
        "start_ns": "when the bin begins, after the announced release",
        "bin_ns": "its width",
        "bytes": "moved in it by data ops, each op's bytes spread evenly over its time",
        "data_op_count": "data ops that ended in it",
        "other_op_count": "syncs and metadata ops that ended in it",
    },
    "placement": _STORM
    | {"rank": "which rank"}
    | _NODE
    | {
        "file": "a file of the first measured step that the rank told of; missing where the file system does not tell",
        "target": "a storage target that it lies on: a row each",
    },
    "clock": _PHASE
    | {
        "skew_median_s": "how late the median rank started after the earliest one; seconds",
        "skew_max_s": "how late the last rank started; seconds",
        "clock_count": "clocks beside rank 0's: nodes that were not booted together with it",
        "offset_ns_most": "the largest offset of one of them from rank 0's, without its sign",
        "drift_ns_most": "how much the offset of one of them grew during the phase, at most, without its sign",
        "uncertainty_ns": "of the offset-corrected clock; 0 within one node",
        "rows_ns": "T as the rows tell it",
        "barrier_to_barrier_ns": "rank 0's own measure of the same, by a barrier; 0 not taken",
        "barrier_cost_ns": "what such a barrier costs by itself",
        "gap_ns": "barrier minus rows",
        "allowed_ns": "the largest gap that the cost of the barrier explains",
        "agrees": "whether the gap lies between 0 and what is allowed",
    },
}
