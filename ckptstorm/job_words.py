"""What the types of a job allow, and what a library says of them, in the words of people who write job files."""

from __future__ import annotations

import re
import types
import typing
from typing import Any, Literal

import msgspec

from ckptstorm.job import SizeOrAuto, SizeOrLayout
from ckptstorm.load_tables import Rate, Sizes
from ckptstorm.pacing import Rounds, Skew, Stagger
from ckptstorm.units import Bytes, Duration, Percent


def describe(kind: Any) -> str:
    """What a type allows, in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join("true" if value is True else f'"{value}"' for value in arguments)
    if origin is typing.Annotated:
        return _describe_range(arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(text for part in arguments if (text := describe(part)))
    if origin is dict:
        return "a table"
    if origin is tuple:
        return f"a list of {describe(arguments[0])}"
    if kind in (SizeOrLayout, SizeOrAuto):
        return f'"{kind.word}" or {describe(Bytes)}'
    if kind in (Rounds, Skew, Stagger):
        return str(kind.says)
    words = {Sizes: 'a size, a range "4KiB..64KiB", or a table of them with weights', Rate: '"1000/s" or "100MiB/s"'}
    words |= {
        Bytes: 'a size such as "16MiB"',
        Duration: 'a time such as "30s"',
        Percent: 'a percentage such as "80%"',
        bool: "true or false",
        str: "a text",
    }
    return words.get(kind, "a table" if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else "")


def _describe_range(arguments: tuple[Any, ...]) -> str:
    base, meta = arguments[0], arguments[1]
    if meta.pattern:
        return "a word of small letters, digits and hyphens"
    noun = "a whole number" if base is int else "a number"
    low = f" from {meta.ge}" if meta.ge is not None else f" above {meta.gt}" if meta.gt is not None else ""
    return f"{noun}{low}{f' to {meta.le:g}' if meta.le is not None and meta.le < 1 << 31 else ''}"


def in_toml_words(reason: str) -> str:
    """msgspec speaks of JSON's types; a job file is TOML."""
    reason = re.sub(r"invalid enum value '.*'", "not one of these", lower_first(reason))
    words = {"object": "a table", "array": "a list", "int": "a whole number", "float": "a number", "str": "a text"}
    words["bool"] = "true or false"
    return re.sub(r"`(\w+)( \|[^`]*|[^`]*)`", lambda match: words.get(match[1], match[1]) + match[2], reason)


def short(value: Any) -> str:
    """A value of a job file, cut where a sentence would get too long; no control characters."""
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= 60 else text[:57] + "…"


def lower_first(text: str) -> str:
    """For what a library says, in the middle of a sentence of ours."""
    return text[:1].lower() + text[1:]
