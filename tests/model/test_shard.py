"""Shards: every element once, and rank coordinates that come back."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.job import ModelTable
from ckptstorm.model.parallel import ParallelSpec, World
from ckptstorm.model.shard import chunk_rows, pieces, rows, shard_classes
from ckptstorm.model.zoo import resolve

SMALL = resolve(ModelTable(architecture="llama", layers=3, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=50))
EXPERTS = resolve(
    ModelTable(architecture="mixtral", layers=2, hidden=24, ffn=20, heads=4, kv_heads=2, vocab=50, experts=5)
)


@given(row_count=st.integers(1, 400), parts=st.integers(1, 130))
def test_chunk_rows_are_those_of_torch(row_count, parts):
    """`torch.chunk`: equal chunks, then a short one, then none; all rows once."""
    chunks = [chunk_rows(row_count, parts, index) for index in range(parts)]
    assert sum(chunks) == row_count
    assert chunks == sorted(chunks, reverse=True)
    assert chunks[0] == math.ceil(row_count / parts)
    assert len({chunk for chunk in chunks if chunk not in (0, chunks[0])}) <= 1


@given(parts=st.integers(1, 60))
def test_rows_are_the_same_as_one_by_one(parts):
    """The arrays of `Rows` say for all tensors what `chunk_rows` says for one."""
    shapes = rows(SMALL, parts)
    for index in range(parts):
        one_by_one = [chunk_rows(tensor.shape[0], parts, index) for tensor in SMALL.tensors()]
        assert shapes.shard_rows(parts, index).tolist() == one_by_one
    used = [sum(chunk_rows(tensor.shape[0], parts, index) > 0 for index in range(parts)) for tensor in SMALL.tensors()]
    assert shapes.used_parts(parts).tolist() == used


@given(st.tuples(*[st.integers(1, 4)] * 5))
def test_coordinates_are_a_bijection(sizes):
    """Every place has one rank; ranks next to each other differ in tensor first (tp-cp-ep-dp-pp)."""
    spec = ParallelSpec(*sizes)
    places = [spec.coords(rank) for rank in range(spec.rank_count)]
    assert len(set(places)) == spec.rank_count
    assert [spec.rank_of(place) for place in places] == list(range(spec.rank_count))
    orders = [(at.pipeline, at.data, at.expert, at.context, at.tensor) for at in places]
    assert orders == sorted(orders)


PARALLEL = [
    ParallelSpec(data=3), ParallelSpec(data=7), ParallelSpec(tensor=2, data=3), ParallelSpec(pipeline=3, data=2),
    ParallelSpec(tensor=2, context=2, data=2, pipeline=2), ParallelSpec(expert=2, data=2), ParallelSpec(expert=5),
    ParallelSpec(tensor=2, expert=3, data=2, pipeline=2),
]  # fmt: skip


@pytest.mark.parametrize("parallel", PARALLEL, ids=str)
@pytest.mark.parametrize("model", [SMALL, EXPERTS], ids=["llama", "mixtral"])
def test_every_element_is_held(model, parallel):
    """Under "fsdp2" what tensor parallelism cuts is held once, and what it copies once a tensor rank."""
    if model is SMALL and parallel.expert > 1:
        parallel = ParallelSpec(
            parallel.tensor, parallel.context, 1, parallel.data * parallel.expert, parallel.pipeline
        )
    held = Counter()
    for rank in range(parallel.rank_count):
        for piece in pieces(model, parallel, "fsdp2", rank):
            held[piece.tensor.name] += piece.element_count
    for tensor in model.tensors():
        copies = parallel.tensor if tensor.tensor_dim is None else 1
        assert held[tensor.name] == copies * tensor.element_count, tensor


@pytest.mark.parametrize("parallel", PARALLEL, ids=str)
@pytest.mark.parametrize("sharding", ["fsdp2", "ddp"])
def test_ranks_of_a_class_hold_equal_sizes(parallel, sharding):
    """`shard_classes` puts two ranks together only when their pieces have the same sizes."""
    keys = shard_classes(EXPERTS, parallel, sharding)
    by_key = {}
    for rank in range(parallel.rank_count):
        sizes = [piece.element_count for piece in pieces(EXPERTS, parallel, sharding, rank)]
        assert by_key.setdefault(tuple(keys[:, rank]), sizes) == sizes


def test_nodes():
    """The compact world of equal nodes says the same as the list of each rank's node."""
    compact, listed = World(10, 4), World(10, (0,) * 4 + (1,) * 4 + (2,) * 2)
    assert [compact.node_of(rank) for rank in range(10)] == [listed.node_of(rank) for rank in range(10)]
    assert compact.node_count == listed.node_count == 3
