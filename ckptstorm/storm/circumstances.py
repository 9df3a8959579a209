"""The circumstances of a storm, for its record: what was asked, what took effect, where and with what."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import ckptstorm
from ckptstorm.cluster.comm import Cluster, mpi_library
from ckptstorm.cluster.placement import Station
from ckptstorm.engines import ENGINES
from ckptstorm.filesystems import adapter_of
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.job import Job, to_builtins
from ckptstorm.model.parallel import World
from ckptstorm.record.record import Node, StormRecord
from ckptstorm.registry import find
from ckptstorm.restore_source import restore_source
from ckptstorm.storm import striping
from ckptstorm.storm.allocation import allocation
from ckptstorm.storm.check import Preflight
from ckptstorm.storm.orders import Half, Orders
from ckptstorm.storm.tested import Spread


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks of a storm.

    Attributes:
        job, job_text: resolved, and as it stands in the file.
        directory, results: --dir and --results.
        keeps_files: --keep-files.
        command: the command line, for the record.
        metrics: a file for live numbers; "" for none.
        half: what of the storm is run.
        more: further directories under test; spread: how ranks are dealt to all of them.
    """

    job: Job
    job_text: str
    directory: str
    results: str
    keeps_files: bool
    command: str
    metrics: str = ""
    half: Half = "both"
    more: tuple[str, ...] = ()
    spread: Spread = "rank"


def blank_record(
    storm_id: str, request: Request, preflight: Preflight, cluster: Cluster, stations: Sequence[Station]
) -> StormRecord:
    """The record before the first phase."""
    node_of_rank = tuple(int(node) for node in cluster.node_of_rank)
    nodes = []
    for node in range(max(node_of_rank) + 1):
        ranks = [rank for rank, at in enumerate(node_of_rank) if at == node]
        nodes.append(Node(stations[ranks[0]].host, len(ranks)))
    job = request.job
    asked = {
        "io.engine": (job.io.engine, preflight.engine),
        "io.block_size": (_word(job.io.block_size, "auto"), str(preflight.block_size_bytes)),
        "io.durability": (job.io.durability, job.io.durability),
        "restore.from": (job.restore.from_, _reader(job, cluster)),
    }
    if job.layout.stripe is not None:
        asked["layout.stripe"] = (striping.asked(job), striping.asked(job))
    return StormRecord(
        storm_id,
        to_builtins(job),
        request.job_text,
        asked,
        _environment(request, preflight) | {"allocation": allocation(os.environ, stations)},
        tuple(nodes),
        node_of_rank,
        (),
    )


def _word(size: int, word: str) -> str:
    return str(int(size)) if size else word


def _reader(job: Job, cluster: Cluster) -> str:
    if job.restore.from_ != "auto":
        return job.restore.from_
    return "other-node" if len(set(cluster.node_of_rank.tolist())) > 1 else "own"


def _environment(request: Request, preflight: Preflight) -> dict[str, Any]:
    mount = preflight.mount
    packages = ("numpy", "mpi4py", "h5py", "msgspec")
    versions = {name: metadata.version(name) for name in packages}
    versions |= {"ckptstorm": ckptstorm.__version__, "python": platform.python_version(), "linux": platform.release()}
    versions["mpi"] = mpi_library()
    return {
        "engine": {"name": preflight.engine, "moves_data": find("engine", ENGINES, preflight.engine).moves_data},
        "mount": {
            "type": mount.type,
            "source": mount.source,
            "path": mount.mount_point,
            "options": mount.options,
            "block_size_bytes": mount.block_size_bytes,
            "size_bytes": mount.size_bytes,
            "free_bytes": mount.free_bytes,
            "inode_count": mount.inode_count,
            "free_inode_count": mount.free_inode_count,
            "fragment_bytes": mount.fragment_bytes,
        },
        "file_system": _file_system(preflight),
        "directory": os.path.abspath(request.directory),
        "command": request.command,
        "versions": versions,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpu_count": os.cpu_count() or 0,
        "prefix": sys.prefix,
    }


def directories(orders: Orders, cluster: Cluster) -> dict[str, Any]:
    """Of several directories under test: each with its mount, its facts, and the ranks that write into it."""
    if not orders.more:
        return {}
    own = [orders.own_index(rank, node) for rank, node in enumerate(cluster.node_of_rank.tolist())]
    world = World(cluster.rank_count, tuple(int(node) for node in cluster.node_of_rank))
    source = [own[restore_source(orders.job, world, rank) % len(own)] for rank in range(len(own))]
    listed = []
    for one in orders.tested:
        adapter = adapter_of(one.mount)
        facts = asdict(adapter.facts(one.directory))
        told = {"adapter": adapter.name, "title": adapter.title, **facts}
        listed.append({"directory": one.directory, "mount": asdict(one.mount), "file_system": told})
    return {"spread": orders.spread, "directories": listed, "directory_of_rank": own, "source_of_rank": source}


def targets_of(directory: str) -> list[dict[str, Any]]:
    """The file system's targets as they are now, each with its free space."""
    try:
        return [asdict(target) for target in adapter_of(mount_of(directory)).facts(directory).targets]
    except OSError:  # a storage that has failed tells nothing any more, and the record must be written all the same
        return []


def _file_system(preflight: Preflight) -> dict[str, Any]:
    """What the file system says of itself, and what its adapter cannot do here, by name."""
    adapter = preflight.adapter
    return {"adapter": adapter.name, "title": adapter.title, **asdict(adapter.facts(preflight.mount.mount_point))}
