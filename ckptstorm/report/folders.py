"""Which result folders a path means: one, all in a folder, or those that a pattern matches."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from ckptstorm.errors import PlaceError
from ckptstorm.record.files import JSON_NAME

#: More than this is a wrong path, not a series of storms.
FOLDERS_LIMIT = 10_000


def find(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The result folders that `path` means, by name.

    A folder that is one itself is taken, else all finished ones directly in it (a journal, NAME.partial, has
    to be named), else the path is a pattern such as "results/llama3*".

    Raises:
        PlaceError: there is none.
    """
    home = Path(path)
    # os.path, not pathlib: a name that the system refuses is a name of nothing, not an error of its own.
    if os.path.exists(home / JSON_NAME):
        return (home,)
    if os.path.isdir(home):
        found = [each for each in home.iterdir() if _is_result(each) and not each.name.endswith(".partial")]
    else:
        found = [each for each in map(Path, glob.glob(os.fspath(path))) if _is_result(each)]
    if not found:
        raise PlaceError(f"there is no result folder at {path}", f"a result folder holds {JSON_NAME} and storm.h5")
    if len(found) > FOLDERS_LIMIT:
        raise PlaceError(f"{path} means {len(found):,} result folders", "take a narrower pattern")
    return tuple(sorted(found))


def _is_result(folder: Path) -> bool:
    return not folder.name.startswith(".") and (folder / JSON_NAME).exists()
