"""The packed environment: one archive with what a rank needs, for nodes that then import nothing from a shared disk.

Only what ckptstorm depends on is packed, by the records of the installed packages: the analyst's and the
developer's packages in the same environment stay behind. The archive unpacks into a virtual environment that works
wherever it lies; it needs the same Python below (the path in its pyvenv.cfg) on every node.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ckptstorm.errors import PlaceError

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
#: An MPI of the environment's own goes along where there is one; a cluster's comes from its modules.
_OF_OUR_OWN = ("ckptstorm", "mpich")


@dataclass(frozen=True, slots=True)
class Packed:
    """What was packed.

    Attributes:
        path: the archive.
        packages: names, sorted.
        file_count, bytes: in it.
    """

    path: str
    packages: tuple[str, ...]
    file_count: int
    bytes: int


def pack(path: str) -> Packed:
    """Write the archive (a plain tar: `sbcast --compress` and modern networks do the rest).

    Raises:
        PlaceError: this Python is no virtual environment, or the file cannot be written.
    """
    prefix = Path(sys.prefix)
    if sys.prefix == sys.base_prefix or not (prefix / "pyvenv.cfg").is_file():
        raise PlaceError(
            f"{sys.prefix} is no virtual environment",
            "install ckptstorm into one (python3 -m venv), or pack a conda environment with conda-pack",
        )
    packages = _closure()
    growing = f"{path}.growing-{os.getpid()}"
    try:
        with tarfile.open(growing, "x") as archive:
            _add_interpreter(archive, prefix)
            count = 0
            for inside in sorted({file for name in packages for file in _files(name, prefix)}):
                archive.add(prefix / inside, str(inside), recursive=False)
                count += 1
        os.replace(growing, path)
    except OSError as error:
        if os.path.exists(growing):
            os.unlink(growing)
        raise PlaceError(f"{path}: cannot be written: {error.strerror}") from None
    return Packed(path, tuple(packages), count, os.stat(path).st_size)


def _closure() -> list[str]:
    """Installed packages that ckptstorm needs, by what each one says of itself; optional parts are left behind."""
    found: set[str] = set()
    left = list(_OF_OUR_OWN)
    while left:
        name = left.pop()
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of another platform, or optional
            continue
        key = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
        if key not in found:
            found.add(key)
            left += [
                match[0] for one in package.requires or () if "extra ==" not in one and (match := _NAME.match(one))
            ]
    return sorted(found)


def _files(package: str, prefix: Path) -> Iterator[Path]:
    """Its files, as paths inside the environment; what lies outside of it stays outside."""
    for file in metadata.distribution(package).files or ():
        path = Path(os.path.normpath(str(file.locate())))
        if path.is_relative_to(prefix) and path.exists():
            yield path.relative_to(prefix)


def _add_interpreter(archive: tarfile.TarFile, prefix: Path) -> None:
    archive.add(prefix / "pyvenv.cfg", "pyvenv.cfg")
    for name in ("python", "python3"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, os.path.realpath(sys.executable), 0o777
        archive.addfile(link)
