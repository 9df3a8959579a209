"""`report` on the command line: many folders, a terminal with and without colour, and a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from ckptstorm.record import files
from tests.conftest import PATIENCE_S, clean_environment
from tests.record import synthetic
from tests.record.synthetic import Make


def _folders(place: Path) -> list[str]:
    files.write(synthetic.record(Make(late={2: 5.0})), place / "one")
    files.write(synthetic.record(storm_id="20261102-120000-abcdef"), place / "two")
    return ["one", "two"]


def _on_a_terminal(place: Path, *arguments: str, **environment: str) -> str:
    """What a terminal of 80 columns is sent."""
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-P", "-m", "ckptstorm", *arguments]
        shown = {"TERM": "xterm-256color", "COLUMNS": "80"} | environment
        kept = {name: value for name, value in clean_environment().items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        with subprocess.Popen(command, stdout=theirs, cwd=place, env=kept | shown, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            theirs = -1
            sent = b""
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                sent += piece
            process.wait(PATIENCE_S)
        return sent.decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)


def test_many_folders_are_one_table(ckptstorm, place):
    """A line a storm; the JSON has the same storms; a folder that is none is told, with exit code 2."""
    ended = ckptstorm("report", *_folders(place))
    assert ended.code == 0, ended.said
    assert ended.out.startswith("2 storms\n")
    assert "\n20261102-120000 " in ended.out
    assert len(ckptstorm("report", "one", "two", "--json").data["storms"]) == 2
    assert ckptstorm("report", "one", "two", "--output", "page.html").code == 0
    assert "20261102-120000" in (place / "page.html").read_text()
    assert ckptstorm("report", "one", "two", "--html").code == 2
    ended = ckptstorm("report", "one", "two", "nowhere")
    assert ended.code == 2
    assert "there is no result folder at nowhere" in ended.out


def test_a_terminal_is_sent_colour_unless_it_says_no(ckptstorm, place):
    """The same words, coloured; plain with NO_COLOR; in a pipe no escape code at all; never beyond 80 columns."""
    _folders(place)
    coloured = _on_a_terminal(place, "report", "one")
    assert "\x1b[1;32mVALID" in coloured
    grey = _on_a_terminal(place, "report", "one", NO_COLOR="1")
    assert "32m" not in grey and "31m" not in grey and "VALID" in grey
    piped = ckptstorm("report", "one").out
    assert "\x1b" not in piped
    assert max(map(len, piped.splitlines())) <= 80
    assert "\x1b[" in _on_a_terminal(place, "size", "one")


def test_a_reader_that_goes_away_is_no_error(place):
    """`ckptstorm report | head -1` ends quietly."""
    _folders(place)
    command = f"{sys.executable} -P -m ckptstorm report one | head -1"
    ended = subprocess.run(command, shell=True, cwd=place, env=clean_environment(), capture_output=True, check=False)
    assert ended.stdout.startswith(b"ckptstorm ")
    assert ended.stderr == b""
