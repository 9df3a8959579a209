"""Programs that a test puts on PATH: each answers exactly the calls that it was told of, and refuses all others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"

_PROGRAM = """#!{python}
import json, sys
known = json.loads({table!r})
asked = " ".join(sys.argv[1:])
with open({calls!r}, "a") as calls:
    calls.write({name!r} + " " + asked + "\\n")
if asked not in known:
    sys.exit({name!r} + ": unexpected arguments: " + asked)
code, text = known[asked]
(sys.stderr if code else sys.stdout).write(text)
sys.exit(code)
"""


class Fakes:
    """A folder of fake programs, and what was asked of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder / ".calls"
        folder.mkdir(exist_ok=True)

    def add(self, name: str, answers: dict[str, str]) -> None:
        """A program that answers calls: from its arguments, joined by blanks, to a recorded file's name.

        An answer that begins with "!" is an error: the program prints the rest, and fails.
        """
        table = {
            asked: (1, text[1:]) if text.startswith("!") else (0, recorded(text)) for asked, text in answers.items()
        }
        program = self.folder / name
        program.write_text(
            _PROGRAM.format(python=sys.executable, table=json.dumps(table), calls=str(self._calls), name=name)
        )
        program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """All calls so far, with the program's name."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []


def recorded(name: str) -> str:
    """What a recorded file holds; "" for no name."""
    return (RECORDED / name).read_text() if name else ""
