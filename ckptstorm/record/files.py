"""The result folder: written whole or not at all, and read as data from strangers.

    job.toml    the job, verbatim
    storm.json  the summary for people and programs (`storm_json`), and what is text in the record
    storm.h5    the arrays (`arrays`): phase rows, histograms, clock table

A folder grows under a temporary name beside its final one and is renamed when complete, so a
reader never meets half of it. storm.json holds the SHA-256 of storm.h5: a damaged file is refused
before the HDF5 library reads a byte of it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path

from ckptstorm.errors import PlaceError
from ckptstorm.record import arrays, stormjson
from ckptstorm.record.record import StormRecord

JOB_NAME, JSON_NAME, H5_NAME = "job.toml", "storm.json", "storm.h5"
#: Beyond any real storm: 100,000 ranks and a hundred rounds need a tenth of it.
LIMITS_BYTES = {JOB_NAME: 1 << 20, JSON_NAME: 256 << 20, H5_NAME: 4 << 30}
_CHUNK_BYTES = 1 << 20


def write(record: StormRecord, folder: str | os.PathLike[str]) -> None:
    """Write a result folder.

    Args:
        record: what to keep.
        folder: where; its parent is made when missing, and it must not exist yet.

    Raises:
        PlaceError: the folder exists, or cannot be written.
    """
    final = Path(folder)
    growing = final.parent / f".{final.name}.growing-{os.getpid()}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():
            raise PlaceError(f"{final} exists; a result is never overwritten", "choose another --results directory")
        growing.mkdir()
        _fill(record, growing)
        growing.rename(final)
    except OSError as error:
        raise PlaceError(f"{final} cannot be written: {error.strerror or error}", "choose another --results") from error
    finally:
        shutil.rmtree(growing, ignore_errors=True)


def load(folder: str | os.PathLike[str], leave_out: Collection[str] = ()) -> StormRecord:
    """Read a result folder.

    Args:
        folder: what a storm left.
        leave_out: names of `arrays.PARTS` that are not wanted: they read as if they had not been gathered.

    Raises:
        PlaceError: a file is missing, damaged, cut off, too large, of a newer version, or lies.
    """
    home = Path(folder)
    if not home.is_dir():
        raise PlaceError(f"{home} is no result folder", "a result folder holds job.toml, storm.json and storm.h5")
    json_bytes = _read_whole(home / JSON_NAME)
    told = stormjson.decode(json_bytes, str(home / JSON_NAME))
    job_text = _decoded(_read_whole(home / JOB_NAME), home / JOB_NAME)
    h5 = home / H5_NAME
    _check_file(h5)
    if _sha256(h5) != told.h5_sha256:
        raise _damaged(h5, "its checksum is not the one that storm.json names")
    tables = arrays.read(h5, len(told.nodes), leave_out)
    return stormjson.to_record(told, tables, job_text, str(home / JSON_NAME))


def _fill(record: StormRecord, growing: Path) -> None:
    (growing / JOB_NAME).write_bytes(record.job_text.encode("utf-8", "surrogateescape"))
    arrays.write(record, growing / H5_NAME)
    (growing / JSON_NAME).write_bytes(stormjson.encode(record, _sha256(growing / H5_NAME)))
    for name in LIMITS_BYTES:
        _sync(growing / name)


def _sync(path: Path) -> None:
    """A result that a power cut takes away was never written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_whole(path: Path) -> bytes:
    _check_file(path)
    try:
        with path.open("rb") as file:
            return file.read(LIMITS_BYTES[path.name])
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error


def _check_file(path: Path) -> None:
    """A regular file of bearable size (a FIFO would hold the reader for ever)."""
    try:
        found = path.stat()
    except OSError as error:
        raise PlaceError(
            f"{path} cannot be read: {error.strerror}", "a result folder holds job.toml, storm.json and storm.h5"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise _damaged(path, "it is no regular file")
    if found.st_size > LIMITS_BYTES[path.name]:
        raise _damaged(path, f"it has {found.st_size:,} bytes, more than any storm writes")


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path, f"it is not UTF-8 at byte {error.start}") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    return digest.hexdigest()


def _damaged(path: Path, why: str) -> PlaceError:
    return PlaceError(f"{path} is damaged: {why}", "copy the result folder again, or run the storm again")
