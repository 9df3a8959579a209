"""How the storm went from round to round: how sure the medians are, whether they drift, deletions, staged saves."""

from __future__ import annotations

from collections.abc import Callable

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure import latency
from ckptstorm.measure.rows import Phase
from ckptstorm.pacing import Rounds
from ckptstorm.program import Kind
from ckptstorm.record import settings
from ckptstorm.record.latencies import percentiles
from ckptstorm.record.rounds import Spread, ops_per_s, spread_of, trend_of
from ckptstorm.record.staged import Staged
from ckptstorm.record.trend import Trend
from ckptstorm.record.words import counted, percent
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Line, Section, Table, Tone
from ckptstorm.units import bytes_text, count_text, rate_text, time_text

#: More rounds than this are shown by the first, the worst and the last.
_ROUNDS_SHOWN = 8


def over_rounds(known: Known) -> Section:
    """How sure each median is, and whether rounds get slower."""
    facts: list[Block] = []
    for phase in (Phase.SAVE, Phase.RESTORE):
        rounds = known.over_rounds(phase)
        if rounds is None:
            continue
        facts += _sure_facts(phase.word, rounds.seconds, rounds.round_count, asked_within(known), _seconds)
        found = trend_of(known.rounds(phase))
        if found is not None:
            facts.append(Fact("", f"over rounds: {_trend_words(found)}", "doubt" if found.low > 0 else "plain"))
    for name in known.stages():
        finished = [one for one in known.rounds(Phase.LOAD, name) if one.is_finished]
        if finished:
            rates = spread_of(finished, ops_per_s)
            facts += _sure_facts(name, rates, len(finished), asked_within(known), _rate)
    return Section("Over rounds", tuple(facts))


def asked_within(known: Known) -> float:
    """How sure the job asks the medians to be, as a share; 0 when it asks for a number of rounds."""
    try:
        return Rounds.parse(settings.text(known.record.job, "storm", "rounds")).within
    except ValueError:
        return 0.0


def _sure_facts(name: str, spread: Spread, round_count: int, asked: float, text: Callable[[float], str]) -> list[Block]:
    within, interval = spread.within, spread.interval
    number = counted(round_count, "round")
    if within is None or interval is None:
        words = f"how sure the median of {number} is cannot be told with fewer than 6"
        return [Fact(name, words, "doubt")] if asked else []
    known = (
        f"the median is known to ± {percent(within)} after {number} "
        f"({percent(interval.confidence)} interval {text(interval.low)} to {text(interval.high)})"
    )
    tone: Tone = "plain"
    if asked:
        is_reached = within <= asked
        tone = "good" if is_reached else "doubt"
        known += f"; ± {percent(asked)} was asked: {'reached' if is_reached else 'NOT REACHED'}"
    return [Fact(name, known, tone)]


def _trend_words(found: Trend) -> str:
    low, high = _share(found.low), _share(found.high)
    if not found.is_seen:
        return f"no drift is seen: between {low} and {high} a round (95 %)"
    way = "slower" if found.share_per_round > 0 else "faster"
    whole = percent(abs(found.share_per_round) * (found.round_count - 1))
    each = f"{abs(found.share_per_round) * 100:.2g} %"
    return f"{each} {way} a round (95 %: {low} to {high}), {whole} over {found.round_count} rounds"


def _share(share: float) -> str:
    return f"{share * 100:+.2g} %"


def staged(known: Known) -> Section:
    """Asynchronous saves: what training waited for, and the drain behind it."""
    saves = [(summary.round, summary.staged) for summary in known.rounds(Phase.SAVE) if summary.staged is not None]
    if not saves:
        return Section("Asynchronous saves", ())
    each = [one for _, one in saves]
    size = settings.count(known.record.job, "storm", "staging")
    facts: list[Block] = [
        Fact("staging", f"{bytes_text(size)} a rank; {bytes_text(each[0].copied_bytes)} copied a save"),
        Line(""),
        Table(
            ("", "blocked", "waited", "no room", "copied at", "drain", "steps"),
            tuple(_staged_row(number, one) for number, one in _shown(saves)),
        ),
        Line("blocked: until training went on, slowest rank; waited: of that, for the drain before;", "quiet"),
        Line("no room: of that, for staging memory; drain: release to durable, behind the training", "quiet"),
    ]
    return Section("Asynchronous saves", tuple(facts))


def _shown(saves: list[tuple[int, Staged]]) -> list[tuple[int, Staged]]:
    if len(saves) <= _ROUNDS_SHOWN:
        return saves
    worst = max(saves, key=lambda pair: pair[1].blocked_seconds)
    return sorted({saves[0][0]: saves[0], worst[0]: worst, saves[-1][0]: saves[-1]}.values(), key=lambda pair: pair[0])


def _staged_row(number: int, one: Staged) -> tuple[str, ...]:
    return (
        f"round {number}",
        _seconds(one.blocked_seconds),
        _seconds(one.backpressure_seconds),
        _seconds(one.room_seconds),
        rate_text(one.copy_bytes_per_s),
        _seconds(one.drain_seconds),
        count_text(one.step_count),
    )


def staged_answer(known: Known) -> str:
    """The headline of staged saves; "" when saves were synchronous."""
    finished = [summary for summary in known.rounds(Phase.SAVE) if summary.is_finished]
    each = [summary.staged for summary in finished if summary.staged is not None]
    if not each:
        return ""
    blocked = sorted(one.blocked_seconds for one in each)
    drains = sorted(one.drain_seconds for one in each)
    middle = (len(each) - 1) // 2
    ranks = counted(len(known.record.node_of_rank), "GPU")
    return (
        f"blocked {ranks} for {_seconds(blocked[middle])} (worst {_seconds(blocked[-1])}); drained in "
        f"{_seconds(drains[middle])} behind the training (worst {_seconds(drains[-1])})"
    )


def deletion(known: Known) -> Section:
    """What it cost to delete the checkpoints beyond those kept."""
    rounds = known.rounds(Phase.DELETE)
    over = known.over_rounds(Phase.DELETE)
    if over is None:
        return Section("Deletion", ())
    tables = [phase.latency for phase in known.record.phases if phase.phase == Phase.DELETE and phase.round >= 1]
    found = percentiles(*latency.select(latency.merge(tables), (Kind.UNLINK,)))
    rates = spread_of(rounds, lambda summary: summary.metadata_op_count / summary.seconds if summary.seconds else 0.0)
    keep = settings.count(known.record.job, "storm", "keep", default=1)
    median, worst = _seconds(over.seconds.median), _seconds(over.seconds.most)
    facts = (
        Fact("took", f"{median} (median of {counted(over.round_count, 'round')}; worst {worst})"),
        Fact(
            "files", f"{rounds[0].metadata_op_count:,} a checkpoint, {count_text(rates.median)}/s by all ranks together"
        ),
        Fact("unlink", f"p50 {time_text(found.p50)}, p99 {time_text(found.p99)}, max {time_text(found.max)}"),
    )
    return Section(f"Deletion of older checkpoints (keep = {keep})", facts)


def _rate(per_s: float) -> str:
    return f"{count_text(per_s)} ops/s"


def _seconds(seconds: float) -> str:
    return time_text(seconds * NS_PER_S)
