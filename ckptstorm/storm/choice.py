"""Which checkpoint a framework would go on from: read from what it left in the directory, and from nothing else.

Frameworks that keep one file for the newest checkpoint (`latest`, Megatron's tracker) overwrite it in place;
here it lies in each step directory. The newest one there is stands for the only one that the framework has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ckptstorm.layouts.contract import Pointer
from ckptstorm.payload import Payload
from ckptstorm.program import STEP, Path
from ckptstorm.storm import removal

#: Of a pointer file so much is compared with what a round would have written.
_LOOKED_AT_BYTES = 1 << 20
#: whole: it holds what the save of that round wrote. torn: it stands there and does not. absent: it does not.
State = Literal["whole", "torn", "absent"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that may be there.

    Attributes:
        number: the round that saved it.
        step: its directory.
        pointer: in which state what names it is ("absent" for a layout that has nothing of the kind).
    """

    number: int
    step: str
    pointer: State


@dataclass(frozen=True, slots=True)
class Choice:
    """What a framework would do.

    Attributes:
        candidates: newest first.
        chosen: index of the one it would take; -1: it would find none.
        why: one phrase.
    """

    candidates: tuple[Candidate, ...]
    chosen: int
    why: str

    def order(self) -> list[int]:
        """In which order they would be tried: the chosen one, then all others from the newest on."""
        first = [self.chosen] if self.chosen >= 0 else []
        return first + [index for index in range(len(self.candidates)) if index != self.chosen]


def choose(
    root_fd: int, places: list[tuple[int, str]], pointer: Pointer | None, payload: Callable[[int], Payload]
) -> Choice:
    """Look into the directory.

    Args:
        root_fd: of the directory under test.
        places: (round, step directory) of every save that may have been begun, newest first.
        pointer: what the layout has to name a checkpoint.
        payload: the content of a round's files.
    """
    there = [(number, step) for number, step in places if removal.is_real_directory(root_fd, step)]
    candidates = tuple(Candidate(n, step, _state(root_fd, step, pointer, payload(n))) for n, step in there)
    if not candidates:
        return Choice((), -1, "no step directory is there")
    if pointer is None:
        return Choice(candidates, 0, "the layout has no pointer: the newest directory is taken")
    if pointer.kind == "tracker":
        return _by_tracker(candidates, pointer)
    shared = len({one.step for one in candidates}) < len(candidates)
    for index, one in enumerate(candidates):
        # A marker counts by standing there; only where rounds share a directory must its content tell which it is of.
        if one.pointer == "whole" or (one.pointer == "torn" and not shared):
            return Choice(candidates, index, f"{pointer.name} stands in {one.step}")
    return Choice(candidates, -1, f"no directory has a {pointer.name} that was finished")


def _by_tracker(candidates: tuple[Candidate, ...], pointer: Pointer) -> Choice:
    for index, one in enumerate(candidates):
        if one.pointer == "whole":
            return Choice(candidates, index, f"{pointer.name} names {one.step}")
        if one.pointer == "torn" and not any(
            other.step == one.step and other.pointer == "whole" for other in candidates
        ):
            return Choice(candidates, -1, f"{pointer.name} was cut off while it was written over: it names nothing")
    return Choice(candidates, -1, f"there is no {pointer.name}")


def _state(root_fd: int, step: str, pointer: Pointer | None, payload: Payload) -> State:
    if pointer is None:
        return "absent"
    try:
        fd = os.open(f"{step}/{pointer.name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        return "absent"
    with os.fdopen(fd, "rb") as file:
        content = np.frombuffer(file.read(_LOOKED_AT_BYTES), dtype=np.uint8).copy()
    if not len(content) or (pointer.size_bytes and len(content) < min(pointer.size_bytes, _LOOKED_AT_BYTES)):
        return "torn"
    image = payload.image(Path(STEP, pointer.name, 0))
    return "torn" if image.check(content, 0, pointer.name) is not None else "whole"
