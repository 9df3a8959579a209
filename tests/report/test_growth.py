"""How a sweep grew, in words: the knee, the ceiling, straight growth, and when nothing can be said."""

from __future__ import annotations

import pytest

from ckptstorm.report import growth

SIZES = (1, 2, 4, 8, 16, 32)


def _points(contention, crosstalk, rounds=(1.0,)):
    rate = 1 << 30
    rates = [rate * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1)) for n in SIZES]
    return [(n, tuple(each * factor for factor in rounds)) for n, each in zip(SIZES, rates, strict=True)]


@pytest.mark.parametrize(
    ("contention", "crosstalk", "says"),
    [
        (0.1, 0.004, "highest at 15 ranks with"),
        (0.0, 0.004, "nothing but one rank's own speed is the limit"),
        (0.25, 0.0, "levels off at 4.00 GiB/s, half of it at 3 ranks"),
        (0.0, 0.0, "nothing limits it up to 32 ranks"),
        (0.0, 3.0, "every rank more makes it slower"),
    ],
)
def test_what_limits_is_named(contention, crosstalk, says):
    """By the two costs of the law, and by where the highest rate is."""
    told = " | ".join(fact.text for fact in growth.facts("save", _points(contention, crosstalk)))
    assert says in told
    assert "one round a size: how sure this is cannot be said" in told


def test_rounds_that_differ_give_an_interval():
    """The ends stand in brackets, and nothing says that it cannot be said."""
    told = " | ".join(fact.text for fact in growth.facts("save", _points(0.1, 0.004, (0.9, 1.0, 1.1))))
    assert " to " in told and "cannot be said" not in told


def test_a_curve_that_does_not_fit_warns():
    """Growth that no law of costs can show."""
    facts = growth.facts("save", [(1, (1e9,)), (2, (4e9,)), (4, (20e9,))])
    assert any("do not forecast from it" in fact.text for fact in facts)


def test_two_sizes_or_no_bytes_say_nothing():
    """Three coefficients want three sizes; a round that moved nothing has no rate."""
    assert growth.facts("save", [(1, (1e9,)), (2, (2e9,))]) == ()
    assert growth.facts("save", [(1, (1e9,)), (2, (2e9,)), (4, (0.0,))]) == ()
    assert growth.data([(1, (1e9,))]) is None
