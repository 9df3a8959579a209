"""Megatron's legacy format: the contract, what each file holds, and who reads it."""

from collections import Counter

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.megatron_legacy import MegatronLegacyLayout, MegatronLegacyOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import MODELS, resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import Kind
from ckptstorm.steps import Call, Facts, Meet, ReadFile, WriteFile
from ckptstorm.testing.layouts import items, programs
from tests.layouts.test_megatron_dist import TINY, Wide, parallel_of


def layout(rank_count, parallel=None):
    """Megatron for a small model."""
    scene = Scene(resolve(TINY), parallel or parallel_of(rank_count), "distributed_optimizer")
    return MegatronLegacyLayout(scene, MegatronLegacyOptions())


class TestContract(Wide):
    """As Megatron is with --ckpt-format torch."""

    def make(self, rank_count):
        """2-D where it fits."""
        return layout(rank_count)


def job(name, tensor, pipeline):
    """A legacy job."""
    parallel = ParallelTable(tensor=tensor, pipeline=pipeline, sharding="distributed_optimizer")
    return Job(model=ModelTable(name=name), parallel=parallel, layout=LayoutTable(name="megatron_legacy"))


def test_names_are_those_of_megatron():
    """mp_rank_<tensor>, with the stage behind it when there is more than one."""
    assert layout(8, ParallelSpec(tensor=2, pipeline=2, data=2)).created(5) == (
        "mp_rank_01_001/distrib_optim.pt", "mp_rank_01_001/model_optim_rng.pt",
    )  # fmt: skip
    assert layout(4, ParallelSpec(tensor=4)).created(3)[1] == "mp_rank_03/model_optim_rng.pt"
    assert layout(4, ParallelSpec(data=4)).created(3) == ()


def test_first_members_write_all():
    """Of 1,024 ranks 32 write, 14 bytes a parameter together; each makes its directory, as all members do."""
    sums = totals(job("llama3-70b", 8, 4), World(1024))
    assert sums.file_count == 2 * 32 + 1
    assert sums.data_bytes == pytest.approx(14 * MODELS["llama3-70b"].spec.parameter_count, rel=2e-3)
    assert sums.bytes_per_rank_median == 0
    assert sums.save.by_kind["mkdir"] == 2 * 1024 + 32


@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "rank_count"), [("llama3-8b", 1, 1, 8), ("llama3-70b", 8, 4, 1024)]
)
def test_read_multiplier(name, tensor, pipeline, rank_count):
    """Every member reads the weights, the first one the optimizer: (12 + 2 d) / 14."""
    data = rank_count // tensor // pipeline
    sums = totals(job(name, tensor, pipeline), World(rank_count))
    assert sums.restore.data_bytes / sums.data_bytes == pytest.approx((12 + 2 * data) / 14, rel=0.01)


def test_weights_are_one_record():
    """Parameters are views of one buffer, so a model file is one large piece; the optimizer's are three."""
    made = plan(job("llama3-8b", 1, 1), World(8), 0).save
    files = {item.path.name.split("/")[-1]: item for item in items(made) if isinstance(item, WriteFile)}
    large = {
        name: [piece for record in file.records for piece in record.pieces if piece > 1 << 20]
        for name, file in files.items()
    }
    parameters = MODELS["llama3-8b"].spec.parameter_count
    assert large["model_optim_rng.pt"] == [pytest.approx(2 * parameters, rel=1e-3)]
    assert large["distrib_optim.pt"] == [pytest.approx(4 * parameters, rel=1e-6)] * 3


def test_nothing_is_synced_and_the_tracker_comes_last():
    """No fsync; rank 0 writes the tracker behind the barrier after all files."""
    steps = layout(8).save(0)
    assert not any(item.is_synced for item in items(steps) if isinstance(item, WriteFile))
    tracker = next(at for at, step in enumerate(steps) if not isinstance(step, Meet) and step.part == "commit")
    assert isinstance(steps[tracker - 1], Meet)
    assert isinstance(steps[tracker + 1], Meet)


def test_save_ops_are_those_of_all_plans():
    """Ops of the save in closed form are those of all ranks' programs, by kind."""
    small = Job(
        model=TINY,
        parallel=ParallelTable(tensor=2, pipeline=2, sharding="distributed_optimizer"),
        layout=LayoutTable(name="megatron_legacy"),
    )
    counted = Counter()
    for rank in range(12):
        for program in programs(plan(small, World(12), rank).save, Facts(4096)):
            counted.update(Kind(kind).word for kind in program.ops["kind"].tolist())
    assert totals(small, World(12), Facts(4096)).save.by_kind == dict(counted)


def test_one_listing_a_rank():
    """The legacy load lists the iteration's directory once, and looks for the other format's files in vain."""
    done = list(items(layout(8).restore(3)))
    kinds = Counter(item.kind for item in done if isinstance(item, Call))
    assert (kinds[Kind.READDIR], kinds[Kind.STAT]) == (1, 3)
    opened = [item.path.name for item in done if isinstance(item, ReadFile)]
    assert opened == ["latest_checkpointed_iteration.txt", "mp_rank_01_000/model_optim_rng.pt"]


def test_refuses_other_shardings():
    """A sharding that is not the distributed optimizer's is refused by name."""
    with pytest.raises(JobError, match=r'sharding = "zero1" is not planned for \[layout\] name = "megatron_legacy"'):
        check_plan(
            Job(model=TINY, parallel=ParallelTable(sharding="zero1"), layout=LayoutTable(name="megatron_legacy")),
            World(4),
        )
