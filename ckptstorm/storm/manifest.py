"""The mark of a directory that a storm has claimed: whose it is, and all that clean-up must know."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from typing import Any

from ckptstorm.errors import PlaceError

MANIFEST = ".ckptstorm"
#: Beside it, after a save on its own: what a restore needs (`saved`).
SAVED = ".ckptstorm-saved"
_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of a marked directory.

    Attributes:
        storm_id: whose it is.
        job: the resolved job, plain values.
        rank_count: of the storm's world.
        steps: every step directory that the storm may have made, and every load's.
        host, pid: of rank 0 while it runs.
        made_count: how many levels of directories the storm made, this one included; clean-up removes them.
        seed, partial: what its payload is made from, and where it journals: what a recovery must know.
    """

    storm_id: str
    job: dict[str, Any]
    rank_count: int
    steps: tuple[str, ...]
    host: str
    pid: int
    made_count: int
    seed: int = 0
    partial: str = ""


def read(root_fd: int) -> Manifest:
    """The manifest in an open directory.

    Raises:
        OSError: there is none, or it cannot be read.
        PlaceError: it is damaged.
    """
    # O_NONBLOCK: a FIFO of that name would otherwise hold the reader for ever.
    fd = os.open(MANIFEST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root_fd)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise PlaceError(f"{MANIFEST}: damaged: not a regular file")
        raw = file.read(_BYTES_MAX)
    try:
        found = json.loads(raw)
        return Manifest(
            str(found["storm_id"]),
            dict(found["job"]),
            _between(int(found["rank_count"]), 1, 1 << 24),
            _step_names_of(found["steps"]),
            str(found["host"]),
            int(found["pid"]),
            _between(int(found["made_count"]), 0, 4096),
            _between(int(found.get("seed", 0)), 0, (1 << 63) - 1),
            str(found.get("partial", "")),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise PlaceError(f"{MANIFEST}: damaged: not what ckptstorm writes") from None


def _between(number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise ValueError("out of range")
    return number


def _step_names_of(listed: list[object]) -> tuple[str, ...]:
    """A mark may come from a stranger: only names that a storm of ours gives are ever entered."""
    names = tuple(str(name) for name in listed)
    if not all(re.fullmatch(r"step-[0-9]{1,12}|load-[a-z0-9-]{1,32}", name) for name in names):
        raise ValueError("not a step directory's name")
    return names


def to_json(manifest: Manifest) -> str:
    """The way back from `read`."""
    names = ("storm_id", "job", "rank_count", "steps", "host", "pid", "made_count", "seed", "partial")
    return json.dumps({"ckptstorm": 1} | {name: getattr(manifest, name) for name in names}, indent=1) + "\n"
