"""Files of strangers: bounded, regular, decoded; or one sentence that says what is wrong with them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from ckptstorm.errors import PlaceError

#: The output of a run of 100,000 ranks is far below it.
LIMIT_BYTES = 256 << 20

Shape = TypeVar("Shape")


def text_of(path: Path, tool: str) -> str:
    """The whole file as text.

    Raises:
        PlaceError: it is not there, no regular file, too large, or no text.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise not_one(path, tool, "it is no regular file")
        if found.st_size > LIMIT_BYTES:
            raise not_one(path, tool, f"it has {found.st_size:,} bytes, more than any run writes")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise PlaceError(f"{path} cannot be read: {error.strerror}", f"name what {tool} wrote") from None
    except UnicodeDecodeError as error:
        raise not_one(path, tool, f"it is not UTF-8 at byte {error.start}") from None


def json_of(path: Path, tool: str, shape: type[Shape], text: str | None = None) -> Shape:
    """The file's JSON, converted to `shape` (a msgspec structure; fields that it does not name are passed over).

    Raises:
        PlaceError: as `text_of`; or no JSON, or not of that shape.
    """
    try:
        return msgspec.json.decode(text_of(path, tool) if text is None else text, type=shape, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise not_one(path, tool, why) from None


def not_one(path: Path, tool: str, why: str) -> PlaceError:
    """The refusal of a file that is none of that tool's."""
    return PlaceError(f"{path} is no {tool} result: {why}", "ckptstorm import result --help names what each kind reads")
