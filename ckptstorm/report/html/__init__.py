"""report.html: one file that a browser opens without a network, made of the same sections as the terminal's report."""

from __future__ import annotations

#: Its name in a result folder.
HTML_NAME = "report.html"
