"""A page: sections and charts as one self-contained file. It asks no network, and a text in it stays text.

plotly.js travels compressed inside the page (1.4 MB instead of 4.8) and is unpacked by the browser; a browser that
cannot do that still shows every sentence and table.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ckptstorm import __version__
from ckptstorm.errors import PlaceError
from ckptstorm.report.html.chart import Chart
from ckptstorm.report.parts import Fact, Line, Section, Table

#: The first bytes of every page of ours: a file that begins otherwise is not replaced.
MARK = "<!doctype html>\n<!-- made by ckptstorm -->\n"
_NEEDS = ("jinja2", "plotly")
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A text shown as it is, folded away: the job file."""

    title: str
    text: str


Part = Section | Chart | Verbatim


@dataclass(frozen=True, slots=True)
class Page:
    """What a page holds.

    Attributes:
        title: of the browser's tab.
        parts: in reading order; the first section has no title, its first lines are the page's heading.
    """

    title: str
    parts: tuple[Part, ...]


def require() -> None:
    """Refuse at once, before a storm is run for a page that cannot be made.

    Raises:
        PlaceError: jinja2 or plotly is missing.
    """
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise PlaceError(
            f"an HTML report needs {' and '.join(missing)}, which {is_or_are} not installed",
            "pip install 'ckptstorm[report]'",
        )


def render(page: Page) -> str:
    """The whole file.

    Raises:
        PlaceError: see `require`.
    """
    require()
    import jinja2
    from markupsafe import Markup

    loader = jinja2.FileSystemLoader(_HERE)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.tests |= {name: _is_a(kind) for name, kind in _KINDS.items()}
    charts = [part for part in page.parts if isinstance(part, Chart)]
    text = environment.get_template("page.html.j2").render(
        page=page,
        charts=charts,
        version=__version__,
        css=Markup(_text("page.css")),
        script=Markup(_text("page.js")),
        library=Markup(_library()) if charts else "",
        figures=Markup(_embedded({chart.name: _views(chart) for chart in charts})),
    )
    return f"{MARK}{text}"


def write(text: str, path: Path) -> None:
    """Write a page, whole or not at all, in place of an earlier one of ours.

    Raises:
        PlaceError: it cannot be written, or a file stands there that is none of our pages.
    """
    growing = path.with_name(f".{path.name}.growing-{os.getpid()}")
    try:
        if path.exists() or path.is_symlink():
            _refuse_foreign(path)
        growing.write_text(text, encoding="utf-8")
        growing.replace(path)
    except OSError as error:
        raise PlaceError(f"{path} cannot be written: {error.strerror or error}", "choose another --output") from error
    finally:
        growing.unlink(missing_ok=True)


def _refuse_foreign(path: Path) -> None:
    is_ours = path.is_file() and not path.is_symlink()
    if is_ours:
        with path.open("rb") as file:
            is_ours = file.read(len(MARK)) == MARK.encode()
    if not is_ours:
        raise PlaceError(f"{path} exists and is no report of ckptstorm: it is left as it is", "choose another --output")


_KINDS: dict[str, type] = {
    "section": Section, "chart": Chart, "verbatim": Verbatim, "line": Line, "fact": Fact, "table": Table,
}  # fmt: skip


def _is_a(kind: type) -> Any:
    return lambda value: isinstance(value, kind)


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _views(chart: Chart) -> list[dict[str, Any]]:
    return [{"label": view.label, **view.figure} for view in chart.views]


def _embedded(value: Any) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _library() -> str:
    """plotly.js, compressed, as text; the same for the same version."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode("ascii")
