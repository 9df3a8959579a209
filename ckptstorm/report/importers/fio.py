"""fio's json+: every job's own time, bytes, ops and histogram; jobs of one name are the ranks of one phase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from ckptstorm.clock import NS_PER_S
from ckptstorm.report.importers.reading import json_of, not_one, text_of
from ckptstorm.report.importers.seen import BinSeen, LatencySeen, PhaseSeen, RankSeen, Seen

_TOOL = "fio"
_BASIS = "the longest job's own time, to a millisecond; jobs that started later are not seen to end later"
#: fio's histograms: 64 bins an octave; from here on a bin is wider than 1 ns. Longer than the last bin counts in it.
_EXACT_BELOW_NS, _BINS_AN_OCTAVE_BITS, _CLIPPED_NS = 128, 6, 1 << 34
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class _Latency(msgspec.Struct, frozen=True):
    max: _Natural = 0
    N: _Natural = 0
    bins: dict[str, _Natural] = {}


class _Direction(msgspec.Struct, frozen=True):
    io_bytes: _Natural
    runtime: _Natural
    total_ios: _Natural
    bw_bytes: float = 0.0
    clat_ns: _Latency = _Latency()


class _Sync(msgspec.Struct, frozen=True):
    total_ios: _Natural = 0
    lat_ns: _Latency = _Latency()


class _Job(msgspec.Struct, frozen=True):
    jobname: str
    read: _Direction
    write: _Direction
    error: int = 0
    options: dict[str, str] = msgspec.field(default_factory=dict, name="job options")
    sync: _Sync = _Sync()
    hostname: str = ""


class _Output(msgspec.Struct, frozen=True):
    version: str = msgspec.field(name="fio version")
    jobs: list[_Job] = []
    client_stats: list[_Job] = []
    time: str = ""


def read(path: str) -> tuple[Seen, ...]:
    """One run a job name of the file.

    Raises:
        PlaceError: the file is none of fio's.
    """
    file = Path(path)
    text = text_of(file, _TOOL)
    found = json_of(file, _TOOL, _Output, _json_part(text))
    jobs = found.jobs or [job for job in found.client_stats if job.jobname != "All clients"]
    names = dict.fromkeys(job.jobname for job in jobs)
    runs = [_run(name, [job for job in jobs if job.jobname == name], found, path) for name in names]
    if not any(run.phases for run in runs):
        raise not_one(file, _TOOL, "no job in it moved a byte")
    return tuple(run for run in runs if run.phases)


def _json_part(text: str) -> str:
    """Without what fio prints around it with several output formats, or as a client of servers."""
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.startswith("{")), 0)
    last = next((index for index in range(len(lines) - 1, first, -1) if lines[index].startswith("}")), len(lines))
    return "\n".join([*lines[first:last], lines[last][:1] if last < len(lines) else ""])


def _run(name: str, jobs: list[_Job], found: _Output, path: str) -> Seen:
    hosts = {job.hostname for job in jobs if job.hostname}
    asked = max(_count(job.options.get("numjobs", "1")) for job in jobs)
    is_one = asked > len(jobs)
    phases = [
        phase
        for word, side in (("save", "write"), ("restore", "read"))
        if (phase := _phase(word, side, jobs, "group" if is_one else "each")) is not None
    ]
    notes = (
        *(("group_reporting: what each job took is not told",) if is_one else ()),
        *(() if any(phase.latencies for phase in phases) else ("no histograms: --output-format=json+ has them",)),
        *(f"job {index} ended with error {job.error}" for index, job in enumerate(jobs) if job.error),
        *(("an op was longer than the 17.2 s that fio's histograms end at",) if _is_clipped(jobs) else ()),
    )
    return Seen(
        "fio",
        found.version.removeprefix("fio-"),
        f"fio:{Path(path).name}:{name}",
        path,
        max(asked, len(jobs)),
        len(hosts) or 1,
        found.time,
        tuple(phases),
        notes,
    )


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else 1


def _phase(word: str, side: str, jobs: list[_Job], detail: str) -> PhaseSeen | None:
    parts: list[_Direction] = [getattr(job, side) for job in jobs]
    moved = sum(part.io_bytes for part in parts)
    if not moved:
        return None
    longest_s = max(part.runtime for part in parts) / 1000
    told = tuple(
        RankSeen(index, part.runtime / 1000, jobs[index].hostname, part.io_bytes, int(jobs[index].error != 0))
        for index, part in enumerate(parts)
    )
    syncs = [job.sync.lat_ns for job in jobs if job.sync.total_ios] if side == "write" else []
    latencies = [_latency(side, [part.clat_ns for part in parts]), _latency("fsync", syncs)]
    return PhaseSeen(
        word,
        1,
        longest_s or None,
        _BASIS,
        tool_bytes_per_s=sum(part.bw_bytes for part in parts),
        bytes=moved,
        data_op_count=sum(part.total_ios for part in parts),
        first_done_s=min(part.runtime for part in parts) / 1000 if detail == "each" else None,
        error_count=sum(job.error != 0 for job in jobs),
        ranks=told if detail == "each" else (),
        latencies=tuple(each for each in latencies if each is not None),
    )


def _latency(kind: str, tables: list[_Latency]) -> LatencySeen | None:
    counts: dict[int, int] = {}
    for table in tables:
        for value, count in table.bins.items():
            if value.isdecimal() and len(value) < 16 and count:
                counts[int(value)] = counts.get(int(value), 0) + count
    if not counts:
        return None
    bins = tuple(_bin(value, counts[value]) for value in sorted(counts))
    return LatencySeen(kind, bins, max(table.max for table in tables))


def _bin(middle_ns: int, count: int) -> BinSeen:
    """fio names a bin by its middle: half of its width lies on either side."""
    if middle_ns < _EXACT_BELOW_NS:
        return BinSeen(middle_ns, middle_ns, count)
    width_ns = 1 << (middle_ns.bit_length() - 1 - _BINS_AN_OCTAVE_BITS)
    return BinSeen(middle_ns - width_ns // 2, middle_ns - width_ns // 2 + width_ns - 1, count)


def _is_clipped(jobs: list[_Job]) -> bool:
    seen = [table for job in jobs for table in (job.read.clat_ns, job.write.clat_ns, job.sync.lat_ns)]
    assert NS_PER_S * 17 < _CLIPPED_NS
    return any(table.max >= _CLIPPED_NS for table in seen)
