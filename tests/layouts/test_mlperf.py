"""MLPerf's checkpoints: the contract, the published sizes, DLIO's names, and what is refused."""

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.mlperf import MlperfLayout, MlperfOptions
from ckptstorm.layouts.mlperf_files import Files
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import SYNCS, Kind
from ckptstorm.steps import Facts, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items
from ckptstorm.units import Bytes
from tests.test_plan import count

TINY = ModelTable(architecture="llama", layers=5, hidden=12, ffn=10, heads=2, kv_heads=1, vocab=7)
GIB = 1 << 30


def job(name, sharding, tensor, pipeline=1, **options):
    """A benchmark job."""
    parallel = ParallelTable(sharding=sharding, tensor=tensor, pipeline=pipeline)
    return Job(model=ModelTable(name=name), parallel=parallel, layout=LayoutTable(name="mlperf", options=options))


# name: job, ranks, parameters, weights and optimizer in GiB, files, least and most GiB a rank.
CLOSED = {
    "8B": (job("llama3-8b", "zero3", 1), 8, 8_030_261_248, 14.96, 89.75, 16, 13.09, 13.09),
    "70B": (job("llama3-70b", "zero3", 8), 64, 69_882_617_856, 130.18, 781.03, 128, 14.24, 14.24),
    "405B": (job("llama3-405b", "zero1", 8, 32), 512, 405_853_388_800, 756.01, 4536.23, 1544, 8.86, 12.32),
    "1T": (job("mlperf-1t", "zero1", 8, 64), 1024, 1_183_035_102_480, 2203.66, 13222.93, 2072, 12.91, 17.97),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_sizes(name):
    """The four workloads have the published bytes, files, and bytes of the lightest and heaviest rank."""
    asked, rank_count, parameters, weights, optimizer, files, least, most = CLOSED[name]
    world = World(rank_count, 8)
    parallel = ParallelSpec(
        asked.parallel.tensor, data=rank_count // asked.parallel.tensor // asked.parallel.pipeline,
        pipeline=asked.parallel.pipeline,
    )  # fmt: skip
    stage = int(asked.parallel.sharding[-1])
    assert Files(resolve(asked.model), parallel, stage).parameter_count == parameters
    sums = totals(asked, world, Facts(4096))
    assert sums.data_bytes / GIB == pytest.approx(weights + optimizer, abs=0.02)
    assert sums.file_count == files
    assert sums.bytes_per_rank_least / GIB == pytest.approx(least, abs=0.011)
    assert sums.bytes_per_rank_most / GIB == pytest.approx(most, abs=0.011)
    held = Files(resolve(asked.model), parallel, stage)
    of_weights = sum(
        sum(archive.data_bytes)
        for rank in range(rank_count)
        for file, archive in held.files(rank)
        if file.endswith("model_states.pt")
    )
    assert of_weights / GIB == pytest.approx(weights, abs=0.011)


@pytest.mark.parametrize("name", CLOSED)
def test_the_same_files_are_read(name):
    """A load reads what was saved, once, by the rank that saved it; a few small reads of each tensor besides."""
    asked, rank_count, *_ = CLOSED[name]
    assert totals(asked, World(rank_count, 8), Facts(4096)).read_multiplier == pytest.approx(1.0, abs=1e-4)


class TestContractOfStage1(LayoutContract):
    """Layers over pipeline stages, on the first data rank."""

    def make(self, rank_count):
        """Pipelines of two and tensors in two where they fit."""
        tensor = 2 if rank_count % 2 == 0 else 1
        pipeline = 2 if rank_count % 4 == 0 else 1
        parallel = ParallelSpec(tensor, data=rank_count // tensor // pipeline, pipeline=pipeline)
        return MlperfLayout(Scene(resolve(TINY), parallel, "zero1"), MlperfOptions())


class TestContractOfStage3(LayoutContract):
    """Every rank has a part of every layer."""

    def make(self, rank_count):
        """Norms of 12 elements on 16 ranks come out empty, and are left out."""
        return MlperfLayout(Scene(resolve(TINY), ParallelSpec(data=rank_count), "zero3"), MlperfOptions(fsync=True))


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
@pytest.mark.parametrize("sharding", ["zero1", "zero3"])
def test_totals_are_the_sum_of_all_plans(sharding, rank_count):
    """Closed form equals brute force: every op kind, size class and byte, save and restore."""
    ways = 2 if rank_count % 4 == 0 else 1
    parallel = ParallelTable(sharding=sharding, tensor=ways, pipeline=ways if sharding == "zero1" else 1)
    asked = Job(model=TINY, parallel=parallel, layout=LayoutTable(name="mlperf"))
    world = World(rank_count, 3)
    for facts in (Facts(4096), Facts(1 << 20, "fdatasync", 5000)):
        sums = totals(asked, world, facts)
        for phase in ("save", "restore"):
            ops = getattr(sums, phase)
            assert (ops.by_kind, ops.data_by_size, ops.data_bytes) == count(world, asked, facts, phase)


def test_names_and_layers():
    """126 layers over 32 stages: 30 of four and two of three, with embedding, head and norm at the ends."""
    asked = CLOSED["405B"][0]
    world = World(512, 8)
    created = [plan(asked, world, rank).created for rank in range(512)]
    assert created[0][:2] == ("layer_0-model_0_model_states.pt", "layer_1-model_0_model_states.pt")
    assert created[0][-1] == "zero_pp_rank_0_mp_rank_0_optim_states.pt"
    assert created[255][-2:] == ("layer_128-model_255_model_states.pt", "zero_pp_rank_0_mp_rank_255_optim_states.pt")
    assert created[256] == ("zero_pp_rank_1_mp_rank_0_optim_states.pt",)
    assert sorted({len(names) for names in created}) == [1, 4, 5, 6]
    layers = [name.split("_")[1].split("-")[0] for name in created[8] if name.startswith("layer")]
    assert layers == ["5", "6", "7", "8"]


def test_fsync_is_what_the_code_does():
    """Nothing is synced by default; with fsync = true every file once."""
    asked, rank_count, *_ = CLOSED["8B"]
    sums = totals(asked, World(rank_count, 8), Facts(4096))
    assert not {kind.word for kind in SYNCS} & set(sums.save.by_kind)
    synced = totals(job("llama3-8b", "zero3", 1, fsync=True), World(8, 8), Facts(4096))
    assert synced.save.by_kind["fsync"] == 16


def test_tensors_above_2_gib_are_two_writes():
    """A rank's optimizer of 8B holds three tensors of 4.02 GB: each is [limit, rest], as Linux cuts them."""
    asked, rank_count, *_ = CLOSED["8B"]
    large = totals(asked, World(rank_count, 8), Facts(4096)).save.data_by_size["more"]
    assert large == 8 * 3 * 2
    file = [item for item in items(plan(asked, World(8, 8), 7).save) if isinstance(item, WriteFile)][-1]
    assert [piece for piece in file.records[0].pieces if piece > GIB] == [8_030_261_248 // 8 * 4] * 3


def test_a_load_makes_the_directory_too():
    """DLIO's load creates the step directory before it reads, on every rank."""
    sums = totals(CLOSED["8B"][0], World(8, 8), Facts(4096))
    assert sums.save.by_kind[Kind.MKDIR.word] == sums.restore.by_kind[Kind.MKDIR.word] == 8


REFUSED = {
    'sharding = "fsdp2" is not planned for [layout] name = "mlperf"': job("llama3-8b", "fsdp2", 1),
    '"mlperf" has no formula for mixtral-8x7b': job("mixtral-8x7b", "zero1", 1),
    '"mlperf" has no formula for shard': Job(
        model=ModelTable(shard_bytes=Bytes(9)), parallel=ParallelTable(sharding="zero1"),
        layout=LayoutTable(name="mlperf"),
    ),
    '[parallel] pipeline = 2 with sharding = "zero3"': job("llama3-8b", "zero3", 1, 2),
    "[parallel] context = 2 means nothing": Job(
        model=TINY, parallel=ParallelTable(sharding="zero1", context=2), layout=LayoutTable(name="mlperf")
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence):
    """What the formulas do not reach is refused with its key, its value and a next step."""
    with pytest.raises(JobError) as caught:
        check_plan(REFUSED[sentence], World(8))
    assert sentence in str(caught.value)
    assert caught.value.hint


def test_refuses_more_ranks_than_parameters():
    """An empty optimizer has no file to stand for it."""
    asked = Job(model=TINY, parallel=ParallelTable(sharding="zero1"), layout=LayoutTable(name="mlperf"))
    with pytest.raises(JobError, match="has 4260 parameters, fewer than 5000 ranks"):
        check_plan(asked, World(5000))
