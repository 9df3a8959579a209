"""Megatron torch_dist: the contract, the optimizer's buckets at scale, who stores what, and read multipliers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.megatron_buffer import bucket_limit, buffer
from ckptstorm.layouts.megatron_dist import MegatronDistLayout, MegatronDistOptions
from ckptstorm.layouts.megatron_shard import parameters
from ckptstorm.model.parallel import Coordinates, ParallelSpec
from ckptstorm.model.shard import pieces
from ckptstorm.model.zoo import MODELS, resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import Kind
from ckptstorm.steps import Call, Facts, Meet, ReadFile, Run, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs
from ckptstorm.units import Bytes

TINY = ModelTable(architecture="llama", layers=3, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19)
GPT = ModelTable(architecture="gpt", layers=2, hidden=24, heads=4, vocab=19, context_length=8)


def parallel_of(rank_count):
    """Tensor, then pipeline, then context parallelism of two where they fit; data parallelism is the rest."""
    left, sizes = rank_count, []
    for _ in range(3):
        sizes.append(2 if left % 2 == 0 else 1)
        left //= sizes[-1]
    return ParallelSpec(tensor=sizes[0], pipeline=sizes[1], context=sizes[2], data=left)


def layout(rank_count, model=TINY, parallel=None, **options):
    """Megatron for a small model."""
    scene = Scene(resolve(model), parallel or parallel_of(rank_count), "distributed_optimizer")
    return MegatronDistLayout(scene, MegatronDistOptions(**options))


class Wide(LayoutContract):
    """The contract, and its sums for 4 and 64 ranks."""

    @pytest.mark.parametrize("rank_count", [4, 64])
    def test_census_of_many(self, rank_count):
        """Closed form equals brute force, and reads find whole records, on more ranks."""
        self.test_census_is_the_sum_of_all_plans(rank_count)
        self.test_reads_are_of_whole_records(rank_count)
        self.test_no_two_ranks_write_one_file(rank_count)

    @pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
    def test_classes_cover_the_world(self, rank_count):
        """Classes of ranks count every rank, and every file, once."""
        made = self.make(rank_count)
        assert sum(count for _, count in made.restore_classes()) == rank_count
        assert sum(count for _, count in made.save_classes()) == rank_count
        files = sum(
            count * sum(isinstance(item, WriteFile) for item in items(made.save(rank)))
            for rank, count in made.save_classes()
        )
        assert files == made.census().file_count + made.census().commit_files


class TestContract(Wide):
    """As Megatron is by default."""

    def make(self, rank_count):
        """2-D where it fits."""
        return layout(rank_count)


class TestContractOfWorkers(Wide):
    """Several files a rank, weights stored by the first member alone."""

    def make(self, rank_count):
        """Three workers."""
        return layout(rank_count, GPT, workers=3, fully_parallel_save=False)


class TestContractOfParallelLoad(Wide):
    """Each weight read once."""

    def make(self, rank_count):
        """Two workers."""
        return layout(rank_count, workers=2, fully_parallel_load=True)


# model, tensor x pipeline x data: buckets, elements' MiB (p10, median, most), tensors of the middle rank, MB a rank.
# Computed independently from the tensor lists, for the layers of a stage alone, each tensor by itself.
BUCKETS = {
    ("llama3-8b", 1, 1, 64): (65, (5.0, 6.0, 7.0), 204, 1309),
    ("llama3-70b", 8, 4, 32): (40, (3.0, 5.75, 7.0), 133, 802),
    ("llama3-405b", 8, 16, 64): (28, (4.25, 6.5, 6.5), 85, 523),
    ("llama3-405b", 8, 16, 128): (15, (4.25, 5.4, 6.5), 46, 262),
}


@pytest.mark.parametrize(("name", "tensor", "pipeline", "data"), BUCKETS)
def test_buckets_at_scale(name, tensor, pipeline, data):
    """Buckets, fragments, tensors a rank and bytes a rank are those computed elsewhere."""
    bucket_count, sizes, tensor_count, megabytes = BUCKETS[name, tensor, pipeline, data]
    model = resolve(ModelTable(name=name))
    held = [piece for piece in pieces(model, ParallelSpec(tensor=tensor), "ddp", 0) if piece.tensor.stage == "layer"]
    held = held[: 9 * (model.layers // pipeline)]
    made = buffer([piece.element_count for piece in held], bucket_limit(data), data)
    assert len(made.bucket_starts) == bucket_count
    fragments = [made.fragments(member)[1] for member in range(data)]
    mebibytes = np.concatenate(fragments) * 4 / 2**20
    found = (*np.percentile(mebibytes, (10, 50)), mebibytes.max())
    assert found == pytest.approx(sizes, abs=0.03)
    assert 3 * np.mean([len(own) for own in fragments]) == pytest.approx(tensor_count, abs=1)
    assert made.member_elements(data).max() * 12 / 1e6 == pytest.approx(megabytes, abs=0.6)


@given(
    counts=st.lists(st.integers(1, 700), min_size=1, max_size=12),
    limit=st.sampled_from([0, 1, 300, 1000]),
    member_count=st.integers(1, 9),
)
def test_fragments_cover_each_parameter_once(counts, limit, member_count):
    """Over all members each bucket is stored once, gaps included and the padding at its end not."""
    made = buffer(counts, limit, member_count)
    stored = Counter()
    for member in range(member_count):
        bucket, held = made.fragments(member)
        for index, count in zip(bucket.tolist(), held.tolist(), strict=True):
            stored[index] += count
        assert int(held.sum()) == made.member_elements(member_count)[member]
    assert [stored[index] for index in range(len(made.bucket_elements))] == made.bucket_elements.tolist()
    assert (made.ends - made.starts).sum() == made.bucket_elements.sum() >= sum(counts)
    assert (made.slice_elements * member_count >= made.bucket_elements).all()
    assert not (made.bucket_starts % 128).any()


def test_parameters_are_aligned():
    """Parameters lie last first, each at a multiple of 64 elements; what is between them is stored as well."""
    made = buffer([65, 1], 0, 2)
    assert list(zip(made.starts.tolist(), made.ends.tolist(), strict=True)) == [(0, 1), (1, 64), (64, 129)]
    assert (made.bucket_elements.tolist(), made.slice_elements.tolist()) == ([129], [128])


def test_workers_without_items_make_no_file():
    """Sixty-four workers for a rank with fewer items: as many files as items, none of them empty."""
    few = ModelTable(architecture="llama", layers=1, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19)
    (run,) = [step for step in layout(1, few, workers=64).save(0) if isinstance(step, Run) and len(step.drafts) > 1]
    sizes = [file.path.size_bytes for (file,) in run.drafts]
    assert 4 < len(sizes) < 64
    assert min(sizes) > 0
    assert layout(1, few, workers=64).census().file_count == len(sizes)


def test_only_the_first_stage_has_buckets():
    """Megatron reduces gradients of later stages in one go: one bucket, and so larger tensors."""
    made = layout(64, ModelTable(name="llama3-70b"), ParallelSpec(tensor=8, pipeline=4, data=2))
    counts = [len(made._groups.group(0, stage).buffer.bucket_starts) for stage in range(4)]
    assert counts == [40, 1, 1, 1]


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2-124m"])
def test_parameters_are_those_of_the_model(name):
    """Fusing loses no element: over all stages and tensor ranks, copies left out, the model is there once."""
    spec = resolve(ModelTable(name=name))
    parallel = ParallelSpec(tensor=4, pipeline=3)
    held = [
        parameter
        for pipeline in range(3)
        for tensor in range(4)
        for parameter in parameters(spec, parallel, tensor, pipeline)
        if tensor == 0 or not parameter.is_copied
    ]
    assert sum(parameter.element_count for parameter in held) == MODELS[name].spec.parameter_count
    per_layer = {"llama3-8b": 6, "gpt2-124m": 12}[name]
    assert sum(parameter.layer == 1 for parameter in parameters(spec, ParallelSpec(), 0, 0)) == per_layer


def distribute(sizes, charged):
    """`distribute_shards_to_ranks` for shards that all ranks hold: (size, key) to the least occupied rank."""
    ranks, chosen = list(zip(charged, range(len(charged)), strict=True)), {}
    for key, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        load, rank = min(ranks)
        ranks[rank] = (load + size, rank)
        chosen[key] = rank
    return chosen


@pytest.mark.parametrize("rank_count", [3, 7, 16])
def test_weights_are_dealt_as_in_megatron(rank_count):
    """Each weight is stored by the member that the greedy deal names, the optimizer's slices charged before."""
    group = layout(rank_count, GPT, ParallelSpec(data=rank_count))._groups.group(0, 0)
    charged = [int(group.optimizer_bytes(member)[0].sum()) for member in range(rank_count)]
    keys = [(parameter.key, parameter.layer, part) for parameter, part in group._items]
    chosen = distribute(dict(zip(keys, group.model_bytes.tolist(), strict=True)), charged)
    assert group.owner.tolist() == [chosen[key] for key in keys]


