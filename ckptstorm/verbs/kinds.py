"""Kinds of option values that click does not know: percentages, times, and files to be written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import PlaceError
from ckptstorm.units import parse_duration, parse_percent


def percent(text: str) -> float:
    """ "5%" to 0.05; the refusal is the message."""
    try:
        return parse_percent(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class FiniteRange(click.FloatRange):
    """A number in a range, and a number: click lets "nan" through every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click does, without what is no number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


def seconds(text: str) -> float:
    """ "5min" to 300.0; the refusal is the message."""
    try:
        return parse_duration(text) / NS_PER_S
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def write_new(path: str, pieces: Iterable[str]) -> None:
    """Write a text file, piece by piece, that must not exist yet: nothing of the user's is ever overwritten.

    Raises:
        PlaceError: it exists, or cannot be written.
    """
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.writelines(pieces)
    except FileExistsError:
        raise PlaceError(f"{path} exists, and is not overwritten", "name a new file, or remove it first") from None
    except OSError as error:
        raise PlaceError(f"{path} cannot be written: {error.strerror}", "name a file where you may write") from None
