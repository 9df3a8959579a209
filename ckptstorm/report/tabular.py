"""The frames as CSV files or JSON lines, for spreadsheets, databases and programs without pandas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ckptstorm.errors import PlaceError
from ckptstorm.report.frame_columns import COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame

#: Rows that are turned into text at a time.
_CHUNK_ROWS = 20_000


class HasFrames(Protocol):
    """What `ckptstorm.load` and an importer return: an attribute a frame."""

    @property
    def storms(self) -> DataFrame:
        """One of the frames of `COLUMNS`; so are the others."""


def write_csv(frames: HasFrames, folder: str) -> None:
    """One file a frame, with a head line; units stand in the names of the columns.

    Raises:
        PlaceError: the folder exists, or cannot be written.
    """
    home = Path(folder)
    try:
        home.mkdir(parents=True)
        for name in COLUMNS:
            getattr(frames, name).to_csv(home / f"{name}.csv", index=False)
    except FileExistsError:
        raise PlaceError(f"{folder} exists, and nothing is written into it", "name a new folder") from None
    except OSError as error:
        raise PlaceError(f"{folder} cannot be written: {error.strerror}", "name a folder where you may write") from None


def json_lines(frames: HasFrames) -> Iterator[str]:
    """One JSON object a row; "frame" says which frame it is of. What is not a number is null."""
    for name in COLUMNS:
        frame = getattr(frames, name)
        for first in range(0, len(frame), _CHUNK_ROWS):
            text = frame.iloc[first : first + _CHUNK_ROWS].to_json(orient="records", lines=True, double_precision=15)
            lead = f'{{"frame":{json.dumps(name)},'
            yield "".join(f"{lead}{line[1:]}\n" for line in text.splitlines() if line)
