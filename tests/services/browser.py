"""A real browser: Debian's Chromium, headless, driven by playwright; it may reach nothing but files."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.require import missing

#: Chromium's own calls home would fill the console of a machine without a network.
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
#: A loaded machine takes seconds to unpack and draw.
_PATIENCE_MS = 60_000


@dataclass
class Tab:
    """A page in the browser.

    Attributes:
        page: playwright's.
        complaints: whatever the console warned of, exceptions, and requests for anything but the file itself.
    """

    page: Any
    complaints: list[str] = field(default_factory=list)


class Browser:
    """Opens files."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium

    @contextmanager
    def open(self, path: Path, width: int = 1280, height: int = 900) -> Iterator[Tab]:
        """A file, once its charts are drawn."""
        context = self._chromium.new_context(viewport={"width": width, "height": height})
        tab = Tab(context.new_page())
        tab.page.set_default_timeout(_PATIENCE_MS)
        tab.page.on("console", lambda said: tab.complaints.append(f"{said.type}: {said.text}"))
        tab.page.on("pageerror", lambda error: tab.complaints.append(f"raised: {error}"))
        tab.page.on("dialog", lambda dialog: tab.complaints.append(f"dialog: {dialog.message}"))
        tab.page.on("request", lambda request: _note(tab, request.url))
        try:
            tab.page.goto(path.as_uri())
            tab.page.wait_for_selector("body[data-drawn=yes]", timeout=_PATIENCE_MS)
            yield tab
        finally:
            context.close()


def _note(tab: Tab, url: str) -> None:
    if not url.startswith(("file:", "data:", "blob:")):
        tab.complaints.append(f"asked the network for {url}")


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, started and stopped; skips the test when it is not there."""
    found = shutil.which("chromium")
    if found is None or importlib.util.find_spec("playwright") is None:
        missing("chromium", "needs Debian's chromium and playwright for Python")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        try:
            yield Browser(chromium)
        finally:
            chromium.close()
