"""Tables of plug-ins: plain dictionaries from a name to where it lives, loaded on first use.

A table is read top to bottom by people, so it keeps its order. A plug-in whose library is
missing breaks only itself: nothing is imported before its name is asked for.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ckptstorm.errors import JobError


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table.

    Attributes:
        location: "package.module:attribute".
        purpose: one line for `ckptstorm list`.
        source: where the facts behind it come from (a framework's release, a paper); may be empty.
    """

    location: str
    purpose: str
    source: str = ""


def find(kind: str, table: Mapping[str, Entry], name: str) -> Any:
    """The object that `name` stands for in `table`.

    Raises:
        JobError: no such name; says what there is, and the nearest.
    """
    if name not in table:
        raise JobError(f'there is no {kind} "{name}"{suggestion(name, table)}', allowed(table))
    module_name, _, attribute = table[name].location.partition(":")
    return getattr(importlib.import_module(module_name), attribute)


def suggestion(name: str, names: Iterable[str]) -> str:
    """'; did you mean "x"?' when something is near, else ''."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def allowed(names: Iterable[str]) -> str:
    """'allowed: a, b, c'."""
    return f"allowed: {', '.join(names)}"
