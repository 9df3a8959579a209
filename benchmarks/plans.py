"""How long one rank takes to plan, layout by layout, at the scale of real jobs: a plan is made before every storm.

    python benchmarks/plans.py            all cases
    python benchmarks/plans.py dcp ddp    those whose name has one of these words

A rank's plan is the median of a few ranks, each planned for the first time; what a process works out once
for all of its ranks (the model's list, who writes what) is told apart as `first`. Limits: 20 ms a rank for
dense models, 300 ms for DeepSeek-V3 with every expert by itself.
"""

from __future__ import annotations

import statistics
import sys
import time

from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.model.parallel import World
from ckptstorm.plan import plan
from ckptstorm.scene import layout_of

DENSE_MS, UNFUSED_MS = 20, 300
RANKS_TIMED = 7


def job(model: str, layout: str, parallel: dict[str, object] | None = None, **options: object) -> Job:
    """A job of one case."""
    return Job(
        model=ModelTable(name=model),
        layout=LayoutTable(name=layout, options=options),
        parallel=ParallelTable(**(parallel or {})),  # type: ignore[arg-type]
    )


_MEGATRON = {"sharding": "distributed_optimizer", "tensor": 8, "pipeline": 16}
CASES = {
    "405b dcp fsdp2": (job("llama3-405b", "dcp"), 16_384),
    "405b dcp fsdp2, threads": (job("llama3-405b", "dcp", threads=4), 16_384),
    "405b dcp fsdp2, file_per_tensor": (job("llama3-405b", "dcp", file_per_tensor=True), 16_384),
    "405b dcp hsdp": (job("llama3-405b", "dcp", {"sharding": "hsdp", "replicas": 16}), 16_384),
    "8b dcp ddp": (job("llama3-8b", "dcp", {"sharding": "ddp"}), 256),
    "8b dcp ddp, file_per_tensor": (job("llama3-8b", "dcp", {"sharding": "ddp"}, file_per_tensor=True), 256),
    "deepseek-v3 dcp fsdp2": (job("deepseek-v3", "dcp"), 2048),
    "405b megatron_dist": (job("llama3-405b", "megatron_dist", _MEGATRON), 16_384),
    "405b megatron_legacy": (job("llama3-405b", "megatron_legacy", _MEGATRON), 16_384),
    "405b deepspeed zero1": (job("llama3-405b", "deepspeed", {"sharding": "zero1", "tensor": 8}), 16_384),
    "405b deepspeed zero3": (job("llama3-405b", "deepspeed", {"sharding": "zero3"}), 16_384),
    "405b mlperf": (job("llama3-405b", "mlperf", {"sharding": "zero1", "tensor": 8, "pipeline": 32}), 512),
    "405b safetensors": (job("llama3-405b", "safetensors"), 1024),
    "405b fsdp_full": (job("llama3-405b", "fsdp_full"), 1024),
    "405b file_per_rank": (job("llama3-405b", "file_per_rank"), 16_384),
    "405b shared_file": (job("llama3-405b", "shared_file"), 16_384),
    "405b orbax": (job("llama3-405b", "orbax"), 1024),
}


def timed_ms(asked: Job, world: World, rank: int) -> float:
    """One plan."""
    begun = time.process_time()
    plan(asked, world, rank)
    return (time.process_time() - begun) * 1000


def main(words: list[str]) -> None:
    """A line a case."""
    print(f"{'case':<34} {'ranks':>7} {'first ms':>9} {'a rank ms':>10} {'limit':>6}")
    for name, (asked, rank_count) in CASES.items():
        if words and not any(word in name for word in words):
            continue
        world = World(rank_count, 8)
        layout_of(asked, world)
        first = timed_ms(asked, world, rank_count // 3)
        ranks = [1 + (rank_count - 2) * at // RANKS_TIMED for at in range(RANKS_TIMED)]
        each = statistics.median(timed_ms(asked, world, rank) for rank in ranks)
        limit = UNFUSED_MS if name.startswith("deepseek") else DENSE_MS
        says = "" if each <= limit else "  above the limit"
        print(f"{name:<34} {rank_count:>7,} {first:>9.1f} {each:>10.1f} {limit:>6}{says}")


if __name__ == "__main__":
    main(sys.argv[1:])
