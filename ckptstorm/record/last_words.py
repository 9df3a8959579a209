"""Why a storm did not come to its end, left in its journal by whoever could still say it; needs no HDF5."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

NAME = "last-words.json"
#: Who was silent, for as long as that is so: counts when nobody could say last words.
FOREBODING = "foreboding.json"
#: One sentence; beyond this it is something else.
LIMIT_BYTES = 1 << 20


class LastWords(msgspec.Struct, frozen=True):
    """One sentence."""

    because: str


def say(folder: Path, because: str) -> bool:
    """Leave the last words of a storm in its journal; False when that cannot be written, or somebody was faster."""
    growing = folder / f".{NAME}-{os.getpid()}"
    try:
        with growing.open("xb") as file:
            file.write(msgspec.json.encode(LastWords(because)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(growing, folder / NAME)  # who speaks first knows most: a rename would overwrite
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            growing.unlink()
    return True


def forebode(folder: Path, because: str) -> bool:
    """Say who may be lost, while there is time: written over by what is known later. False when that fails."""
    growing = folder / f".{FOREBODING}-{os.getpid()}"
    try:
        growing.write_bytes(msgspec.json.encode(LastWords(because)) + b"\n")
        growing.rename(folder / FOREBODING)
    except OSError:
        return False
    return True


def withdraw(folder: Path) -> None:
    """Nobody is silent any more."""
    with contextlib.suppress(OSError):
        (folder / FOREBODING).unlink()


def decode(content: bytes) -> str:
    """The sentence.

    Raises:
        ValueError: damaged.
    """
    try:
        return msgspec.json.decode(content, type=LastWords).because
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