def job(name, tensor=1, pipeline=1, **options):
    """A Megatron job."""
    parallel = ParallelTable(tensor=tensor, pipeline=pipeline, sharding="distributed_optimizer")
    return Job(
        model=ModelTable(name=name), parallel=parallel, layout=LayoutTable(name="megatron_dist", options=options)
    )


@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "rank_count"),
    [("llama3-8b", 1, 1, 64), ("llama3-70b", 8, 4, 1024), ("llama3-405b", 8, 16, 8192)],
)
def test_bytes_are_14_a_parameter(name, tensor, pipeline, rank_count):
    """2 bytes of weight and 12 of optimizer state a parameter, whatever the ranks."""
    sums = totals(job(name, tensor, pipeline), World(rank_count))
    assert sums.data_bytes == pytest.approx(14 * MODELS[name].spec.parameter_count, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "rank_count"),
    [("llama3-8b", 1, 1, 8), ("llama3-8b", 1, 1, 64), ("llama3-70b", 8, 4, 1024), ("llama3-405b", 8, 16, 8192)],
)
def test_read_multiplier(name, tensor, pipeline, rank_count):
    """A restore reads (12 + 2 d) / 14 of the checkpoint, and 1 x when it is fully parallel, without `.metadata`."""
    data = rank_count // tensor // pipeline
    for options, metadata_reads, multiplier in (
        ({}, 3, (12 + 2 * data) / 14),
        ({"fully_parallel_load": True}, 4, 1),
    ):
        sums = totals(job(name, tensor, pipeline, **options), World(rank_count))
        (metadata,) = {
            item.path.size_bytes
            for item in items(plan(job(name, tensor, pipeline), World(rank_count), 0).save)
            if isinstance(item, WriteFile) and item.path.content_name == ".metadata"
        }
        read = sums.restore.data_bytes - metadata_reads * metadata * rank_count
        assert read / sums.data_bytes == pytest.approx(multiplier, rel=0.012)


