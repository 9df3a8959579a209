"""How sure a median is, and whether rounds drift: held against simulation and against worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from ckptstorm.record.confidence import median_interval
from ckptstorm.record.trend import trend


@pytest.mark.parametrize(
    ("count", "low", "high", "confidence"),
    [(6, 1, 6, 0.96875), (8, 1, 8, 0.9921875), (9, 2, 8, 0.9609375), (10, 2, 9, 0.978515625), (20, 6, 15, 0.9586105)],
)
def test_intervals_are_those_of_the_tables(count, low, high, confidence):
    """The ranks of the bounds and the confidence, as every table of the sign test has them."""
    found = median_interval([float(value) for value in range(1, count + 1)])
    assert (found.low, found.high) == (low, high)
    assert found.confidence == pytest.approx(confidence)


@pytest.mark.parametrize("count", range(6))
def test_too_few_rounds_say_nothing(count):
    """With five values even the whole range holds the median only in 94 of 100 cases."""
    assert median_interval([1.0] * count) is None


@pytest.mark.parametrize("count", [6, 13, 50])
def test_the_interval_holds_the_median_as_often_as_it_says(count):
    """Of 4,000 samples of a skewed distribution at least 95 % of the intervals hold the true median, 1."""
    chance = np.random.default_rng(count)
    intervals = [median_interval(chance.lognormal(0, 1, count).tolist()) for _ in range(4000)]
    held = np.mean([found.low <= 1.0 <= found.high for found in intervals])
    assert held == pytest.approx(intervals[0].confidence, abs=0.012)
    assert held > 0.94


def test_thousands_of_rounds_are_no_trouble():
    """The binomial is summed exactly: nothing overflows."""
    found = median_interval([float(value) for value in range(4096)])
    assert found.within(2047.5) == pytest.approx(1.96 / np.sqrt(4096), rel=0.05)


def test_a_drift_is_seen_and_its_size_told():
    """2 % of the median a round, in noise of 5 %, with a wild round: the slope is told, and 0 is left out."""
    chance = np.random.default_rng(3)
    numbers = list(range(1, 41))
    values = [10 * (1 + 0.02 * (number - 20)) * (1 + chance.normal(0, 0.05)) for number in numbers]
    values[7] = 900.0
    found = trend(numbers, values)
    assert found.is_seen
    assert found.low < 0.02 < found.high
    assert found.share_per_round == pytest.approx(0.02, rel=0.2)


def test_noise_is_called_a_drift_in_one_of_twenty_cases():
    """Of 600 soaks without any drift some 5 % are said to have one: that is what 95 % means."""
    chance = np.random.default_rng(11)
    seen = [trend(list(range(30)), chance.lognormal(0, 0.3, 30).tolist()).is_seen for _ in range(600)]
    assert 0.02 < np.mean(seen) < 0.085


def test_few_rounds_have_no_trend():
    """Below ten rounds the approximation does not hold."""
    assert trend(list(range(9)), [1.0] * 9) is None
    assert trend([], []) is None
