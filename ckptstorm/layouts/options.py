"""Sizes among the keys that a layout adds to [layout]: read as everywhere in a job, refused by name."""

from __future__ import annotations

from ckptstorm.errors import JobError
from ckptstorm.job_words import short
from ckptstorm.units import parse_bytes


def size_option(key: str, value: str | int) -> int:
    """Bytes of `[layout] key = value`.

    Raises:
        JobError: no size, or nothing.
    """
    hint = f'give a size such as [layout] {key} = "16MiB"'
    try:
        size = int(parse_bytes(value))
    except ValueError as error:
        raise JobError(f"[layout] {key} = {short(value)}: {error}", hint) from None
    if size == 0:
        raise JobError(f"[layout] {key} = {short(value)} is no size", hint)
    return size
