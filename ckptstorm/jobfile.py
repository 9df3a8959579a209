"""From the text of a job file to a `Job`, or to one sentence that says what is wrong with it and where."""

from __future__ import annotations

import errno
import re
import stat
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from ckptstorm import slo
from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import JobError
from ckptstorm.job import Job, SizeOrAuto, SizeOrLayout
from ckptstorm.job_words import describe, in_toml_words, lower_first, short
from ckptstorm.load_tables import KINDS, Rate, Sizes
from ckptstorm.pacing import Rounds, Skew, Stagger, with_rounds
from ckptstorm.program import Kind
from ckptstorm.registry import allowed, suggestion
from ckptstorm.units import Bytes, Duration, Percent, memory_percent, parse_bytes, parse_duration

#: A job of 25 lines is 1 KB; a file beyond this is something else.
SIZE_CAP_BYTES = 1 << 20
_AT = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def read_job(path: str, overrides: Iterable[str] = ()) -> tuple[Job, str]:
    """The job in a file (or a shipped job's name), and the file's text, verbatim.

    Args:
        path: a TOML file, or the name of a job that comes with the package ("laptop").
        overrides: "table.key=value" from the command line, in order.

    Raises:
        JobError: naming file, key, value, what is allowed, and the nearest name.
    """
    text = _text(find_job(path))
    return decode(text, path, overrides), text


def find_job(name: str) -> Path:
    """The file that a job's path or shipped name stands for; the path itself when there is none."""
    path = Path(name)
    if not path.exists():
        for shipped in shipped_jobs():
            if shipped.name == path.name or (shipped.stem == name):
                return shipped
    return path


def shipped_jobs() -> list[Path]:
    """The job files that come with the package (or with the source tree)."""
    package = Path(__file__).parent
    for folder in (package / "jobs", package.parent / "jobs"):
        if folder.is_dir():
            return sorted(folder.glob("*.toml"))
    return []


def decode(text: str, origin: str, overrides: Iterable[str] = ()) -> Job:
    """The job that `text` holds; `origin` names it in errors. Raises JobError."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{origin}: not TOML: {lower_first(str(error))}") from None
    except RecursionError:
        raise JobError(f"{origin}: not a job: nested too deeply") from None
    for override in overrides:
        _override(data, override)
    return from_builtins(data, origin)


def from_builtins(data: Mapping[str, Any], origin: str) -> Job:
    """The job that plain values stand for (the way back from `job.to_builtins`). Raises JobError."""
    tables = dict(data)
    _refuse_unknown_keys(tables, Job, origin, "")
    layout = tables.get("layout")
    if isinstance(layout, dict):
        tables["layout"] = _with_options_apart(layout)
    if isinstance(tables.get("storm"), dict):
        tables["storm"] = with_rounds(tables["storm"])
    try:
        job = msgspec.convert(tables, Job, dec_hook=_decode_unit)
    except msgspec.ValidationError as error:
        raise JobError(*_value_sentence(str(error), data, origin)) from None
    _check_sizes(job, origin)
    _check_faults(job, origin)
    slo.check(job, origin)
    return job


def _text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise JobError(f"{path}: not a job file: {'a directory' if stat.S_ISDIR(mode) else 'not a regular file'}")
        with path.open("rb") as file:
            raw = file.read(SIZE_CAP_BYTES + 1)
    except FileNotFoundError:
        names = [shipped.stem for shipped in shipped_jobs()]
        hint = f"jobs that come with ckptstorm: {', '.join(names)}" if names else ""
        raise JobError(f"{path}: no such job file{suggestion(path.stem, names)}", hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise JobError(f"{str(path)!r}: cannot be read: {reason}") from None
    if len(raw) > SIZE_CAP_BYTES:
        raise JobError(f"{path}: not a job file: larger than 1 MiB")
    try:
        return raw.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise JobError(f"{path}: not UTF-8 text: byte 0x{raw[error.start]:02x} at offset {error.start}") from None


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if parts[0] == "load" and equals and all(parts) and len(parts) in (2, 3):
        _load_of(data, parts, override)[parts[-1]] = _toml_value(value.strip())
        return
    most = 3 if parts[:2] == ["restore", "parallel"] else 2
    if not equals or not all(parts) or len(parts) > most:
        raise JobError(f"--set {override}: not an override", "write it as --set table.key=value: --set model.layers=2")
    table: Any = data
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise JobError(f"--set {override}: [{part}] is not a table in this job")
    table[parts[-1]] = _toml_value(value.strip())


def _load_of(data: dict[str, Any], parts: list[str], override: str) -> dict[str, Any]:
    """The load that "load.key" (of the only one) or "load.name.key" means."""
    listed = data.get("load")
    loads = [load for load in listed if isinstance(load, dict)] if isinstance(listed, list) else []
    names = [str(load.get("name", load.get("kind", ""))) for load in loads]
    wanted = parts[1] if len(parts) == 3 else names[0] if len(names) == 1 else ""
    if names.count(wanted) != 1:
        raise JobError(
            f"--set {override}: which load?{suggestion(wanted, names)}",
            f"write it as --set load.name.key=value; loads of this job: {', '.join(names) or 'none'}",
        )
    return loads[names.index(wanted)]


def _toml_value(text: str) -> Any:
    """The value as TOML reads it; a bare word is a string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def _with_options_apart(layout: dict[str, Any]) -> dict[str, Any]:
    own = {"name", "overwrite", "stripe"}
    options = {key: value for key, value in layout.items() if key not in own}
    return {key: value for key, value in layout.items() if key in own} | {"options": options}


