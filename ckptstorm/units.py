"""Sizes, times and rates as people write them, and the way back to text.

Inside the program there are only integers: bytes and nanoseconds.
"""

from __future__ import annotations

import re
from fractions import Fraction

from ckptstorm.clock import NS_PER_S

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_SIZE_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": TIB, "tib": TIB, "tb": 10**12,
}  # fmt: skip
_TIME_UNITS_NS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": NS_PER_S,
    "min": 60 * NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*\Z")
_PERCENT = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*\Z")
_RATE = re.compile(r"\s*([0-9]{1,12})\s*/\s*s\s*\Z")

#: Beyond any file or memory there is; keeps every sum inside a signed 64-bit integer.
SIZE_LIMIT_BYTES = 1 << 60
#: Ten years: keeps every sum of times inside a signed 64-bit integer.
TIME_LIMIT_NS = 10 * 366 * 24 * 3600 * NS_PER_S


class Bytes(int):
    """A size in bytes, written in a job as 4096 or "4KiB"."""


class Duration(int):
    """A time in nanoseconds, written in a job as "30s" or "200ms"."""


class Percent(float):
    """A share, 0 to 1, written in a job as "80%"."""


def parse_bytes(value: object) -> Bytes:
    """4096, "4096", "4KiB", "1.5GB" (KiB, MiB, GiB, TiB and K, M, G, T are powers of 1024).

    Raises:
        ValueError: not a size, negative, not a whole number of bytes, or above 1 EiB.
    """
    size = _number(value, _SIZE_UNITS, 'a size such as 4096, "4KiB" or "16MiB"', SIZE_LIMIT_BYTES)
    return Bytes(size)


def parse_duration(value: object) -> Duration:
    """ "30s", "200ms", "10min", "1h" to nanoseconds; a bare 0 is allowed, other bare numbers are not.

    Raises:
        ValueError: not a time, negative, no unit, or above ten years.
    """
    says = 'a time such as "200ms", "30s" or "10min"'
    if isinstance(value, str) and re.fullmatch(r"\s*0\s*", value):
        value = 0
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 0:
            return Duration(0)
        raise ValueError(f"expected {says} (with its unit), found {value}")
    return Duration(_number(value, _TIME_UNITS_NS, says, TIME_LIMIT_NS))


def duration_word(ns: int) -> str:
    """The exact way back from `parse_duration`: 30000000000 -> "30s"."""
    for unit, size in (("s", NS_PER_S), ("ms", 10**6), ("us", 10**3)):
        if ns % size == 0:
            return f"{ns // size}{unit}"
    return f"{ns}ns"


def bytes_word(count: int) -> str:
    """The exact way back from `parse_bytes`: 65536 -> "64KiB"."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(int(count))


def parse_rate_per_s(value: object) -> int:
    """ "1000/s" to 1000.

    Raises:
        ValueError: not a rate.
    """
    match = _RATE.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'expected a rate such as "1000/s", found {value!r}')
    return int(match[1])


def parse_percent(value: str) -> float:
    """ "5%" to 0.05; the sign is needed, for a bare 5 could be either.

    Raises:
        ValueError: not a percentage.
    """
    match = _PERCENT.match(value)
    if match is None:
        raise ValueError(f'expected a percentage such as "5%", found {value!r}')
    return float(match[1]) / 100


def memory_percent(value: object) -> Percent:
    """ "80%" to 0.8, below 100 %: something must be left to run in.

    Raises:
        ValueError: not a percentage, or not below 100 %.
    """
    says = 'a percentage below 100, such as "80%"'
    if not isinstance(value, str) or _PERCENT.match(value) is None or parse_percent(value) >= 1:
        raise ValueError(f"expected {says}, found {value!r}")
    return Percent(parse_percent(value))


def _number(value: object, units: dict[str, int], says: str, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected {says}, found {value!r}")
    match = _NUMBER_AND_UNIT.match(str(value))
    if match is None or match[2].lower() not in units:
        raise ValueError(f"expected {says}, found {value!r}")
    exact = Fraction(match[1]) * units[match[2].lower()]
    if exact.denominator != 1:
        raise ValueError(f"expected {says}, found {value!r}, which is not a whole number")
    if exact > limit:
        raise ValueError(f"expected {says}, found {value!r}, which is beyond the limit")
    return int(exact)


def bytes_text(count: float) -> str:
    """1503238554 -> '1.4 GiB'; three significant digits, exact below 1 KiB."""
    for size, unit in ((1 << 60, "EiB"), (1 << 50, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= size * 0.9995:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def rate_text(bytes_per_s: float) -> str:
    """Bytes per second, as '1.4 GiB/s'."""
    return f"{bytes_text(bytes_per_s)}/s"


def count_text(count: float) -> str:
    """1234567 -> '1.23 M'; whole numbers below 10,000 are written out with a comma."""
    if count < 9999.5:
        return f"{count:,.0f}" if count >= 100 or count == int(count) else _three_digits(count)
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size * 0.9995:
            return f"{_three_digits(count / size)} {unit}"
    raise AssertionError("every count above 9,999 has a unit")


def time_text(ns: float) -> str:
    """Nanoseconds to '812 ns', '4.31 us', '4.31 ms', '4.31 s', '12 min 5 s', '3 h 20 min'."""
    for size, unit in ((NS_PER_S, "s"), (10**6, "ms"), (10**3, "us")):
        if ns >= size * 0.9995:
            return _long_time_text(ns) if unit == "s" else f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def _long_time_text(ns: float) -> str:
    seconds = ns / NS_PER_S
    if seconds < 120:
        return f"{_three_digits(seconds)} s"
    if seconds < 2 * 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
