"""A chart: a figure in plotly's own terms, with its finding in words beside it; and the look that all charts share.

Figures are plain values that plotly.js draws. Every text that goes into one must pass `plain`: plotly.js takes
labels for markup, and a host's name must stay text.
"""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.report.parts import Table

Figure = dict[str, Any]

#: Colours that people with any kind of colour blindness tell apart (Okabe and Ito 2008); none carries meaning alone.
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, BLACK = (
    "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000",
)  # fmt: skip
GREY, PALE = "#6b7280", "#c7ccd4"
#: Lines of different kinds differ in dash as well as in colour.
LINES = tuple(
    (colour, dash)
    for dash in ("solid", "dash", "dot", "dashdot")
    for colour in (BLUE, VERMILION, GREEN, PURPLE, ORANGE, BLACK, SKY)
)
#: Longer labels push a chart off a phone; the whole name is in the hover.
_LABEL_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class View:
    """One of the figures that a chart can show, chosen by its label."""

    label: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows, and what is to be seen in it.

    Attributes:
        name: for links, a word.
        title: its heading.
        finding: one or two sentences with figures: enough for who cannot see the chart.
        views: the first is shown; others can be chosen.
        table: the numbers behind it, folded away; None when there are none to show.
    """

    name: str
    title: str
    finding: str
    views: tuple[View, ...]
    table: Table | None = None


def plain(text: str) -> str:
    """Text that plotly.js shows as it is: without markup, entities and control characters."""
    return html.escape("".join(each if each.isprintable() else "?" for each in text), quote=False)


def label(text: str) -> str:
    """The same, short enough for an axis."""
    short = text if len(text) <= _LABEL_CHARACTERS else f"{text[: _LABEL_CHARACTERS - 1]}…"
    return plain(short)


def packed(values: NDArray[Any], dtype: str = "f4") -> dict[str, Any]:
    """Numbers as plotly.js reads them in binary: a third of the size of text."""
    array = np.ascontiguousarray(values, dtype=f"<{dtype}")
    spec: dict[str, Any] = {"dtype": dtype, "bdata": base64.b64encode(array.tobytes()).decode("ascii")}
    if array.ndim > 1:
        spec["shape"] = ", ".join(str(length) for length in array.shape)
    return spec


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis in the common look."""
    look = {"title": {"text": title, "standoff": 8}, "gridcolor": "#e5e7eb", "linecolor": GREY, "ticks": "outside"}
    return look | {"zeroline": False, "automargin": True} | more


def figure(traces: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], height: int, **more: Any) -> Figure:
    """A figure in the common look; `height` in pixels."""
    layout = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 12, "b": 44},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1f2937"},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hovermode": "closest",
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "xaxis": x,
        "yaxis": y,
    }
    return {"data": traces, "layout": layout | more}


def segments(starts: NDArray[Any], ends: NDArray[Any], at: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Horizontal lines as one broken line: x and y with a gap after each pair."""
    gap = np.full(len(starts), np.nan)
    return np.stack([starts, ends, gap], axis=1).reshape(-1), np.repeat(at, 3)
