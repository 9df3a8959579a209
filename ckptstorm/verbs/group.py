"""A group of commands that is a table: a command is imported when it is called, and the help imports none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ckptstorm.registry import Entry, find, suggestion


class TableGroup(click.Group):
    """`@click.group(cls=TableGroup, table=VERBS)`: names, where their commands live, and their purposes."""

    def __init__(self, *arguments: Any, table: Mapping[str, Entry], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the table's order."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The command of that name, imported now; an unknown name is refused with the nearest one."""
        if cmd_name not in self._table:
            ctx.fail(f'there is no "{ctx.command_path} {cmd_name}"{suggestion(cmd_name, self._table)}')
        command: click.Command = find("verb", self._table, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and purposes."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, entry.purpose) for name, entry in self._table.items()])
