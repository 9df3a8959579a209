"""A sweep: all combinations of values that `--sweep key=a,b` names, each a storm with a result folder of its own."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckptstorm.errors import JobError

#: Slurm's default MaxArraySize is 1001.
_POINTS_MAX = 1000
_RANKS_MAX = 1 << 24
#: What ends a point: its storm was finished, or the storage's answer is its result. All else is run again.
_ENDED = ("complete", "storage_failed")


@dataclass(frozen=True, slots=True)
class Point:
    """One storm of a sweep.

    Attributes:
        label: names its result folder.
        rank_count, node_count: of its world.
        overrides: --set values of its own.
    """

    label: str
    rank_count: int
    node_count: int
    overrides: tuple[str, ...] = ()


def points(sweeps: Sequence[str], rank_count: int | None, ranks_per_node: int) -> tuple[Point, ...]:
    """All storms of a sweep in the order in which they were written, the last key changing fastest.

    Raises:
        JobError: not a sweep, the same key twice, too many points, or nobody says how many ranks.
    """
    axes = [_axis(sweep) for sweep in sweeps]
    keys = [key for names, _ in axes for key in names]
    if len(set(keys)) < len(keys):
        raise JobError(f"--sweep names {max(keys, key=keys.count)} twice", "give all its values once: --sweep key=a,b")
    if rank_count is None and "ranks" not in keys:
        raise JobError("how many ranks?", "--ranks 64, or a sweep of them: --sweep ranks=8,16,32,64")
    if rank_count is not None and "ranks" in keys:
        raise JobError("--ranks and --sweep ranks say two things", "leave one of them out")
    product = itertools.product(*(values for _, values in axes))
    combinations = [tuple(itertools.chain(*values)) for values in itertools.islice(product, _POINTS_MAX + 1)]
    if len(combinations) > _POINTS_MAX:
        raise JobError(f"--sweep makes more than {_POINTS_MAX} storms", "sweep fewer keys or values at a time")
    return tuple(_point(dict(zip(keys, values, strict=True)), rank_count, ranks_per_node) for values in combinations)


_Axis = tuple[list[str], list[tuple[str, ...]]]


def _axis(sweep: str) -> _Axis:
    """The keys of a sweep, and their values: keys that are written with a + between them change together."""
    text, equals, listed = sweep.partition("=")
    keys = [key.strip() for key in text.split("+")]
    values = [tuple(part.strip() for part in _split(value, "+" * (len(keys) > 1))) for value in _split(listed, ",")]
    is_plain = all(key == "ranks" or re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+){1,2}", key) for key in keys)
    if not equals or not is_plain or not all(len(value) == len(keys) and all(value) for value in values):
        raise JobError(
            f"--sweep {sweep}: not a sweep",
            "write a key of the job and its values: --sweep ranks=8,16,32, --sweep io.threads=1,2,4;\n"
            "keys that change together: --sweep layout.name+parallel.sharding=dcp+fsdp2,deepspeed+zero3",
        )
    if "ranks" in keys:
        at = keys.index("ranks")
        values = [(*value[:at], _rank_number(value[at], sweep), *value[at + 1 :]) for value in values]
    if len(set(values)) < len(values):
        raise JobError(f"--sweep {sweep}: a value stands there twice", "each storm of a sweep is run once")
    return keys, values


def _rank_number(text: str, sweep: str) -> str:
    if not text.isdecimal() or not 1 <= int(text) <= _RANKS_MAX:
        raise JobError(f"--sweep {sweep}: {text} is no number of ranks", f"allowed: 1 to {_RANKS_MAX}")
    return str(int(text))


def _split(text: str, separator: str) -> list[str]:
    """At the separators ("": none) that stand neither in a string nor in brackets."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "[{") - (character in "]}") if not quote else 0
        if character == separator and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _point(values: dict[str, str], rank_count: int | None, ranks_per_node: int) -> Point:
    ranks = int(values.get("ranks", rank_count or 0))
    overrides = tuple(f"{key}={value}" for key, value in values.items() if key != "ranks")
    return Point(_label(values), ranks, -(-ranks // ranks_per_node), overrides)


def _label(values: dict[str, str]) -> str:
    """A folder's name that says what varies: plain characters; what does not fit is told apart by a hash."""
    text = "+".join(f"{key}={value}" for key, value in values.items()) or "storm"
    plain = re.sub(r"[^A-Za-z0-9_.=+-]", "_", text)[:150]
    if plain == text:
        return plain
    return f"{plain}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def is_finished(results: Path, label: str) -> bool:
    """Whether a point has its result: a folder whose storm was not cut off."""
    for path in sorted(results.joinpath(label).glob("*/storm.json")):
        try:
            told = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(told, dict) and told.get("ended") in _ENDED:
            return True
    return False
