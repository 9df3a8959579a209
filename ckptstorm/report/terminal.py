"""A report in a terminal: 80 columns, readable without colour, and without having seen the tool before."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ckptstorm.record.record import StormRecord
from ckptstorm.report.parts import Fact, Line, Section, Table, Tone
from ckptstorm.report.sections import sections

#: No line is longer than this.
WIDTH = 80
_INDENT = "  "
#: Names of facts stand in a column of this width; longer ones push their text.
_NAME_WIDTH = 11
#: A number stays on the line of its unit.
_NUMBER_UNIT = re.compile(r"(\d) (?=(?:%|ns|us|ms|s|min|h|[KMGTPE]?i?B(?:/s)?|IOPS|ranks?|rounds?)(?![A-Za-z]))")
_STYLES: dict[Tone, str] = {"plain": "", "good": "bold green", "bad": "bold red", "doubt": "yellow", "quiet": "dim"}


@dataclass(frozen=True, slots=True)
class Styled:
    """One line of output and how it is meant."""

    text: str
    tone: Tone = "plain"


def render(record: StormRecord) -> str:
    """The report as plain text, each line at most `WIDTH` characters."""
    return render_sections(sections(record))


def show(page: Iterable[Section]) -> None:
    """Print any sections: in colour on a terminal (not with NO_COLOR), plain into a pipe or a file."""
    if sys.stdout.isatty():
        print_to(Console(highlight=False), page)
    else:
        sys.stdout.write(render_sections(page))


def show_record(record: StormRecord) -> None:
    """Print the report."""
    show(sections(record))


def print_to(console: Console, page: Iterable[Section]) -> None:
    """Print any sections, in colour where the console has it (not when piped, nor with NO_COLOR)."""
    for line in laid_out(page):
        console.print(Text(line.text, style=_STYLES[line.tone]), soft_wrap=True)


def laid_out(page: Iterable[Section]) -> Iterator[Styled]:
    """Any sections, line by line; those with nothing to say are left out."""
    for section in page:
        if section.blocks:
            yield from _section(section)


def render_sections(page: Iterable[Section]) -> str:
    """Any sections as plain text, each line at most `WIDTH` characters."""
    return "".join(f"{line.text}\n" for line in laid_out(page))


def _section(section: Section) -> Iterator[Styled]:
    if section.title:
        yield Styled("")
        yield Styled(_clean(section.title))
    indent = _INDENT if section.title else ""
    for block in section.blocks:
        if isinstance(block, Table):
            yield from _table(block, indent)
        elif isinstance(block, Fact):
            yield from _fact(block, indent)
        else:
            yield from _line(block, indent)


def _line(line: Line, indent: str) -> Iterator[Styled]:
    for text in _wrap(_clean(line.text), indent, indent) or [""]:
        yield Styled(text, line.tone)


def _fact(fact: Fact, indent: str) -> Iterator[Styled]:
    first = f"{indent}{_clean(fact.name):<{_NAME_WIDTH}}"
    if not first.endswith(" "):
        first += " "
    for text in _wrap(_clean(fact.text), first, indent + " " * _NAME_WIDTH):
        yield Styled(text, fact.tone)


def _table(table: Table, indent: str) -> Iterator[Styled]:
    """Columns as wide as their widest cell; the first gives way when the line gets too long."""
    cells = [tuple(_clean(cell) for cell in row) for row in (table.head, *table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.head))]
    too_wide = len(indent) + sum(widths) + 2 * (len(widths) - 1) - WIDTH
    widths[0] = max(widths[0] - max(too_wide, 0), 1)
    left = {0, *table.left}
    for number, row in enumerate(cells):
        aligned = [
            cell[:width].ljust(width) if column in left else cell[:width].rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield Styled((indent + "  ".join(aligned)).rstrip()[:WIDTH], "quiet" if number == 0 else "plain")


def _wrap(text: str, first: str, rest: str) -> list[str]:
    glued = _NUMBER_UNIT.sub("\\1\N{NO-BREAK SPACE}", text)
    wrapped = textwrap.wrap(glued, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]


def _clean(text: str) -> str:
    """Without control characters: a file's name must not be able to move the cursor or change colours."""
    return "".join(character if character.isprintable() else "?" for character in text)
