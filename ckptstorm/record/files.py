"""The result folder: written whole or not at all, and read as data from strangers.

    job.toml    the job, verbatim
    storm.json  the summary for people and programs (`storm_json`), and what is text in the record
    storm.h5    the arrays (`arrays`): phase rows, histograms, clock table

The journal of a storm that did not come to its end (`journal`) is read in the same way.
A folder grows under a temporary name beside its final one and is renamed when complete, so a
reader never meets half of it. storm.json holds the SHA-256 of storm.h5: a damaged file is refused
before the HDF5 library reads a byte of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ckptstorm.errors import PlaceError
from ckptstorm.record import arrays, last_words, stormjson
from ckptstorm.record.record import StormRecord

JOB_NAME, JSON_NAME, H5_NAME = "job.toml", "storm.json", "storm.h5"
#: Beyond any real storm: 100,000 ranks and a hundred rounds need a tenth of it.
LIMITS_BYTES: dict[str, int] = {JOB_NAME: 1 << 20, JSON_NAME: 256 << 20, H5_NAME: 4 << 30}
_CHUNK_BYTES = 1 << 20
_PHASE_NAME = re.compile(r"phase-[0-9]{5,9}")


def phase_name(number: int) -> str:
    """The folder of a journalled phase, counted from 1."""
    return f"phase-{number:05}"


def phase_folders(folder: Path) -> list[Path]:
    """The journalled phases in a folder, in order."""
    named = [inner for inner in folder.iterdir() if _PHASE_NAME.fullmatch(inner.name)] if folder.is_dir() else []
    return sorted(named, key=lambda inner: int(inner.name.partition("-")[2]))


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
    """Read a result folder, or the journal of a storm that did not come to its end.

    Args:
        folder: what a storm left.
        leave_out: names of `arrays.PARTS` that are not wanted: they read as if they had not been gathered.

    Raises:
        PlaceError: a file is missing, damaged, cut off, too large, of a newer version, or lies.
    """
    home = Path(folder)
    if not home.is_dir():
        raise PlaceError(f"{home} is no result folder", "a result folder holds job.toml, storm.json and storm.h5")
    record = _load_one(home, leave_out)
    try:
        later = [_load_one(inner, leave_out) for inner in phase_folders(home)]
        said = [name for name in (last_words.NAME, last_words.FOREBODING) if os.path.lexists(home / name)]
    except OSError as error:
        raise _damaged(home, error.strerror or str(error)) from error
    if any(one.storm_id != record.storm_id for one in later):
        raise _damaged(home, "it holds phases of another storm")
    if later:
        phases = (*record.phases, *(phase for one in later for phase in one.phases))
        record = replace(record, phases=phases, environment=later[-1].environment)
    return replace(record, ended_because=_last_words(home / said[0])) if said else record


def _last_words(path: Path) -> str:
    _check_file(path, last_words.LIMIT_BYTES)
    try:
        return last_words.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _load_one(home: Path, leave_out: Collection[str]) -> StormRecord:
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


def _check_file(path: Path, limit_bytes: int = 0) -> None:
    """A regular file of bearable size (a FIFO would hold the reader for ever)."""
    try:
        found = path.stat()
    except OSError as error:
        raise PlaceError(
            f"{path} cannot be read: {error.strerror}", "a result folder holds job.toml, storm.json and storm.h5"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise _damaged(path, "it is no regular file")
    if found.st_size > (limit_bytes or LIMITS_BYTES[path.name]):
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