def _refuse_unknown_keys(data: Mapping[str, Any], table: type, origin: str, where: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(table)}
    for key, value in data.items():
        if key not in fields:
            raise JobError(*_unknown_key(key, list(fields), origin, where))
        if key == "layout":
            continue  # its other keys are the layout's own, which the layout checks
        inner = fields[key]
        element = typing.get_args(inner)[0] if typing.get_origin(inner) is tuple else inner
        for entry in value if isinstance(value, list) else [value]:
            struct = _struct_of(element, entry)
            if struct is not None and isinstance(entry, dict):
                plain = {own: entry[own] for own in entry if own != struct.__struct_config__.tag_field}
                _refuse_unknown_keys(plain, struct, origin, f"{where}.{key}" if where else key)


def _struct_of(found: Any, entry: Any) -> type[msgspec.Struct] | None:
    """The struct that an entry stands for: of several, the one that its kind names; None when it is no table."""
    if typing.get_origin(found) in (typing.Union, types.UnionType):
        kind = entry.get("kind") if isinstance(entry, Mapping) else None
        found = KINDS.get(kind) if isinstance(kind, str) else None
    return found if isinstance(found, type) and issubclass(found, msgspec.Struct) else None


def _unknown_key(key: str, fields: list[str], origin: str, where: str) -> tuple[str, str]:
    if not where:
        homes = [field.encode_name for field in msgspec.structs.fields(Job) if key in _keys_of(field.type)]
        home = f"; it belongs into [{homes[0]}]" if homes else suggestion(key, fields)
        return f'{origin}: unknown table or key "{key}"{home}', allowed(f"[{name}]" for name in fields)
    return f"{origin}: [{where}] {key}: unknown key{suggestion(key, fields)}", allowed(fields)


def _keys_of(table: Any) -> set[str]:
    if isinstance(table, type) and issubclass(table, msgspec.Struct):
        return {field.encode_name for field in msgspec.structs.fields(table)}
    return set()


def _decode_unit(target: type, value: Any) -> Any:
    if target is Bytes:
        return parse_bytes(value)
    if target is Duration:
        return parse_duration(value)
    if target is Percent:
        return memory_percent(value)
    if target in (Rounds, Skew, Stagger, Sizes, Rate):
        return target.parse(value)
    if target in (SizeOrLayout, SizeOrAuto):
        return target(0 if value == target.word else parse_bytes(value))
    raise NotImplementedError(f"a job has no {target.__name__}")


