"""A fio job file as a job of ours: what its options mean here, each of the others named and refused.

fio asks one host; here every rank asks what the host would: `numjobs` becomes the threads of a rank, which share its
file (each block is still one thread's), so the span is `size` times `numjobs`. Sections that wait for one another
(`stonewall`) become loads that run one after the other; sections that run side by side are refused.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckptstorm.errors import JobError
from ckptstorm.jobfile import SIZE_CAP_BYTES, decode
from ckptstorm.record import tomltext
from ckptstorm.units import bytes_word, duration_word, parse_bytes, parse_duration

Options = dict[str, str]

#: Nothing of what we measure depends on these.
_NO_EFFECT = (
    "name", "description", "group_reporting", "thread", "randrepeat", "allrandrepeat", "create_on_open", "unlink",
    "stonewall", "wait_for_previous", "directory", "per_job_logs", "percentile_list", "clat_percentiles",
    "lat_percentiles", "disk_util", "exitall", "create_serialize",
)  # fmt: skip
_ALIASES = {
    "readwrite": "rw", "blocksize": "bs", "blocksize_range": "bsrange", "filesize": "size", "io_limit": "io_size",
    "wait_for_previous": "stonewall",
}  # fmt: skip
_ENGINES = {
    "psync": "sync",
    "sync": "sync",
    "pvsync": "sync",
    "libaio": "libaio",
    "io_uring": "io_uring",
    "mmap": "mmap",
}
_ACCESS = {
    "read": ("read", "sequential"), "write": ("write", "sequential"), "rw": ("mixed", "sequential"),
    "readwrite": ("mixed", "sequential"), "randread": ("read", "permutation"), "randwrite": ("write", "permutation"),
    "randrw": ("mixed", "permutation"),
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+)([kmgtKMGT]?)(?:i?[bB])?\Z")


class _Meaningless(ValueError):
    """An option, or a value of one, that has no meaning here; says why."""


def to_job(path: str) -> str:
    """The text of a job that asks what the fio job file asks.

    Raises:
        JobError: not a fio job file, or options without a meaning here: each is named.
    """
    sections = _sections(path)
    loads, refused = [], []
    for number, (name, options) in enumerate(sections):
        load, why = _load(name, options)
        if number and "stonewall" not in options:
            why.append("it does not wait for the section before it (stonewall): loads run one after the other")
        loads.append(load)
        refused += [f"[{name}] {reason}" for reason in why]
    if refused:
        hint = "leave out what does not matter, and write the rest as a job of ours: docs/loads.md"
        raise JobError("\n".join([f"{path}: has no meaning here: {refused[0]}", *refused[1:]]), hint)
    text = f"# What {os.path.basename(path)} asks of one host, asked of every rank. Made from a fio job file.\n\n"
    text += tomltext.tables({"storm": {"rounds": 1}, "load": loads})
    decode(text, path)  # what we write, we can read
    return text


def _sections(path: str) -> list[tuple[str, Options]]:
    """Each section with the options of [global] beneath its own."""
    parser = configparser.ConfigParser(
        delimiters=("=",), comment_prefixes=("#", ";"), allow_no_value=True, interpolation=None, strict=False,
        default_section="global",
    )  # fmt: skip
    try:
        raw = Path(path).read_bytes()
        if len(raw) > SIZE_CAP_BYTES:
            raise JobError(f"{path}: not a fio job file: larger than 1 MiB")
        parser.read_string(raw.decode("utf-8"), path)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise JobError(f"{path}: not a fio job file: {str(error).splitlines()[0]}") from None
    found = []
    for name in parser.sections():
        given = {key: "1" if value is None else value.strip() for key, value in parser.items(name)}
        found.append((name, {_ALIASES.get(key, key): value for key, value in given.items()}))
    if not found:
        raise JobError(f"{path}: no job in it: a fio job file has a section for each")
    return found


def _load(name: str, options: Options) -> tuple[dict[str, Any], list[str]]:
    """A section as a [[load]], and why it cannot be one."""
    load: dict[str, Any] = {"kind": "random", "name": _name(name)}
    why = []
    for key, value in options.items():
        if key in _NO_EFFECT:
            continue
        if key not in _MEANINGS:
            why.append(f"{key} = {value}")
            continue
        try:
            load |= _MEANINGS[key](value, options)
        except _Meaningless as error:
            why.append(f"{key} = {value}: {error}")
        except ValueError:
            why.append(f"{key} = {value}: not understood")
    if "rw" not in options:
        load |= {"access": "read", "order": "sequential"}
    if "size" not in options:
        why.append("size is missing: it says how large the files are")
    if load.get("order") == "permutation" and options.get("norandommap", "0") != "0":
        load["order"] = "uniform"
    if "runtime" in options and "time_based" not in options:
        why.append(f"runtime = {options['runtime']} without time_based: a load ends by time or by amount")
    return load, why


def _name(section: str) -> str:
    word = re.sub(r"[^a-z0-9-]+", "-", section.lower()).strip("-")[:32].strip("-")
    return word or "fio"


def _bytes(text: str) -> int:
    """fio's sizes: 4k, 1G, 4096, 1MiB; its k is 1024."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(text)
    return int(parse_bytes(match[1] + match[2]))


