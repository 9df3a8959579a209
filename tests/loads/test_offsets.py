"""Where blocks lie: permutations, lots, zipf; held to what they claim."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.errors import JobError
from ckptstorm.load_tables import RandomLoad, Sizes
from ckptstorm.loads import load_of, offsets
from ckptstorm.model.parallel import World
from ckptstorm.program import Kind
from ckptstorm.units import GIB, KIB, MIB, Bytes, Duration


@given(count=st.integers(1, 5000), key=st.integers(0, 1 << 60))
@settings(max_examples=60, deadline=None)
def test_a_permutation_has_each_number_once(count, key):
    """Whatever the count, prime or square; and in no obvious order."""
    found = offsets.Permutation(count, key).at(np.arange(count, dtype=np.uint64))
    assert sorted(found.tolist()) == list(range(count))
    assert count < 50 or np.abs(np.diff(found.astype(np.int64))).mean() > count / 6


def test_a_petabyte_costs_what_a_megabyte_does():
    """A part of an order of 2^38 blocks: inside, without a repeat, and over the whole span."""
    count = (1 << 38) - 7
    found = offsets.Permutation(count, 5).at(np.arange(1 << 20, 1 << 21, dtype=np.uint64))
    assert len(np.unique(found)) == 1 << 20 and int(found.max()) < count
    assert np.histogram(found, 16, (0, count))[0].min() > 0.9 * (1 << 20) / 16


def test_orders_follow_one_another():
    """Three times round seven blocks: each once in each round, and not in one order."""
    rounds = offsets.permuted(9, 7)(np.arange(21, dtype=np.uint64)).reshape(3, 7)
    assert [sorted(each) for each in rounds.tolist()] == [list(range(7))] * 3
    assert len({tuple(each) for each in rounds.tolist()}) == 3


@pytest.mark.parametrize("theta", [0.6, 1.0, 1.4])
def test_zipf_is_zipf(theta):
    """Shares of the most wanted numbers are k^-theta over the sum, within four standard deviations."""
    count, drawn = 1000, 200_000
    found = offsets.zipf(3, count, theta)(np.arange(drawn, dtype=np.uint64))
    shares = np.sort(np.bincount(found.astype(np.int64), minlength=count))[::-1] / drawn
    weights = np.arange(1, count + 1) ** -theta
    wanted = weights / weights.sum()
    assert (np.abs(shares - wanted)[:8] < 4 * np.sqrt(wanted[:8] / drawn) + 2e-4).all()


def _ring(load, rank=0, ranks=1, number=0):
    return load_of(load, World(ranks, ranks)).stage(rank, 0).threads[number]


def test_threads_and_ranks_share_a_file_without_meeting():
    """Two ranks of two threads in one file of 2 MiB: together they write each 4 KiB once, in their first lap."""
    load = RandomLoad(access="write", span=Bytes(MIB), file="shared", threads=2, fsync_every=8)
    threads = [_ring(load, rank, 2, number) for rank in (0, 1) for number in (0, 1)]
    ops = np.concatenate([thread.program.ops[thread.first : thread.stop] for thread in threads])
    assert sorted(ops["offset_bytes"][ops["kind"] == Kind.WRITE].tolist()) == list(range(0, 2 * MIB, 4 * KIB))
    assert int((ops["kind"] == Kind.FSYNC).sum()) == 2 * MIB // (4 * KIB) // 8


def test_a_mix_of_sizes_and_reads_comes_as_asked():
    """30 % reads exactly; three quarters small; every op inside the span; unaligned where asked."""
    load = RandomLoad(
        access="mixed", read_percent=30, span=Bytes(GIB), duration=Duration(10**9), aligned=False,
        block=Sizes.parse({"4KiB": 3, "16KiB..64KiB": 1}), order="uniform",
    )  # fmt: skip
    thread = _ring(load)
    ops = thread.program.ops[thread.first : thread.stop]
    assert int((ops["kind"] == Kind.READ).sum()) == len(ops) * 30 // 100
    small = (ops["length_bytes"] == 4 * KIB).mean()
    assert 0.72 < small < 0.78
    assert int((ops["offset_bytes"] + ops["length_bytes"]).max()) <= GIB
    assert (ops["offset_bytes"] % 512 != 0).all()
    assert thread.refill is not None and (thread.refill(1) != ops["offset_bytes"]).mean() > 0.99


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"read_percent": 5}, 'read_percent: means something to access = "mixed" only'),
        ({"span": Bytes(100)}, "no block fits into it"),
        ({"direct": True, "block": Sizes.parse("1000")}, "must be multiples of 512"),
        ({"direct": True, "aligned": False}, "contradicts it"),
        ({"amount": Bytes(MIB), "duration": Duration(10**9)}, "contradict each other"),
        ({"ramp": Duration(1)}, "ramp: means something beside"),
        ({"fsync_every": 1}, 'means nothing to access = "read"'),
        ({"prefilled": False}, "nothing to read"),
        ({"verify": True, "content": "repeated"}, "proves nothing"),
        ({"ranks": (4,)}, "there is no rank 4"),
    ],
)
def test_what_cannot_be_is_refused_by_name(keys, says):
    """One sentence that names the load and the key."""
    with pytest.raises(JobError, match=says) as caught:
        load_of(RandomLoad(**keys), World(2, 2))
    assert str(caught.value).startswith("[[load]] random")
