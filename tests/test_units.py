"""Sizes, times and rates: what people write is what is meant, and the rest is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.units import (
    SIZE_LIMIT_BYTES,
    bytes_text,
    count_text,
    duration_word,
    parse_bytes,
    parse_duration,
    parse_rate_per_s,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), (4096, 4096), ("4KiB", 4096), ("4 KiB", 4096), ("1.5GB", 1_500_000_000), ("1.5GiB", 3 << 29),
     ("64M", 64 << 20), ("2k", 2048), ("0", 0), ("1EiB", None), ("1024TiB", 1 << 50)],
)  # fmt: skip
def test_sizes(text, size):
    """Powers of 1024 with the i or a bare letter, of 1000 with B; EiB is beyond what files need."""
    if size is None:
        with pytest.raises(ValueError, match="expected a size"):
            parse_bytes(text)
    else:
        assert size == parse_bytes(text)


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "4XiB", "1.0001B", "1e6", "nan", "1KiB\n2", True, 1.5, None, "9" * 30]
)
def test_bad_sizes(text):
    """Anything else is a ValueError that says what a size looks like."""
    with pytest.raises(ValueError, match="expected a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [("30s", 30 * 10**9), ("200ms", 2 * 10**8), ("10min", 600 * 10**9), ("1h", 3600 * 10**9), (0, 0), ("0", 0)],
)
def test_durations(text, ns):
    """Times carry their unit; only zero may go without."""
    assert ns == parse_duration(text)


@pytest.mark.parametrize("text", [30, "30", "1 fortnight", "-1s", "0.1ns", True, None, "11000000h"])
def test_bad_durations(text):
    """A number without a unit is refused: seconds or milliseconds is not ours to guess."""
    with pytest.raises(ValueError, match="expected a time"):
        parse_duration(text)


def test_rates():
    """A rate says per second."""
    assert parse_rate_per_s("1000/s") == 1000
    with pytest.raises(ValueError, match="expected a rate"):
        parse_rate_per_s("1000")


@given(st.integers(0, SIZE_LIMIT_BYTES))
def test_duration_word_is_the_way_back(ns):
    """Every number of nanoseconds survives being written into a resolved job and read again."""
    if ns <= 10 * 366 * 24 * 3600 * 10**9:
        assert ns == parse_duration(duration_word(ns))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1503238554, "1.40 GiB"),
        (1048575, "1.00 MiB"),
        (1 << 60, "1.00 EiB"),
    ],
)
def test_bytes_text(value, text):
    """Three digits, and never 1024 of a unit."""
    assert text == bytes_text(value)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (4310, "4.31 us"), (999_999, "1.00 ms"), (94 * 10**9, "94.0 s"),
     (725 * 10**9, "12 min 5 s"),
     (12_000 * 10**9, "3 h 20 min")],
)  # fmt: skip
def test_time_text(ns, text):
    """Each span in the unit people say it in."""
    assert text == time_text(ns)


@given(st.floats(0, 1e18))
def test_counts_always_print(count):
    """No count is too large or too odd to be printed, and none is longer than ten characters."""
    assert 0 < len(count_text(count)) <= 10
