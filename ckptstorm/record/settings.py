"""What a record says was asked, and where it ran, read so that a stranger's record cannot surprise its reader.

A record's job and environment are plain values from a file. A key that is absent, or holds another
type than it should, reads as its default.
"""

from __future__ import annotations

import math
from typing import Any

from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import StormRecord


def text(tree: dict[str, Any], *keys: str, default: str = "") -> str:
    """The string at `keys`; numbers are told as text."""
    value = _at(tree, keys)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if isinstance(value, str) or is_number else default


def number(tree: dict[str, Any], *keys: str, default: float = 0.0) -> float:
    """The finite number at `keys`."""
    value = _at(tree, keys)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return default
    return float(value)


def count(tree: dict[str, Any], *keys: str, default: int = 0) -> int:
    """The whole number at `keys`, not negative."""
    value = _at(tree, keys)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def flag(tree: dict[str, Any], *keys: str) -> bool:
    """Whether `true` stands at `keys`."""
    return _at(tree, keys) is True


def table(tree: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The table at `keys`, empty when there is none."""
    value = _at(tree, keys)
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def allow(record: StormRecord) -> frozenset[str]:
    """`[storm] allow`: what would else make the record invalid."""
    value = _at(record.job, ("storm", "allow"))
    return (
        frozenset(word for word in value if isinstance(word, str)) if isinstance(value, list | tuple) else frozenset()
    )


def rounds_planned(record: StormRecord) -> int:
    """The measured rounds that there must be: of a storm that ends by time or by sureness, one."""
    has_duration = text(record.job, "storm", "duration", default="0s") not in ("0", "0s")
    return 1 if has_duration else count(record.job, "storm", "rounds", default=1)


def is_staged(record: StormRecord) -> bool:
    """Whether saves were asynchronous: restored is the last one only."""
    return count(record.job, "storm", "staging") > 0


def load_kinds(record: StormRecord) -> dict[str, str]:
    """The loads that the job asks for: the name of each (its own, or its kind) with its kind."""
    kinds = {text(load, "name") or text(load, "kind"): text(load, "kind") for load in loads(record)}
    return {name: kind for name, kind in kinds.items() if name}


def has_limits(record: StormRecord) -> bool:
    """Whether the job sets any limit."""
    return bool(table(record.job, "slo"))


def planned_in_half(record: StormRecord, phase: str, planned: int) -> int:
    """Measured rounds that this phase was to have: as many as planned, or as a half storm can have."""
    return count(record.environment, "halves", "planned", phase, default=planned)


def verify_share(record: StormRecord) -> float:
    """`[restore] verify`: the share of the reads that was to be compared, 0 to 1."""
    asked = text(record.job, "restore", "verify", default="all")
    return 1.0 if asked == "all" else min(max(number(record.job, "restore", "verify", default=1.0), 0.0), 1.0)


def rank_count(record: StormRecord, phase: Phase) -> int:
    """How many ranks take part in a phase: fewer than all when another world restores."""
    everyone = len(record.node_of_rank)
    save = count(record.job, "parallel", "ranks", default=everyone)
    restore = count(record.job, "restore", "parallel", "ranks", default=save)
    return {Phase.SAVE: save, Phase.RESTORE: restore}.get(phase, everyone)


def saves(record: StormRecord) -> bool:
    """Whether the job asks for checkpoints at all: one of loads only does not."""
    model = table(record.job, "model")
    return not loads(record) or any(key in model for key in ("name", "architecture", "shard_bytes"))


def loads(record: StormRecord) -> tuple[dict[str, Any], ...]:
    """`[[load]]`: its tables, in the order of the job."""
    value = _at(record.job, ("load",))
    return tuple(table(each) for each in value) if isinstance(value, list | tuple) else ()


def threads(record: StormRecord, load: str) -> int:
    """I/O threads of a rank in save and restore, or in that load."""
    for each in loads(record) if load else ():
        if load in (text(each, "name"), text(each, "kind")):
            return max(count(each, "threads"), 1)
    return max(count(record.job, "io", "threads"), 1)


def engine_name(record: StormRecord) -> str:
    """The engine that moved the bytes (not the one asked for, when that was "auto")."""
    took_effect = record.asked.get("io.engine", ("", ""))[1]
    named = text(record.environment, "engine", "name") or took_effect
    return named or text(record.job, "io", "engine", default="unknown")


def is_instrument(record: StormRecord) -> bool:
    """Whether no storage was touched: the record measures the tool itself."""
    return _at(record.environment, ("engine", "moves_data")) is False or engine_name(record) == "null"


def mount_type(record: StormRecord) -> str:
    """The file system type of the directory under test, as the kernel names it; "" when unknown."""
    return text(record.environment, "mount", "type")


def _at(tree: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree
