"""A resolved job's plain values as TOML text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def tables(job: dict[str, Any]) -> str:
    """Tables of keys, and lists of tables; what JSON writes of strings, numbers and lists is TOML too."""
    return "\n".join(line for name, value in job.items() for line in _table(str(name), value))


def _table(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple) and value and all(isinstance(each, dict) for each in value):
        for each in value:
            yield f"[[{_key(name)}]]"
            yield from _keys(each)
    elif isinstance(value, dict):
        yield f"[{_key(name)}]"
        yield from _keys(value)


def _keys(table: dict[str, Any]) -> Iterator[str]:
    yield from (f"{_key(str(key))} = {_value(value)}" for key, value in table.items())
    yield ""


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(str(key))} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
