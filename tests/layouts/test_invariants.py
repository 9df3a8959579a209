"""What holds for every layout, on models and worlds that do not come out even."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts import LAYOUTS
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, created_files, plan, totals
from ckptstorm.program import READS, WRITES, Kind
from ckptstorm.scene import layout_of
from ckptstorm.steps import Facts
from ckptstorm.testing.layouts import programs

LLAMA = ModelTable(architecture="llama", layers=3, hidden=48, ffn=60, heads=4, kv_heads=2, vocab=51)
GPT = ModelTable(architecture="gpt", layers=2, hidden=24, heads=3, vocab=37, context_length=11)
MIXTRAL = ModelTable(architecture="mixtral", layers=2, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19, experts=3)
MODELS = {"llama": LLAMA, "gpt": GPT, "mixtral": MIXTRAL}
WORLDS = (1, 3, 7, 64, 1000)

_CHUNKED = r"__\d+_\d+\.distcp|\.metadata(\.tmp)?"
#: By layout: the sharding, options, bytes stored of each parameter, models that it plans, names of its files.
LAYOUT = {
    "dcp": ("fsdp2", {}, 12, MODELS, _CHUNKED),
    "deepspeed": (
        "zero1", {}, 14, MODELS,
        r"mp_rank_00_model_states\.pt|bf16_zero_pp_rank_\d+_mp_rank_00_optim_states\.pt|latest|zero_to_fp32\.py",
    ),
    "fsdp_full": ("fsdp2", {}, 12, MODELS, r"(model|optimizer)\.pt"),
    "mlperf": ("zero3", {}, 14, ["llama"], r"zero_pp_rank_\d+_mp_rank_0_(model|optim)_states\.pt"),
    "file_per_rank": ("fsdp2", {}, 12, MODELS, r"rank-\d{5}\.ckpt"),
    "megatron_dist": (
        "distributed_optimizer", {}, 14, ["llama", "gpt"],
        _CHUNKED + r"|metadata\.json|latest_checkpointed_iteration\.txt",
    ),
    "megatron_legacy": (
        "distributed_optimizer", {}, 14, ["llama", "gpt"],
        r"mp_rank_00/(distrib_optim|model_optim_rng)\.pt|latest_checkpointed_iteration\.txt",
    ),
    "safetensors": ("fsdp2", {}, 2, MODELS, r"model\.safetensors|\.tmp\d{6}"),
    "file_per_node": ("fsdp2", {"ranks_per_node": 4}, 12, MODELS, r"node-\d{5}\.ckpt"),
    "shared_file": ("fsdp2", {"block_size": "4KiB"}, 12, MODELS, r"shared\.ckpt"),
    "orbax": ("fsdp2", {}, 12, MODELS, r"[\w./-]+"),
}  # fmt: skip
CASES = [
    (layout, model, ranks) for layout, (_, _, _, models, _) in LAYOUT.items() for model in models for ranks in WORLDS
]


def test_every_layout_is_here():
    """A new layout comes with a line here."""
    assert set(LAYOUT) == set(LAYOUTS)


def job(layout, model):
    """A layout's job."""
    sharding, options, *_ = LAYOUT[layout]
    return Job(
        model=MODELS[model],
        parallel=ParallelTable(sharding=sharding),
        layout=LayoutTable(name=layout, options=options),
    )


@pytest.mark.parametrize(("layout", "model", "ranks"), CASES)
def test_bytes_of_a_parameter(layout, model, ranks):
    """Weights and states are stored once, in the bytes that the framework keeps of each parameter."""
    asked, stated = job(layout, model), LAYOUT[layout][2]
    sums = totals(asked, World(ranks, 8), Facts(4096))
    spec = resolve(MODELS[model])
    count = layout_of(asked, World(ranks, 8))._files.parameter_count if layout == "mlperf" else spec.parameter_count
    around = 2000 * (sums.record_count + sums.tensor_count) + 60_000 * max(sums.file_count, 1)
    if layout == "mlperf":  # five hidden vectors a state besides, and what divides no number of ranks is left out
        around += 4 * 15 * spec.hidden * ranks
    assert (
        stated * count - (stated * ranks * 64 if layout == "mlperf" else 0)
        <= sums.data_bytes
        <= stated * count + around
    )
    if layout != "orbax":  # one of its names becomes another by the commit
        assert sums.file_count == len(files_of_all(asked, ranks, final=True))


def files_of_all(asked, ranks, *, final=False):
    """Names of all ranks' files, as clean-up knows them."""
    names = [name for rank in range(ranks) for name in created_files(asked, World(ranks, 8), rank)]
    assert len(names) == len(set(names))
    return [name for name in names if not (final and (name.endswith(".tmp") or re.match(r"\.tmp\d|.*__lock", name)))]


@pytest.mark.parametrize(("layout", "model", "ranks"), CASES)
def test_names_are_the_frameworks(layout, model, ranks):
    """No two ranks create one file, and every name is one that the framework gives."""
    for name in files_of_all(job(layout, model), ranks):
        assert re.fullmatch(LAYOUT[layout][4], name), name


@pytest.mark.parametrize(("layout", "model", "ranks"), [case for case in CASES if case[2] in (3, 7, 1000)])
def test_ranks_here_and_there(layout, model, ranks):
    """Writes are of bytes, reads within files, syncs after writes; whichever ranks are looked at, in any world."""
    asked, world = job(layout, model), World(ranks, 8)
    sizes = layout_of(asked, world).census().file_bytes
    for rank in sorted({0, 1, ranks // 2, ranks - 1}):
        planned = plan(asked, world, rank)
        written = 0
        for program in programs(planned.save, Facts(4096)):
            is_write = np.isin(program.ops["kind"], WRITES)
            assert (program.ops["length_bytes"][is_write] > 0).all()
            written += int(program.ops["length_bytes"][is_write].sum())
            last_write: dict[int, int] = {}
            for at, row in enumerate(program.ops):
                if is_write[at]:
                    last_write[int(row["file"])] = at
                elif row["kind"] == Kind.CLOSE:
                    assert last_write.get(int(row["file"]), -1) < at
        assert written >= sizes[rank]
        for program in programs(planned.restore, Facts(4096)):
            is_read = np.isin(program.ops["kind"], READS)
            ends = program.ops["offset_bytes"][is_read] + program.expected_bytes()[is_read].astype("u8")
            limits = np.array([path.size_bytes for path in program.paths], dtype="u8")[program.ops["file"][is_read]]
            assert (ends <= limits).all()


_PROGRAM = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from tests.layouts.test_invariants import LAYOUT, job
from ckptstorm.plan import World, plan
for layout in LAYOUT:
    said = repr([plan(job(layout, "llama"), World(7, 4), rank) for rank in (6, 0, 3)])
    print(layout, hashlib.sha256(said.encode()).hexdigest())
"""


def test_plans_are_the_same_in_every_process():
    """Ranks plan by themselves, so the order of a process's hashes must not matter."""
    said = set()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for seed in ("0", "1"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-P", "-c", _PROGRAM, root]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
        assert ended.returncode == 0, ended.stderr
        said.add(ended.stdout)
    assert len(said) == 1