def _value_sentence(error: str, data: Mapping[str, Any], origin: str) -> tuple[str, str]:
    match = _AT.search(error)
    path = [name or f"[{index}]" for name, index in _STEP.findall(match["path"])] if match else []
    reason = in_toml_words(_AT.sub("", error))
    if not path:
        return f"{origin}: {reason}", ""
    field_type, value = _follow(path, data)
    head = 2 if path[:2] == ["restore", "parallel"] else 1
    key = f"[{'.'.join(path[:head])}] {' '.join(path[head:])}".strip()
    key = re.sub(r"^\[(fault|load)\] \[", r"[[\1]] entry [", key)
    says = describe(field_type)
    shown = "" if value is _NOTHING else f" = {short(value)}"
    return f"{origin}: {key}{shown}: {reason}", f"allowed: {says}" if says else ""


_NOTHING = object()


def _follow(path: list[str], data: Any) -> tuple[Any, Any]:
    """The type that the job has at `path`, and the value that the file has there."""
    found: Any = Job
    for step in path:
        struct = _struct_of(found, data)
        if struct is not None:
            if step == struct.__struct_config__.tag_field:
                return Literal[tuple(KINDS)], data.get(step, _NOTHING)
            found = next((f.type for f in msgspec.structs.fields(struct) if f.encode_name == step), None)
        elif typing.get_origin(found) is tuple:
            found = typing.get_args(found)[0]
        if isinstance(data, Mapping):
            data = data.get(step, _NOTHING)
        elif isinstance(data, list) and step[1:-1].isdigit() and int(step[1:-1]) < len(data):
            data = data[int(step[1:-1])]
        else:
            data = data if step == "[...]" else _NOTHING
    return found, data


def _check_sizes(job: Job, origin: str) -> None:
    """Sizes below a page would turn a checkpoint into billions of requests; a time-out below a second is none."""
    for key, size, least in (("coalesce", job.io.coalesce, 4096), ("transfer", job.io.transfer, 4096)):
        if size and (size < least or size % least):
            raise JobError(f"{origin}: [io] {key} = {int(size)}: not a multiple of {least}", 'allowed: 0, or "64MiB" …')
    if job.io.block_size and not 512 <= job.io.block_size <= 1 << 30:
        raise JobError(
            f"{origin}: [io] block_size = {int(job.io.block_size)}: no block size", 'allowed: "512" to "1GiB"'
        )
    if job.storm.timeout < NS_PER_S:
        raise JobError(f"{origin}: [storm] timeout: shorter than a second", 'allowed: "1s" and longer')


def _check_faults(job: Job, origin: str) -> None:
    kinds = [kind.word for kind in Kind]
    for number, fault in enumerate(job.fault, 1):
        where = f"{origin}: [[fault]] {number}"
        ends = [word for word in ("errno", "kill", "stop") if getattr(fault, word) is not None]
        if len(ends) > 1 or not (ends or fault.delay is not None):
            raise JobError(
                f'{where}: delay = "4s" or one of errno = "EIO", kill = true, stop = true is needed',
                f"this one has {' and '.join(ends)}" if ends else "this one has none of them",
            )
        if fault.op not in kinds:
            raise JobError(f'{where} op = "{fault.op}": no such op{suggestion(fault.op, kinds)}', allowed(kinds))
        if fault.errno is not None and fault.errno not in errno.errorcode.values():
            near = suggestion(fault.errno, errno.errorcode.values())
            raise JobError(f'{where} errno = "{fault.errno}": no such errno{near}', 'allowed: "EIO", "ENOSPC" …')
        if fault.round is not None and fault.round > job.storm.rounds:
            raise JobError(f"{where} round = {fault.round}: the job has only {job.storm.rounds} measured rounds")