def _word(text: str) -> str:
    return bytes_word(_bytes(text))


def _jobs(options: Options) -> int:
    count = int(options.get("numjobs", "1"))
    if count < 1:
        raise ValueError("at least 1")
    return count


def _time(text: str) -> str:
    return duration_word(parse_duration(text if not text.isdigit() else f"{text}s"))


def _rw(value: str, options: Options) -> dict[str, Any]:
    if value not in _ACCESS:
        raise _Meaningless(f"known are {', '.join(_ACCESS)}")
    access, order = _ACCESS[value]
    percent = options.get("rwmixread", str(100 - int(options.get("rwmixwrite", "50"))))
    return {"access": access, "order": order} | ({"read_percent": int(percent)} if access == "mixed" else {})


def _block(value: str, options: Options) -> dict[str, Any]:
    parts = {_word(part) for part in value.split(",") if part}
    if len(parts) != 1:
        raise _Meaningless("one size for reads and writes alike")
    return {"block": parts.pop()}


def _range(value: str, options: Options) -> dict[str, Any]:
    least, _, most = value.partition("-")
    return {"block": f"{_word(least)}..{_word(most)}"}


def _split(value: str, options: Options) -> dict[str, Any]:
    shares = [part.partition("/") for part in value.split(":")]
    if "," in value or not all(share.isdigit() for _, _, share in shares):
        raise _Meaningless("one list of sizes with percentages")
    return {"block": {_word(size): int(share) for size, _, share in shares if int(share)}}


def _depth(value: str, options: Options) -> dict[str, Any]:
    if int(value) > 1 and options.get("ioengine", "psync") not in ("libaio", "io_uring"):
        raise _Meaningless("only libaio and io_uring keep more than one op in flight")
    return {"queue_depth": int(value)}


def _engine(value: str, options: Options) -> dict[str, Any]:
    if value not in _ENGINES:
        raise _Meaningless(f"known are {', '.join(_ENGINES)}")
    return {"mode": _ENGINES[value]}


def _distribution(value: str, options: Options) -> dict[str, Any]:
    kind, _, theta = value.partition(":")
    if kind == "zipf":
        return {"order": "zipf", "theta": float(theta or "1.1")}
    if kind != "random":
        raise _Meaningless("known are random and zipf")
    return {}


def _size(value: str, options: Options) -> dict[str, Any]:
    # A file that is named is one for all jobs; else each job has its own.
    return {"span": bytes_word(_bytes(value) * (1 if "filename" in options else _jobs(options)))}


def _amount(value: str, options: Options) -> dict[str, Any]:
    return {} if "time_based" in options else {"amount": bytes_word(_bytes(value) * _jobs(options))}


def _iops(value: str, options: Options) -> dict[str, Any]:
    return {"rate": f"{int(value) * _jobs(options)}/s", "rate_per": "rank"}


def _rate(value: str, options: Options) -> dict[str, Any]:
    return {"rate": f"{bytes_word(_bytes(value) * _jobs(options))}/s", "rate_per": "rank"}


def _flag(key: str) -> Callable[[str, Options], dict[str, Any]]:
    return lambda value, options: {key: value not in ("0", "false")}


def _unless(key: str) -> Callable[[str, Options], dict[str, Any]]:
    return lambda value, options: {key: value in ("0", "false")}


def _nothing(value: str, options: Options) -> dict[str, Any]:
    return {}


def _verify(value: str, options: Options) -> dict[str, Any]:
    return {} if value == "0" else {"verify": True}


def _only(allowed: str) -> Callable[[str, Options], dict[str, Any]]:
    def same(value: str, options: Options) -> dict[str, Any]:
        if value != allowed:
            raise _Meaningless(f"only {allowed} has a meaning here")
        return {}

    return same


#: What each option means here.
_MEANINGS: dict[str, Callable[[str, Options], dict[str, Any]]] = {
    "rw": _rw,
    "rwmixread": _nothing,
    "rwmixwrite": _nothing,
    "bs": _block,
    "bsrange": _range,
    "bssplit": _split,
    "bs_unaligned": _unless("aligned"),
    "size": _size,
    "io_size": _amount,
    "numjobs": lambda value, options: {"threads": _jobs(options)},
    "ioengine": _engine,
    "iodepth": _depth,
    "direct": _flag("direct"),
    "buffered": _unless("direct"),
    "runtime": lambda value, options: {"duration": _time(value)} if "time_based" in options else {},
    "time_based": _nothing,
    "ramp_time": lambda value, options: {"ramp": _time(value)},
    "fsync": lambda value, options: {"fsync_every": int(value)},
    "end_fsync": _flag("final_fsync"),
    "fsync_on_close": _flag("final_fsync"),
    "rate": _rate,
    "rate_iops": _iops,
    "random_distribution": _distribution,
    "norandommap": _nothing,
    "randseed": lambda value, options: {"seed": int(value) % (1 << 31)},
    "filename": _nothing,
    "nrfiles": _only("1"),
    "overwrite": _flag("prefilled"),
    "invalidate": lambda value, options: {"warm": True} if value == "0" else {},
    "refill_buffers": _nothing,
    "scramble_buffers": _nothing,
    "verify": _verify,
    "fallocate": lambda value, options: {} if value in ("native", "posix") else _only("native")(value, options),
}