def test_order_of_the_commit():
    """Rank 0: data, `.metadata` by rename, metadata.json, tracker; each behind a meet of all ranks."""
    steps = layout(8).save(0)
    words = []
    for step in steps:
        if isinstance(step, Meet):
            words.append("meet")
        else:
            words += [item.path.name for draft in step.drafts for item in draft if isinstance(item, WriteFile)]
    assert words == [
        "meet", "meet", "__0_0.distcp", "meet", "meet", ".metadata.tmp", "meet",
        "metadata.json", "meet", "meet", "latest_checkpointed_iteration.txt", "meet",
    ]  # fmt: skip


def test_what_is_synced():
    """Data and `.metadata` are, metadata.json and the tracker are not."""
    synced = {item.path.name: item.is_synced for item in items(layout(1).save(0)) if isinstance(item, WriteFile)}
    assert synced == {
        "__0_0.distcp": True, ".metadata.tmp": True, "metadata.json": False, "latest_checkpointed_iteration.txt": False,
    }  # fmt: skip


def test_every_rank_lists_and_reads_metadata_again_and_again():
    """Two listings, two trackers, six metadata.json, three `.metadata` a rank (four when fully parallel)."""
    for options, metadata_reads in (({}, 3), ({"fully_parallel_load": True}, 4)):
        done = list(items(layout(8, **options).restore(5)))
        opened = Counter(item.path.name for item in done if isinstance(item, ReadFile))
        assert sum(isinstance(item, Call) and item.kind is Kind.READDIR for item in done) == 2
        assert opened["latest_checkpointed_iteration.txt"] == 2
        assert opened["metadata.json"] == 6
        assert opened[".metadata"] == metadata_reads


