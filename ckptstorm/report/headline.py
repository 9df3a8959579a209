"""The first screen: may this be believed, was it met, why not, what to do now, and what was asked."""

from __future__ import annotations

from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import (
    EXIT_INTERRUPTED,
    EXIT_LOST_RANK,
    EXIT_MET,
    EXIT_NOT_MET,
    EXIT_REFUSED,
    EXIT_STORAGE,
)
from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.rounds import RoundsSummary
from ckptstorm.record.words import counted, percent
from ckptstorm.report.beside import beside_answer
from ckptstorm.report.course import staged_answer
from ckptstorm.report.facts import Known
from ckptstorm.report.loads import load_answer, load_facts
from ckptstorm.report.parts import Block, Fact, Line, Section
from ckptstorm.units import bytes_text, rate_text, time_text

#: What each exit code means, in the words of docs/reading-a-result.md.
EXIT_MEANINGS = {
    EXIT_MET: "valid, and every limit met",
    EXIT_NOT_MET: "a limit was missed, or the record is invalid",
    EXIT_REFUSED: "the job, the command line, a result folder or the place is wrong",
    EXIT_STORAGE: "the storage failed after the first byte",
    EXIT_LOST_RANK: "a rank was lost or hung",
    EXIT_INTERRUPTED: "interrupted by a signal",
}


#: What a user can do about a client that was the limit.
_LESS_WAITING = (
    "the storage is at least this fast; to see how fast, put fewer ranks on a node, take [io] engine ="
    ' "native", or compare a share only: --set restore.verify=0.1'
)


def headline(known: Known) -> Section:
    """The verdict in words, its reasons, the answer in one or two sentences, and the next step."""
    verdict = known.verdict
    blocks: list[Block] = [Line(f"ckptstorm {known.record.storm_id}", "quiet"), _judgement(known)]
    blocks += [Fact("because", reason, "bad" if verdict.exit_code else "doubt") for reason in verdict.reasons]
    blocks += [Fact(phase.word, answer) for phase in (Phase.SAVE, Phase.RESTORE) if (answer := _answer(known, phase))]
    blocks += [Fact(name, answer) for name in known.stages() if (answer := load_answer(known, name))]
    blocks += beside_answer(known)
    durable = known.receipts["durable"]
    if durable.state == "not_asked":
        blocks.append(Fact("note", durable.evidence, "doubt"))
    blocks.append(Fact("next", _next_step(known)))
    return Section("", tuple(blocks))


def _judgement(known: Known) -> Line:
    verdict = known.verdict
    if known.is_instrument and verdict.exit_code == EXIT_MET:
        return Line("INSTRUMENT ONLY: no storage was measured (exit code 0)", "doubt")
    validity = "VALID" if verdict.valid else "INVALID"
    met = "NO LIMIT SET" if not known.limits else "EVERY LIMIT MET" if verdict.met else "LIMIT MISSED"
    code = verdict.exit_code
    meaning = f": {EXIT_MEANINGS[code]}" if code not in (EXIT_MET, EXIT_NOT_MET) else ""
    is_good = verdict.valid and verdict.met
    return Line(f"{validity} - {met} (exit code {code}{meaning})", "good" if is_good else "bad")


def _answer(known: Known, phase: Phase) -> str:
    rounds = known.over_rounds(phase)
    if rounds is None or not rounds.seconds.most:
        return ""
    if phase == Phase.SAVE and (staged := staged_answer(known)):
        return f"{staged} ({_rounds_words(rounds)})"
    ranks = len(known.record.node_of_rank)
    time = time_text(rounds.seconds.median * NS_PER_S)
    held = f"held {counted(ranks, 'GPU')} for" if phase == Phase.SAVE else "took"
    return f"{held} {time} at {rate_text(rounds.bytes_per_s.median)} ({_rounds_words(rounds)})"


def _rounds_words(rounds: RoundsSummary) -> str:
    if rounds.round_count == 1:
        return "one measured round"
    worst = time_text(rounds.seconds.most * NS_PER_S)
    sure = f" known to ± {percent(rounds.seconds.within)}" if rounds.seconds.within is not None else ""
    return f"median of {rounds.round_count} rounds{sure}; worst {worst}, spread {percent(rounds.seconds.spread)}"


def _next_step(known: Known) -> str:
    verdict = known.verdict
    if verdict.exit_code == EXIT_INTERRUPTED:
        return "run the storm again; the numbers below are of what was finished"
    if verdict.exit_code == EXIT_LOST_RANK:
        return "look at the rank, host and file named above; the numbers below are of what was finished"
    if verdict.exit_code == EXIT_STORAGE:
        return "look at the errors below and at the storage's own log for these hosts and files; then run again"
    if known.is_instrument:
        return 'run the same job with another engine ("posix") to measure the storage'
    if known.receipts["self"].state == "client_bound":
        return _LESS_WAITING
    if not verdict.valid:
        return "do not quote these numbers: remove the cause named above, and run again"
    if not verdict.met:
        return "compare the save and restore below with the limits: stragglers, latencies, receipts"
    return "keep this folder: it is what later storms are set against"


def asked(known: Known) -> Section:
    """The question: what was saved, how, by whom, onto what."""
    record, job = known.record, known.record.job
    saves = known.rounds(Phase.SAVE)
    size = f"{bytes_text(saves[0].planned_bytes or saves[0].bytes)} a save, " if saves else ""
    ranks, nodes = len(record.node_of_rank), len(record.nodes)
    world = f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}"
    layout = settings.text(job, "layout", "name", default="unknown")
    sharding = settings.text(job, "parallel", "sharding", default="unknown")
    durability = settings.text(job, "io", "durability", default="layout")
    saved = f"{_model(job)} as {layout} ({sharding}), {size}{world}"
    blocks: list[Block] = [
        Fact("saved", saved if settings.saves(record) else f"nothing: loads only, {world}"),
        *load_facts(known),
        Fact("moved by", f"engine {settings.engine_name(record)}, durability {_durability(durability)}"),
        Fact("onto", _place(known)),
    ]
    versions = settings.table(record.environment, "versions")
    if versions:
        blocks.append(Fact("with", ", ".join(f"{name} {versions[name]}" for name in versions)))
    return Section("What was asked", tuple(blocks))


def _durability(word: str) -> str:
    return "as the layout does" if word == "layout" else word


def _model(job: dict[str, object]) -> str:
    named = settings.text(job, "model", "name") or settings.text(job, "model", "architecture")
    if named:
        return named
    shard = settings.count(job, "model", "shard_bytes")
    return f"{bytes_text(shard)} a rank" if shard else "an unnamed model"


def _place(known: Known) -> str:
    environment = known.record.environment
    directory = settings.text(environment, "directory", default="an unnamed directory")
    kind = settings.mount_type(known.record) or "unknown file system"
    source = settings.text(environment, "mount", "source")
    started = settings.text(environment, "started")
    return f"{directory} ({kind}{', ' + source if source else ''}){', ' + started if started else ''}"
