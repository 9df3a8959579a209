"""What makes two storms alike enough to be set against each other, and what differs when they are not.

The question must be the same: job, world, layout, bytes. The system may differ: that is what a comparison is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.record import StormRecord

Weight = Literal["refuses", "noted"]

#: Keys of the resolved job that change how often or how patiently is measured, or what is judged, not what is done.
_IGNORED = (
    "storm.rounds", "storm.warmup", "storm.duration", "storm.timeout", "storm.on_timeout", "storm.on_error",
    "storm.allow", "slo",
)  # fmt: skip
#: Keys that disturb what is measured on purpose: told, for they may be the very thing that is compared.
_NOTED = ("fault",)
#: What the job asked for that may have taken effect otherwise on either side.
_EFFECTS = ("io.engine", "restore.from", "io.durability", "io.block_size")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    Attributes:
        what: a key of the job, or in words.
        before, after: as text; "-" when absent.
        weight: whether it makes the storms unlike.
    """

    what: str
    before: str
    after: str
    weight: Weight

    def sentence(self) -> str:
        """ "layout.name: dcp before, deepspeed after"."""
        return f"{self.what}: {self.before} before, {self.after} after"


def differences(before: StormRecord, after: StormRecord) -> tuple[Difference, ...]:
    """All that differs, what refuses first."""
    found = [*_job(before, after), *_world(before, after), *_effects(before, after), *_bytes(before, after)]
    found += _system(before, after)
    return tuple(sorted(found, key=lambda each: each.weight != "refuses"))


def _job(before: StormRecord, after: StormRecord) -> Iterator[Difference]:
    old, new = dict(_flat(before.job)), dict(_flat(after.job))
    for key in [*old, *(key for key in new if key not in old)]:
        if _stands(key, _IGNORED) or old.get(key) == new.get(key):
            continue
        yield Difference(key, old.get(key, "-"), new.get(key, "-"), "noted" if _stands(key, _NOTED) else "refuses")


def _stands(key: str, tables: tuple[str, ...]) -> bool:
    return any(key == table or key.startswith((f"{table}.", f"{table}[")) for table in tables)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """A tree of tables as dotted keys with texts."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _flat(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value, 1):
            yield from _flat(each, f"{name}[{index}]")
    elif value not in ([], (), {}):
        yield name, str(value)


def _world(before: StormRecord, after: StormRecord) -> Iterator[Difference]:
    old, new = _placed(before), _placed(after)
    if old != new:
        yield Difference("world", old, new, "refuses")


def _placed(record: StormRecord) -> str:
    counts = sorted({node.rank_count for node in record.nodes}) or [0]
    each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{len(record.node_of_rank)} ranks on {len(record.nodes)} nodes ({each} a node)"


def _effects(before: StormRecord, after: StormRecord) -> Iterator[Difference]:
    """What took effect; the buffers' size is a property of the target, and so may differ between systems."""
    for name in _EFFECTS:
        old, new = before.asked.get(name, ("", "-"))[1], after.asked.get(name, ("", "-"))[1]
        if old != new:
            yield Difference(f"{name} in effect", old, new, "noted" if name == "io.block_size" else "refuses")


def _bytes(before: StormRecord, after: StormRecord) -> Iterator[Difference]:
    for phase in (Phase.SAVE, Phase.RESTORE):
        old, new = planned_bytes(before, phase.word), planned_bytes(after, phase.word)
        if old and new and old != new:
            weight: Weight = "noted" if _is_reshaped(before, after) else "refuses"
            yield Difference(f"bytes of a {phase.word}", f"{old:,}", f"{new:,}", weight)


def _is_reshaped(before: StormRecord, after: StormRecord) -> bool:
    """Whether the target's block size, which shapes buffered reads, differs: then bytes may, of the same job."""
    name = "io.block_size"
    return before.asked.get(name, ("", ""))[1] != after.asked.get(name, ("", ""))[1]


def planned_bytes(record: StormRecord, word: str) -> int:
    """Bytes that a measured round of a phase, or of a load's stage, was to move; 0 when there was none."""
    return max((each.planned_bytes for each in record.phases if each.word == word and each.round >= 1), default=0)


def _system(before: StormRecord, after: StormRecord) -> Iterator[Difference]:
    """What was compared: places, hosts, versions."""
    for what, keys in _FACTS.items():
        old, new = (settings.text(each.environment, *keys, default="-") for each in (before, after))
        if old != new:
            yield Difference(what, old, new, "noted")
    hosts = _hosts(before), _hosts(after)
    if hosts[0] != hosts[1]:
        yield Difference("hosts", *hosts, "noted")


def _hosts(record: StormRecord) -> str:
    names = sorted({node.host for node in record.nodes})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_FACTS = {
    "file system": ("mount", "type"),
    "mounted from": ("mount", "source"),
    "mount options": ("mount", "options"),
    "ckptstorm": ("versions", "ckptstorm"),
    "kernel": ("versions", "linux"),
    "MPI": ("versions", "mpi"),
}
