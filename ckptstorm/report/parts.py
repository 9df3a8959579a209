"""What a report is made of: a few kinds of blocks, laid out for a terminal or a browser by others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How a block is meant; layouts choose colours, and none carries meaning by colour alone.
Tone = Literal["plain", "good", "bad", "doubt", "quiet"]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence of its own."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what there is to say of it."""

    name: str
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of short texts; the first column is left-aligned, the others right.

    Attributes:
        head: one text a column.
        rows: as many texts each.
        left: indices of further left-aligned columns.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[int, ...] = ()


Block = Line | Fact | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A titled group of blocks; the first section of a report has no title."""

    title: str
    blocks: tuple[Block, ...]
