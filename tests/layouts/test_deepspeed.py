"""DeepSpeed's ZeRO: the contract, the reference traces, what a restore reads, and what is refused."""

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.deepspeed import DeepSpeedLayout, DeepSpeedOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import SYNCS, Kind
from ckptstorm.steps import Call, Facts, Meet, Run, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs
from ckptstorm.units import Bytes
from tests.layouts.whole_world import assert_saves_and_restores, assert_totals_are_the_sum
from tests.test_plan import count

# 56,369,664 parameters in 75 tensors: the model of the reference traces.
REFERENCE = ModelTable(architecture="llama", layers=8, hidden=512, ffn=1408, heads=8, kv_heads=4, vocab=32000)
DEEPER = ModelTable(architecture="gpt", layers=3, hidden=12, heads=2, vocab=5, context_length=4)
TINY = ModelTable(architecture="llama", layers=1, hidden=12, ffn=10, heads=2, kv_heads=1, vocab=5)


def job(sharding="zero1", model=REFERENCE, tensor=1, pipeline=1, **options):
    """A DeepSpeed job."""
    parallel = ParallelTable(sharding=sharding, tensor=tensor, pipeline=pipeline)
    return Job(model=model, parallel=parallel, layout=LayoutTable(name="deepspeed", options=options))