def test_a_rank_reads_its_whole_shard():
    """By default every member reads all weights of its model-parallel rank, out of the files of all members."""
    made = layout(64, ModelTable(name="gpt2-124m"), ParallelSpec(tensor=2, data=32))
    names = {item.path.name for item in items(made.restore(7)) if isinstance(item, ReadFile)}
    holders = {int(name.split("_")[2]) for name in names if name.endswith(".distcp")}
    group = made._groups.group(1, 0)
    assert holders >= {made._groups.rank_of(1, 0, member) for member in set(group.writer[group.writer >= 0].tolist())}
    norms = made._groups.group(0, 0)
    copied = {int(member) for member in norms.writer[group.writer < 0]}
    assert holders >= {made._groups.rank_of(0, 0, member) for member in copied}


def test_workers_share_by_size():
    """A rank's files of two workers differ by less than its largest tensor's whole size; one thread a file."""
    (run,) = [
        step
        for step in layout(4, workers=2).save(1)
        if isinstance(step, Run) and isinstance(step.drafts[0][0], WriteFile)
    ]
    assert [file.path.name for (file,) in run.drafts] == ["__1_0.distcp", "__1_1.distcp"]


def test_ranks_stand_in_megatron_order():
    """Tensor first, then context, data and pipeline: members of a group are tensor ranks apart."""
    groups = layout(64, parallel=ParallelSpec(tensor=2, pipeline=2, context=2, data=8))._groups
    assert groups.ranks(1, 0)[:4] == [1, 3, 5, 7]
    assert groups.of(37)[1] == groups.parallel.coords(37).data * 2 + groups.parallel.coords(37).context
    assert groups.parallel.rank_of(Coordinates(1, 0, 0, 1, 0)) == 5


def test_save_ops_are_those_of_all_plans():
    """Ops of the save in closed form are those of all ranks' programs, by kind."""
    small = Job(
        model=TINY,
        parallel=ParallelTable(tensor=2, pipeline=2, sharding="distributed_optimizer"),
        layout=LayoutTable(name="megatron_dist", options={"workers": 2}),
    )
    counted = Counter()
    for rank in range(12):
        for program in programs(plan(small, World(12), rank).save, Facts(4096)):
            counted.update(Kind(kind).word for kind in program.ops["kind"].tolist())
    assert totals(small, World(12), Facts(4096)).save.by_kind == dict(counted)


REFUSED = {
    'sharding = "fsdp2" is not planned': Job(model=TINY, layout=LayoutTable(name="megatron_dist")),
    "experts have optimizer buffers of their own": job("mixtral-8x7b"),
    "[model] shard_bytes says nothing": Job(
        model=ModelTable(shard_bytes=Bytes(5000)),
        parallel=ParallelTable(sharding="distributed_optimizer"),
        layout=LayoutTable(name="megatron_dist"),
    ),
    '[model] states = "bf16" is not what': Job(
        model=ModelTable(name="gpt2-124m", states="bf16"),
        parallel=ParallelTable(sharding="distributed_optimizer"),
        layout=LayoutTable(name="megatron_dist"),
    ),
    "workers = 0 is not what": job("gpt2-124m", workers=0),
}


@pytest.mark.parametrize("said", REFUSED)
def test_refuses_by_name(said):
    """What the format is not made of here is refused with its key."""
    with pytest.raises(JobError) as refused:
        check_plan(REFUSED[said], World(4))
    assert said in str(refused.value)
