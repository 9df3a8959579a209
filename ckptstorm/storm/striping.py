"""`[layout] stripe`: what a job asks of the file system: checked before anything is made, set before the first file."""

from __future__ import annotations

import json

import msgspec

from ckptstorm.errors import JobError, PlaceError
from ckptstorm.filesystems.contract import Adapter, CannotError, NoOptions
from ckptstorm.job import Job
from ckptstorm.registry import allowed, suggestion


def check_stripe(job: Job, adapter: Adapter) -> str:
    """What is asked, when it can be had here.

    Raises:
        JobError: a key or value that the file system's adapter does not have.
        PlaceError: the file system cannot do it: what was asked, and what there is.
    """
    if job.layout.stripe is None:
        return "as the file system does by itself"
    options = _options(job.layout.stripe, adapter)
    try:
        adapter.check_options(options)
    except CannotError as error:
        raise _cannot(adapter, error) from None
    return asked(job)


def asked(job: Job) -> str:
    """The job's words, on one line: `{"count": 8}`; "" when it asks for nothing."""
    return json.dumps(job.layout.stripe) if job.layout.stripe is not None else ""


def set_stripe(job: Job, adapter: Adapter, directory: str) -> dict[str, str | int]:
    """Set it on the claimed, empty directory; returns what the file system says is in effect (nothing when not asked).

    Raises:
        PlaceError: it is refused.
    """
    if job.layout.stripe is None:
        return {}
    try:
        return adapter.prepare(directory, _options(job.layout.stripe, adapter))
    except CannotError as error:
        raise _cannot(adapter, error) from None


def _options(given: dict[str, object], adapter: Adapter) -> msgspec.Struct:
    known = adapter.Options.__struct_fields__
    for key in given:
        if key in adapter.refused:
            raise JobError(f"[layout] stripe {key}: {_there(adapter)}: {adapter.refused[key]}", "leave it out")
    if adapter.Options is NoOptions:
        raise JobError(f"[layout] stripe: {_there(adapter)} has no striping that ckptstorm can set", "leave it out")
    for key in given:
        if key not in known:
            raise JobError(
                f"[layout] stripe {key}: {_there(adapter)} has no such option{suggestion(key, known)}", allowed(known)
            )
    try:
        return msgspec.convert(given, adapter.Options)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        key = where.strip("`$.") or "stripe"
        raise JobError(
            f"[layout] stripe {key}: not what {adapter.title} takes: {problem}", "see docs/filesystems"
        ) from None


def _there(adapter: Adapter) -> str:
    """What is there, where something else may have been meant: "Lustre (10.0.0.1@tcp:/scratch at /scratch)"."""
    return f"{adapter.title} ({adapter.mount.source} at {adapter.mount.mount_point})"


def _cannot(adapter: Adapter, error: CannotError) -> PlaceError:
    return PlaceError(f"[layout] stripe cannot be set on {adapter.title}: {error.reason}", "leave it out")
