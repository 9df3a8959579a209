"""[slo]: limits on numbers of the record, by plain keys that are put together from a few words.

    [of whom_]number[_median]                          save_seconds, iops_per_node, hot-stats_ops_per_s
    [of whom_]op_quantile[_during_save|_during_restore]  write_p99, fsync_max, stat_p99_during_save

"Of whom" is save, restore, delete, or a load's name; without it the worst counts of all that have such a number. What
a key means is settled when the job is decoded: one that names nothing that this job measures is refused,
because a limit that nothing can miss says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import JobError
from ckptstorm.job import Job
from ckptstorm.load_tables import Load, RandomLoad, kind_of, name_of
from ckptstorm.program import Kind
from ckptstorm.registry import suggestion
from ckptstorm.units import parse_bytes, parse_duration, parse_rate_per_s

Unit = Literal["seconds", "bytes_per_s", "per_s", "ratio", "ns"]
Bound = Literal["at most", "at least"]
#: Who has a number: checkpoint phases, loads, both; saves only; staged saves only; metadata loads only.
Owner = Literal["phase", "load", "any", "save", "staged", "metadata"]


@dataclass(frozen=True, slots=True)
class Number:
    """A number that can be limited.

    Attributes:
        unit: of the limit.
        owner: who has it.
        meaning: in a few words.
    """

    unit: Unit
    owner: Owner
    meaning: str

    @property
    def bound(self) -> Bound:
        """Rates are to be reached, everything else is not to be exceeded."""
        return "at least" if self.unit in ("bytes_per_s", "per_s") else "at most"


NUMBERS: dict[str, Number] = {
    "seconds": Number("seconds", "any", "T: first release to last durable"),
    "commit_seconds": Number("seconds", "save", "release to the visible checkpoint"),
    "blocked_seconds": Number("seconds", "staged", "training stood still for a staged save"),
    "drain_seconds": Number("seconds", "staged", "release to durable of a staged save"),
    "backpressure_seconds": Number("seconds", "staged", "of blocked, waiting for the drain of the save before"),
    "tail_seconds": Number("seconds", "phase", "last rank done minus first"),
    "stall_gpu_seconds": Number("seconds", "phase", "all ranks' waiting together"),
    "bytes_per_s": Number("bytes_per_s", "any", "bytes of all ranks ÷ T"),
    "bytes_per_s_per_node": Number("bytes_per_s", "any", "of the slowest node that takes part"),
    "iops": Number("per_s", "any", "data ops of all ranks ÷ T"),
    "iops_over_4k": Number("per_s", "any", "those of more than 4 KiB"),
    "iops_per_node": Number("per_s", "any", "of the slowest node that takes part"),
    "ops_per_s": Number("per_s", "load", "actions of a load ÷ T"),
    "ops_per_s_per_node": Number("per_s", "load", "of the slowest node that takes part"),
    "metadata_ops_per_s": Number("per_s", "metadata", "actions of a metadata load ÷ T"),
    "metadata_ops_per_s_per_node": Number("per_s", "metadata", "of the slowest node that takes part"),
    "straggler_ratio": Number("ratio", "any", "slowest ÷ median rank"),
    "round_spread": Number("ratio", "any", "(slowest - fastest round) ÷ median round"),
}
PHASES = ("save", "restore", "delete")
QUANTILES = ("p50", "p90", "p99", "p999", "max")
DURING = ("save", "restore")
#: Words for ops that users say and the op table does not: they stand for several kinds, or for actions of loads.
ACTIONS = ("create", "exists", "miss", "list", "delete", "append", "flock")

_DURING = re.compile(r"(.+)_during_(save|restore)\Z")
_QUANTILE = re.compile(r"(.+)_(p50|p90|p99|p999|max)\Z")


@dataclass(frozen=True, slots=True)
class LoadWords:
    """A load as far as its limits go.

    Attributes:
        name: of its phases.
        kind: random or metadata.
        is_beside: whether it runs beside save and restore.
        ops: words of what it does; empty when not known (a record's).
    """

    name: str
    kind: str
    is_beside: bool
    ops: frozenset[str] = frozenset()

    def does(self, op: str) -> bool:
        """Whether it has such an op: as a whole word, or first in it ("create+write" is a create)."""
        leads = {word.partition("+")[0] for word in self.ops} | {part for word in self.ops for part in word.split("+")}
        return not self.ops or op in self.ops or op in leads


@dataclass(frozen=True, slots=True)
class Meant:
    """A key, understood.

    Attributes:
        key: as the job has it.
        whose: save, restore, delete, a load's name, or "" for the worst of all.
        number: a key of `NUMBERS`, or "" for a latency.
        op, quantile: of a latency.
        during: "save" or "restore" for a load beside it; "" else.
        is_median: of the median round, not the worst.
        unit, bound: of the limit.
    """

    key: str
    whose: str
    number: str
    op: str
    quantile: str
    during: str
    is_median: bool
    unit: Unit
    bound: Bound


def understand(key: str, load_names: Iterable[str]) -> Meant | None:
    """What a key means by its words alone; None when it is none.

    Args:
        key: of [slo].
        load_names: of the job: they hold no underscore, so the first word is one of them or not.
    """
    is_median = key.endswith("_median")
    rest, during = key.removesuffix("_median"), ""
    if match := _DURING.match(rest):
        rest, during = match[1], match[2]
    first, _, after = rest.partition("_")
    is_owner = first in (*PHASES, *load_names) and after and after not in QUANTILES  # delete_p99: of the op
    whose = first if is_owner and rest not in NUMBERS else ""
    rest = after if whose else rest
    if rest in NUMBERS and not (during and NUMBERS[rest].owner in ("phase", "save", "staged")):
        number = NUMBERS[rest]
        return Meant(key, whose, rest, "", "", during, is_median, number.unit, number.bound)
    match = _QUANTILE.match(rest)
    if match is None or is_median:
        return None
    return Meant(key, whose, "", match[1], match[2], during, is_median, "ns", "at most")


def value_of(meant: Meant, value: object) -> float:
    """The limit as a number in its unit. Raises ValueError: not a limit of that kind, or not above 0."""
    limit = float(_parsed(meant.unit, value))
    if not 0 < limit <= 1e18:
        raise ValueError(f"expected a limit above 0, found {value!r}")
    return limit


def _parsed(unit: Unit, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if unit == "ns":
        return float(parse_duration(value))
    if unit == "seconds" and isinstance(value, str):
        return parse_duration(value) / NS_PER_S
    if unit == "bytes_per_s" and not isinstance(value, float):
        return float(parse_bytes(value.removesuffix("/s") if isinstance(value, str) else value))
    if unit == "per_s" and isinstance(value, str):
        return float(parse_rate_per_s(value))
    if not is_number:
        raise ValueError(f"expected a number above 0, found {value!r}")
    return float(value)  # type: ignore[arg-type]


def check(job: Job, origin: str) -> None:
    """Refuse, by name, every limit that says nothing about this job.

    Raises:
        JobError: an unknown key, a value of another kind, or a number that this job does not measure.
    """
    loads, saves = loads_of(job), _saves(job)
    for key, value in job.slo.items():
        where = f"{origin}: [slo] {key}"
        meant = understand(key, [load.name for load in loads])
        why = _unknown_word(key, meant, loads) if meant is None or _is_unknown_op(meant, loads) else ""
        if meant is None or why:
            raise JobError(f"{where}: {why}", "every key: docs/job.md, section [slo]")
        why = _nothing_to_say(meant, job, loads, saves)
        if why:
            raise JobError(f"{where}: {why}", "leave it out, or ask for what it limits")
        try:
            value_of(meant, value)
        except ValueError as error:
            raise JobError(f"{where} = {value!r}: {error}") from None


def loads_of(job: Job) -> tuple[LoadWords, ...]:
    """The loads of a job, as far as limits go."""
    return tuple(words_of(load) for load in job.load)


def words_of(load: Load) -> LoadWords:
    """One of them."""
    kind = kind_of(load)
    if isinstance(load, RandomLoad):
        ops = {"read"} if load.access == "read" else {"write"} if load.access == "write" else {"read", "write"}
        ops |= {"fsync"} if load.fsync_every or load.final_fsync else set()
    else:
        ops = {*load.phases, *load.mix, *load.flow}
    return LoadWords(name_of(load), kind, load.when == "beside", frozenset(ops))


def keys(loads: Iterable[LoadWords]) -> Iterator[str]:
    """Keys that a job may mean, for the nearest one to a wrong one."""
    for name, number in NUMBERS.items():
        yield name
        owners = [*PHASES] if number.owner in ("phase", "any", "save") else []
        owners += [load.name for load in loads] if number.owner in ("load", "any", "metadata") else []
        yield from (f"{owner}_{name}" for owner in owners)
    words = {*(kind.word for kind in Kind), *ACTIONS, *(op for load in loads for op in load.ops)}
    for word in sorted(words):
        for quantile in QUANTILES:
            yield f"{word}_{quantile}"
            yield from (f"{word}_{quantile}_during_{phase}" for phase in DURING)


def _is_unknown_op(meant: Meant, loads: tuple[LoadWords, ...]) -> bool:
    known = {*(kind.word for kind in Kind), *ACTIONS}
    return bool(meant.op) and meant.op not in known and not any(load.ops and load.does(meant.op) for load in loads)


def _unknown_word(key: str, meant: Meant | None, loads: tuple[LoadWords, ...]) -> str:
    first, near = key.partition("_")[0], suggestion(key, keys(loads))
    names = ", ".join(load.name for load in loads) or "none"
    if "_" in key and "-" in first and first not in [load.name for load in loads]:
        return f'there is no load "{first}" (loads of this job: {names}){near}'
    if meant is None:
        return f"unknown key{near}"
    either = f' and no load "{first}" (loads of this job: {names})' if "_" in meant.op and not meant.whose else ""
    return f'there is no op "{meant.op}"{either}{near}'


def _saves(job: Job) -> bool:
    return job.saves


def _nothing_to_say(meant: Meant, job: Job, loads: tuple[LoadWords, ...], saves: bool) -> str:  # noqa: FBT001
    """Why this job has no such number; "" when it has."""
    named = [load for load in loads if load.name == meant.whose]
    if meant.whose in PHASES and not saves and not named:
        return f"this job has no {meant.whose}: it names no model"
    if meant.during:
        return _nothing_during(meant, named or list(loads))
    owner = NUMBERS[meant.number].owner if meant.number else "any"
    if owner == "staged" and not job.storm.staging:
        return 'only asynchronous saves have it: [storm] staging = "8GiB"'
    if owner in ("staged", "save", "phase") and (
        named or not saves or (meant.whose not in ("", "save") and owner != "phase")
    ):
        return "only a save has it" if owner != "phase" else "only save, restore and delete have it"
    if owner == "metadata" and not any(load.kind == "metadata" for load in named or loads):
        return 'only a load has it: [[load]] kind = "metadata"'
    if owner == "load" and (meant.whose in PHASES or not loads):
        return "only a load has it: this job has none by that name" if loads else "this job has no [[load]]"
    if meant.op and meant.whose not in PHASES and not _does(meant.op, named or loads, saves and not named):
        return f"nothing in this job makes that op: {meant.op}"
    return ""


def _nothing_during(meant: Meant, loads: list[LoadWords]) -> str:
    beside = [load for load in loads if load.is_beside]
    if not beside:
        whose = f'load "{meant.whose}"' if meant.whose else "no load"
        runs = "does not run" if meant.whose else "runs"
        return f'{whose} {runs} beside the {meant.during}: [[load]] when = "beside"'
    if meant.op and not any(load.does(meant.op) for load in beside):
        return f"no load beside the {meant.during} makes that op: {meant.op}"
    return ""


def _does(op: str, loads: Iterable[LoadWords], saves: bool) -> bool:  # noqa: FBT001
    """Checkpoints make any op of the op table; loads what they say."""
    return (saves and op in {kind.word for kind in Kind}) or any(load.does(op) for load in loads)


def limits(table: Mapping[str, object], load_names: Iterable[str]) -> list[tuple[str, Meant | None, float]]:
    """[slo] of a record: each key with what it means and its limit; None when it means nothing (any more)."""
    names, found = list(load_names), []
    for key, value in table.items():
        meant = understand(key, names)
        try:
            limit = value_of(meant, value) if meant else 0.0
        except ValueError:
            limit = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
        found.append((key, meant, limit))
    return found