class TestContractOfStage1(LayoutContract):
    """Two model-parallel ranks where the world is even."""

    def make(self, rank_count):
        """A model with fewer elements than a large world has ranks."""
        tensor = 2 if rank_count % 2 == 0 else 1
        parallel = ParallelSpec(tensor=tensor, data=rank_count // tensor)
        return DeepSpeedLayout(Scene(resolve(TINY), parallel, "zero1"), DeepSpeedOptions())


class TestContractOfPipelines(LayoutContract):
    """Layer files, over as many kinds of parallelism as the world allows."""

    def make(self, rank_count):
        """Three stages of one layer, or two of which one has two; tensors in two where they fit."""
        pipeline = 3 if rank_count % 3 == 0 else 2 if rank_count % 2 == 0 else 1
        tensor = 2 if rank_count // pipeline % 2 == 0 else 1
        parallel = ParallelSpec(tensor, data=rank_count // tensor // pipeline, pipeline=pipeline)
        return DeepSpeedLayout(Scene(resolve(DEEPER), parallel, "zero1"), DeepSpeedOptions())


class TestContractOfStage3(LayoutContract):
    """Every rank writes both files."""

    def make(self, rank_count):
        """The same model, with the turns of older releases."""
        scene = Scene(resolve(TINY), ParallelSpec(data=rank_count), "zero3")
        return DeepSpeedLayout(scene, DeepSpeedOptions(barriers="each"))


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
@pytest.mark.parametrize("sharding", ["zero1", "zero3", "pipeline"])
def test_totals_are_the_sum_of_all_plans(sharding, rank_count):
    """Closed form equals brute force: every op kind, size class and byte, save and restore."""
    ways, world = 2 if rank_count % 2 == 0 else 1, World(rank_count, 3)
    asked = job("zero1", DEEPER, ways, ways) if sharding == "pipeline" else job(sharding, TINY, ways)
    for facts in (Facts(4096), Facts(1 << 20, "fsync", 50_000)):
        sums = totals(asked, world, facts)
        for phase in ("save", "restore"):
            ops = getattr(sums, phase)
            assert (ops.by_kind, ops.data_by_size, ops.data_bytes) == count(world, asked, facts, phase)


def used(ops):
    """Size classes that occur."""
    return {name: number for name, number in ops.data_by_size.items() if number}


def test_reference_trace_of_a_save():
    """ZeRO-1 on 4 ranks: 18 writev and 6 writes as traced, and the script's sendfile; 789.2 MB; no sync."""
    save = totals(job(), World(4, 4), Facts(4096)).save
    assert (save.by_kind["writev"], save.by_kind["write"]) == (18, 6 + 1)
    assert (used(save)["64M"], used(save)["256M"]) == (12, 1)
    assert save.data_bytes == pytest.approx(789.2e6, rel=1e-3)
    assert (save.by_kind["open"], save.by_kind["mkdir"]) == (7, 9)
    assert not {kind.word for kind in SYNCS} & set(save.by_kind)


def test_reference_trace_of_a_restore():
    """Each of 4 ranks reads the model file twice: 1578.7 MB in 186 reads.

    Four of these found the end of `latest`; and two more were caused by the pickles of ranks 1 and 2, whose
    partitions hold more params than the average that is planned.
    """
    restore = totals(job(), World(4, 4), Facts(4096)).restore
    assert restore.by_kind["read"] == 186 - 4 - 2
    assert (used(restore)["64M"], used(restore)["256M"]) == (12, 8)
    assert restore.data_bytes == pytest.approx(1578.7e6, rel=1e-3)
    assert (restore.by_kind["open"], restore.by_kind["readdir"]) == (16, 4)


def test_reference_trace_of_stage_3():
    """ZeRO-3 on 4 ranks: 676.6 MB written with 12 large calls, 676.9 MB read back."""
    sums = totals(job("zero3"), World(4, 4), Facts(4096))
    assert used(sums.save)["64M"] == used(sums.restore)["64M"] == 12
    assert sums.save.data_bytes == pytest.approx(676.6e6, rel=1e-3)
    assert sums.restore.data_bytes == pytest.approx(676.9e6, rel=1e-3)
    assert sums.save.by_kind["open"] == 10


# sharding, ranks, tensor: bytes read for each byte on disk, by the formula; 12 + 2 bytes a parameter.
MULTIPLIERS = {
    ("zero1", 8, 1): (12 + 4 * 8) / 14,
    ("zero2", 64, 1): (12 + 4 * 64) / 14,
    ("zero1", 64, 8): (12 + 4 * 8) / 14,
    ("zero3", 64, 1): 1.0,
}


@pytest.mark.parametrize(("sharding", "rank_count", "tensor"), MULTIPLIERS)
def test_read_multiplier(sharding, rank_count, tensor):
    """Every rank of ZeRO-1 and 2 reads the 2-byte weights of its group twice; ZeRO-3 reads what it wrote."""
    asked = job(sharding, ModelTable(name="llama3-8b"), tensor)
    multiplier = totals(asked, World(rank_count, 8), Facts(4096)).read_multiplier
    assert multiplier == pytest.approx(MULTIPLIERS[sharding, rank_count, tensor], rel=2e-3)


@pytest.mark.parametrize(("sharding", "rank_count", "bytes_a_parameter"), [("zero1", 7, 14), ("zero3", 64, 12)])
def test_bytes_a_parameter(sharding, rank_count, bytes_a_parameter):
    """Weights in 2 bytes once (not at all in stage 3), and three fp32 states; little else."""
    sums = totals(job(sharding, ModelTable(name="llama3-8b")), World(rank_count, 8), Facts(4096))
    assert sums.data_bytes == pytest.approx(bytes_a_parameter * 8_030_261_248, rel=1e-4)


def test_padding_is_saved():
    """The flat buffer has a multiple of 2 d elements, all of them saved, in weights and states alike (traced)."""
    files = DeepSpeedLayout(Scene(resolve(TINY), ParallelSpec(data=11), "zero1"), DeepSpeedOptions())._files
    assert resolve(TINY).parameter_count == 948
    assert files.model_archive(0).data_bytes == (2 * 968,)
    assert {files.optimizer_archive(rank).data_bytes for rank in range(11)} == {(4, *[4 * 88] * 3)}


def test_large_stage_3_shards_fall_into_sub_groups():
    """A rank with more than 1e9 elements stores them in groups, each with a step and two moments of its own."""
    asked = job("zero3", ModelTable(name="llama3-70b"))
    file = next(item for item in items(plan(asked, World(16, 8), 3).save) if isinstance(item, WriteFile)
                and "optim" in item.path.name)  # fmt: skip
    large = [piece for piece in file.records[0].pieces if piece > 10**6]
    assert len(large) == 3 * 5
    assert sum(large) == pytest.approx(12 * 70_553_706_496 / 16, rel=1e-6)
    assert max(large) >= 4 * 10**9


def test_names():
    """Files are named by data rank and model-parallel rank; fp16 has no prefix."""
    created = [name for rank in range(4) for name in plan(job(tensor=2), World(4), rank).created]
    assert created == [
        "mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_to_fp32.py", "latest",
        "mp_rank_01_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt",
        "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt",
    ]  # fmt: skip
    assert plan(job("zero3", precision="fp16"), World(4), 2).created == (
        "zero_pp_rank_2_mp_rank_00_model_states.pt", "zero_pp_rank_2_mp_rank_00_optim_states.pt",
    )  # fmt: skip


def test_latest_comes_before_the_last_barrier():
    """Rank 0 writes `latest` as its commit, after its own files only; the others may still be writing."""
    steps = plan(job(), World(4, 4), 0).save
    at = next(index for index, step in enumerate(steps) if isinstance(step, Run) and step.part == "commit")
    assert not isinstance(steps[at - 1], Meet)
    assert [step.why for step in steps[at + 1 :]] == ["all ranks have saved"]
    last = [item for item in items([steps[at]]) if isinstance(item, WriteFile)][-1]
    assert (last.path.name, last.is_synced) == ("latest", False)


def test_every_rank_looks_for_its_whole_data_group():
    """A restore stats `latest`, the model file and all d optimizer files; every rank reads the first model file."""
    steps = plan(job(tensor=2), World(8, 8), 3).restore
    stats = [item.path.name for item in items(steps) if isinstance(item, Call) and item.kind is Kind.STAT]
    assert stats[:2] == ["latest", "mp_rank_01_model_states.pt"]
    assert stats[2:] == [f"bf16_zero_pp_rank_{peer}_mp_rank_01_optim_states.pt" for peer in range(4)]
    (program,) = programs(steps, Facts(4096))
    opened = [program.paths[int(row["file"])].name for row in program.ops[program.ops["kind"] == Kind.OPEN]]
    assert opened[:3] == ["latest", "mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"]


def test_layer_files():
    """Pipelines store a file of each layer and tensor rank, by the first data rank of the stage that holds it."""
    world = World(16, 8)
    created = [plan(job(model=DEEPER, tensor=2, pipeline=2), world, rank).created for rank in range(16)]
    assert created[1][:-2] == tuple(f"layer_{number:02d}-model_01-model_states.pt" for number in (0, 1, 2))
    assert created[8][:-2] == tuple(f"layer_{number:02d}-model_00-model_states.pt" for number in (3, 4))
    assert created[9][-2:] == ("mp_rank_03_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_03_optim_states.pt")
    assert created[10] == ("bf16_zero_pp_rank_1_mp_rank_02_optim_states.pt",)
    assert plan(job(model=DEEPER, pipeline=2), World(2), 1).created[0] == "layer_03-model_states.pt"


def test_a_pipeline_lists_the_directory_for_every_layer():
    """A restore lists the directory once, and once more for each layer of its stage, of which it reads two files."""
    steps = plan(job(model=DEEPER, tensor=2, pipeline=2), World(16, 16), 3).restore
    listings = [item for item in items(steps) if isinstance(item, Call) and item.kind is Kind.READDIR]
    assert len(listings) == 1 + 3
    (program,) = programs(steps, Facts(4096))
    opened = [program.paths[int(row["file"])].name for row in program.ops[program.ops["kind"] == Kind.OPEN]]
    assert opened[3:5] == ["layer_00-model_00-model_states.pt", "layer_00-model_01-model_states.pt"]
    multiplier = totals(job(model=ModelTable(name="llama3-8b"), tensor=2, pipeline=4), World(64, 8)).read_multiplier
    assert multiplier == pytest.approx((12 + 4 * 8) / 14, rel=2e-3)


@pytest.mark.parametrize(("barriers", "more"), [("none", 0), ("one", 1), ("each", 4)])
def test_barriers(barriers, more):
    """Older releases wait after each data rank's turn; all ranks wait as often."""
    for rank in range(4):
        meets = [step for step in plan(job(barriers=barriers), World(4), rank).save if isinstance(step, Meet)]
        assert len(meets) == 4 + more


REFUSED = {
    'sharding = "fsdp2" is not planned for [layout] name = "deepspeed"': job("fsdp2"),
    "[model] shard_bytes does not say": job(model=ModelTable(shard_bytes=Bytes(9))),
    '[model] states = "bf16" is not planned': job(model=ModelTable(name="gpt2-124m", states="bf16")),
    '[parallel] pipeline = 2: DeepSpeed refuses it with "zero2"': job("zero2", pipeline=2),
    '"zero3": DeepSpeed refuses its MoE layers with ZeRO-3': Job(
        model=ModelTable(name="mixtral-8x7b"),
        parallel=ParallelTable(sharding="zero3", expert=2),
        layout=LayoutTable(name="deepspeed"),
    ),
    'barriers = "each" means 8192 barriers': job(barriers="each"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence):
    """What cannot be is refused with its key, its value and a next step."""
    with pytest.raises(JobError) as caught:
        check_plan(REFUSED[sentence], World(8192, 8))
    assert sentence in str(caught.value)
    assert caught.value.hint


def test_a_large_world():
    """405B with 8 model-parallel ranks on 16,384: 2048 stats a rank, and the first model file for everybody."""
    asked, world = job("zero1", ModelTable(name="llama3-405b"), 8), World(16_384, 8)
    sums = totals(asked, world, Facts(4096))
    assert sums.restore.by_kind["stat"] == 16_384 * (2048 + 2)
    assert sums.file_count == 16_384 + 8 + 2
    assert sums.restore.data_bytes == pytest.approx(405_853_388_800 * (12 + 4 * 2048), rel=0.01)


MOE = ModelTable(
    architecture="mixtral", layers=3, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19, experts=12
)  # fmt: skip


@pytest.mark.parametrize(("ranks", "tensor", "expert"), [(4, 1, 2), (8, 2, 4), (6, 1, 3)])
def test_experts_have_files_of_their_own(tmp_path, ranks, tensor, expert):
    """Every expert of every layer is written once for each tensor rank, and read by all who hold it."""
    asked = Job(
        model=MOE,
        parallel=ParallelTable(sharding="zero1", tensor=tensor, expert=expert),
        layout=LayoutTable(name="deepspeed"),
    )
    world = World(ranks, ranks)
    created = [name for rank in range(ranks) for name in plan(asked, world, rank).created]
    experts = [name for name in created if "_expert_" in name]
    assert len(experts) == len(set(experts)) == 3 * 12 * tensor
    assert "layer_2_expert_11_mp_rank_00_model_states.pt" in experts
    assert_totals_are_the_sum(asked, world)
    assert_saves_and_restores(asked, world, tmp_path)
