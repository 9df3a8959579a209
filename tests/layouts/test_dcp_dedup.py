"""The deal against PyTorch's own algorithm, item by item and rank by rank."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptstorm.layouts.formats.dcp_dedup import _set_mask, deal
from ckptstorm.model.shard import chunk_rows

BLOBS = 12


def dedup_save_plans(plans):
    """torch.distributed.checkpoint._dedup_save_plans on (index, size) items; who keeps each index."""
    holders, sizes = defaultdict(set), {}
    for rank, plan in enumerate(plans):
        for index, size in plan:
            holders[index].add(rank)
            sizes[index] = size
    charged, kept = [0] * len(plans), {}
    for index, ranks in holders.items():
        rank = min(ranks, key=lambda rank: charged[rank])
        charged[rank] += sizes[index] or 1
        kept[index] = rank
    return kept


def plan_of(rank, tensors, rank_count):
    """The local save plan of `rank`, for (rows, bytes of a row) tensors under FSDP2 with AdamW."""

    def shard(name, row_count, row_bytes):
        most = -(-row_count // rank_count)
        has_rows = chunk_rows(row_count, rank_count, rank) > 0
        return (name, rank * most if has_rows else row_count), row_count * row_bytes

    plan = [shard(("weight", at), *tensor) for at, tensor in enumerate(tensors)]
    for at, tensor in enumerate(tensors):
        plan.append((("step", at), 4))
        plan += [shard((state, at), *tensor) for state in ("exp_avg", "exp_avg_sq")]
    return plan + [(("blob", at), 0) for at in range(BLOBS)]


@given(
    tensors=st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 4, 4, 4, 32, 400])), min_size=1, max_size=14),
    rank_count=st.integers(1, 70),
)
@example(tensors=[(3, 4000), (2, 2000), (1, 4)], rank_count=5)
@example(tensors=[(61, 4)] * 4, rank_count=68)
@example(tensors=[(1, 1)] * 9, rank_count=2)
def test_deal_is_that_of_torch(tensors, rank_count):
    """Scalars, blobs and empty records go to the ranks that `dedup_save_plans` chooses, ties included."""
    kept = dedup_save_plans([plan_of(rank, tensors, rank_count) for rank in range(rank_count)])
    rows = np.array([tensor[0] for tensor in tensors], dtype=np.int64)
    total = rows * np.array([tensor[1] for tensor in tensors], dtype=np.int64)
    used = -(-rows // -(-rows // rank_count))
    dealt = deal(total, used, rank_count, 3, BLOBS)
    assert dealt.scalar_rank.tolist() == [kept["step", at] for at in range(len(tensors))]
    assert dealt.blob_rank.tolist() == [kept["blob", at] for at in range(BLOBS)]
    for state, name in enumerate(("weight", "exp_avg", "exp_avg_sq")):
        expected = [kept.get(((name, at), row_count), -1) for at, row_count in enumerate(rows.tolist())]
        assert dealt.empty_rank[state].tolist() == expected


@pytest.mark.parametrize(("first", "last"), [(5, 12), (60, 66), (30, 40), (17, 3000), (70_000, 99_999), (3, 60_010)])
def test_order_of_a_set_of_ranks(first, last):
    """A set of consecutive integers is walked by their low bits; ties in DCP depend on it."""
    ranks = set()
    for rank in range(first, last):
        ranks.add(rank)
    mask = _set_mask(last - first)
    assert list(ranks) == sorted(range(first, last), key=lambda rank: rank & mask)
