"""Pacing: what the words of a job mean, what is refused, and what distributions really are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import to_builtins
from ckptstorm.jobfile import decode, from_builtins
from ckptstorm.pacing import DURATION_ROUNDS, UNTIL_ROUNDS, Skew, Stagger, delays_ns

MS = 1_000_000
NODES = np.repeat(np.arange(4, dtype=np.int32), 8)


def _storm(text):
    return decode(f"[storm]\n{text}\n", "test").storm


@pytest.mark.parametrize(
    ("text", "most", "within"),
    [
        ("rounds = 7", 7, 0.0),
        ('rounds = "until 5%"', UNTIL_ROUNDS, 0.05),
        ('rounds = "until 2.5 %, at most 80"', 80, 0.025),
        ('duration = "8h"', DURATION_ROUNDS, 0.0),
        ('duration = "8h"\nrounds = 4', 4, 0.0),
        ("", 3, 0.0),
    ],
)
def test_rounds_are_a_number_and_a_wish(text, most, within):
    """How many there may be, and how sure the median must be; both survive the way through a record."""
    job = decode(f"[storm]\n{text}\n", "test")
    for storm in (job.storm, from_builtins(to_builtins(job), "again").storm):
        assert (int(storm.rounds), storm.rounds.within) == (most, pytest.approx(within))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('rounds = "until"', "until 5%"),
        ('rounds = "until 0%"', "until 5%"),
        ("rounds = 0", "until 5%"),
        ("rounds = true", "until 5%"),
        ("rounds = 5000", "until 5%"),
        ('skew = "gamma 2s"', "lognormal"),
        ('skew = "lognormal 2s"', "lognormal"),
        ('skew = "normal two"', "lognormal"),
        ('stagger = "200ms"', "by node 200ms"),
        ('stagger = "by rack 200ms"', "by node 200ms"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text, says):
    """One sentence with the key and what is allowed."""
    with pytest.raises(JobError) as raised:
        _storm(text)
    assert f"[storm] {text.partition(' ')[0]}" in str(raised.value)
    assert says in "\n".join(raised.value.lines())


def test_stagger_releases_one_node_after_the_other():
    """All ranks of node n come n steps after the first; by rank, each."""
    by_node = delays_ns(Skew("0s"), Stagger("by node 200ms"), NODES, 1, 1)
    assert by_node.tolist() == (NODES.astype(np.int64) * 200 * MS).tolist()
    assert delays_ns(Skew("0s"), Stagger("by rank 5ms"), NODES, 1, 1).tolist() == [5 * MS * rank for rank in range(32)]


@pytest.mark.parametrize(
    ("skew", "median_ms", "most_ms"),
    [
        ("uniform 2s", 1000, 2000),
        ("2s", 1000, 2000),
        ("exponential 100ms", 69.3, 2000),
        ("lognormal 10s 0.05", 2000, 5000),
        ("normal 100ms", 430, 1200),
    ],
)
def test_skew_has_its_distribution(skew, median_ms, most_ms):
    """Of 100,000 ranks the earliest is not delayed; the median and the largest are the distribution's, after it."""
    delays = delays_ns(Skew(skew), Stagger("0s"), np.zeros(100_000, dtype=np.int32), 5, 2)
    assert delays.min() == 0
    assert np.median(delays) / MS == pytest.approx(median_ms, rel=0.15)
    assert delays.max() / MS < most_ms


def test_skew_is_one_for_all_ranks_and_new_each_round():
    """Every rank computes the same delays by itself; rounds, warm-up among them, differ."""
    draws = [delays_ns(Skew("2s"), Stagger("0s"), NODES, 9, number) for number in (-1, 0, 1, 1)]
    assert draws[2].tolist() == draws[3].tolist()
    assert draws[0].tolist() != draws[1].tolist() != draws[2].tolist()
