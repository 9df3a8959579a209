"""What limits a save or a restore as the world grows: the scalability law through a sweep, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ckptstorm.forecast.scaling_law import Interval, Law, fit
from ckptstorm.record.words import percent
from ckptstorm.report.parts import Fact
from ckptstorm.units import rate_text

#: A curve further off than this from a measured median is no law of what was measured.
_FITS_WITHIN = 0.25

Points = Sequence[tuple[int, Sequence[float]]]


def facts(label: str, points: Points) -> tuple[Fact, ...]:
    """Lines on how the bandwidth of one series grew.

    Args:
        label: "save", or the series' own name.
        points: (ranks, bytes per second of each measured round) of each storm of the series.
    """
    law = fit(_merged(points))
    if law is None:
        return ()
    told = [Fact(label, _curve(law)), Fact("", _limit(law, max(count for count, _ in points)))]
    if law.error > _FITS_WITHIN:
        told.append(Fact("", f"the law is {percent(law.error)} off at one size: do not forecast from it", "doubt"))
    if not law.has_intervals:
        told.append(Fact("", "one round a size: how sure this is cannot be said", "quiet"))
    return tuple(told)


def data(points: Points) -> dict[str, object] | None:
    """The same for programs; None below the least number of sizes."""
    law = fit(_merged(points))
    if law is None:
        return None
    named = {"rate": law.rate, "contention": law.contention, "crosstalk": law.crosstalk, "knee_ranks": law.knee}
    shown: dict[str, object] = {name: [_finite(end) for end in _ends(each)] for name, each in named.items()}
    return shown | {"ceiling_bytes_per_s": _finite(law.ceiling), "error": law.error}


def _merged(points: Points) -> list[tuple[int, list[float]]]:
    """Storms of one size are rounds of one size; a round that moved nothing tells no rate."""
    merged: dict[int, list[float]] = {}
    for count, rates in points:
        merged.setdefault(count, []).extend(rate for rate in rates if rate > 0)
    return sorted((count, rates) for count, rates in merged.items() if rates)


def _curve(law: Law) -> str:
    alone = f"{rate_text(law.rate.value)}{_span(law.rate, rate_text, law)} from one rank alone"
    one_by_one = f"{percent(law.contention.value)}{_span(law.contention, percent, law)} of the work one after the other"
    pairs = f"{law.crosstalk.value:.2g}{_span(law.crosstalk, lambda end: f'{end:.2g}', law)} for each pair of ranks"
    return f"{alone}; {one_by_one}; {pairs}; measured medians within {percent(law.error)} of the curve"


def _limit(law: Law, largest: int) -> str:
    if math.isfinite(law.knee.value):
        knee = f"{_ranks(law.knee.value)}{_span(law.knee, _ranks, law)}"
        if law.knee.value <= 1:
            return "every rank more makes it slower: what ranks cost each other is the limit from the start"
        before = "what is done one after the other (a full link or server, a lock)"
        before = before if law.contention.value > 0 else "nothing but one rank's own speed"
        return (
            f"highest at {knee} with {rate_text(law.ceiling)}: before it {before} is the limit, "
            "beyond it what ranks cost each other"
        )
    if law.contention.value > 0:
        half = max(1.0, (1 - law.contention.value) / law.contention.value)
        return (
            f"levels off at {rate_text(law.ceiling)}, half of it at {_ranks(half)}: what is done one after the other "
            "(a full link or server, a lock) is the limit; ranks do not slow each other down"
        )
    return f"grows with the ranks: nothing limits it up to {_ranks(largest)}"


def _span(interval: Interval, text: Callable[[float], str], law: Law) -> str:
    """ " (4 to 7)", or "" when it cannot be said."""
    if not law.has_intervals:
        return ""
    low, high = (text(end) if math.isfinite(end) else "no end" for end in (interval.low, interval.high))
    return f" ({low} to {high})" if low != high else ""


def _ranks(count: float) -> str:
    return f"{count:,.0f} ranks" if count >= 1.5 else "1 rank"


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.value, interval.low, interval.high


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
