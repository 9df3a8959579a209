"""Small turns of phrase that evidence, reasons and reports share."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """(1, "rank") -> "1 rank", (2048, "rank") -> "2,048 ranks"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """0.314 -> "31 %"; small shares keep a digit, and only nothing is 0 %."""
    value = share * 100
    if 0 < value < 0.1:
        return "under 0.1 %"
    return f"{value:.0f} %" if value >= 9.95 or value == int(value) else f"{value:.1f} %"


def round_words(index: int) -> str:
    """1 -> "round 1"; 0 and below -> "the warm-up"."""
    return f"round {index}" if index >= 1 else "the warm-up"


def some(ranks: list[int]) -> str:
    """[3] -> "rank 3"; of many the first few, and how many more."""
    more = f" and {len(ranks) - 4:,} more" if len(ranks) > 4 else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(str(rank) for rank in ranks[:4])}{more}"
