"""Which server holds which file: asked of the file system after the first measured save, by the ranks that wrote."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from typing import Any

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.filesystems.contract import CannotError
from ckptstorm.storm.crew import Crew

#: Above this many files a sample of them is asked for: each may cost a program of the file system's.
FILES_MOST = 10_000
#: A rank asks for no longer than this: placement is told after a storm, not waited for.
_PATIENCE_NS = 30 * NS_PER_S
#: The largest file of a rank is sought among so many.
_LARGEST_OF = 64
#: A file that lies on more targets than these lies everywhere: none of them is to blame for it alone.
_STRIPES_MOST = 4


def placement(crew: Crew, step: str) -> dict[str, Any]:
    """The files of a step and their targets; a collective of all ranks, of meaning on rank 0 only.

    Returns:
        "file_count", "asked_count", "targets" {name: {"files", "bytes"}}, "details" of the first file, and "map":
        rank, file, indices into the names of "targets"; or "cannot", the reason why nothing is told.
    """
    told = crew.cluster.texts_on_rank_0(json.dumps(_own(crew, step)))
    ranks = [json.loads(text) for text in told]
    reasons = [each["cannot"] for each in ranks if "cannot" in each]
    files = [(rank, *file) for rank, each in enumerate(ranks) for file in each["files"]]
    if not files:
        return {"cannot": reasons[0]} if reasons else {}
    names = sorted({name for *_, targets, _ in files for name in targets})
    index = {name: number for number, name in enumerate(names)}
    held: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for _, _, size, targets, _ in files:
        for name in targets:
            held[name] += size // len(targets)
        there.update(set(targets))
    return {
        "file_count": sum(each["file_count"] for each in ranks),
        "asked_count": len(files),
        "targets": {name: {"files": there[name], "bytes": held[name]} for name in names},
        "details": files[0][-1],
        "map": [[rank, file, [index[name] for name in targets]] for rank, file, _, targets, _ in files],
    }


def _own(crew: Crew, step: str) -> dict[str, Any]:
    """This rank's files: name, size, targets, and how they are cut."""
    folder = os.path.join(crew.directory, step)
    there = [name for name in crew.plan.created if os.path.exists(os.path.join(folder, name))]
    most = max(1, FILES_MOST // crew.cluster.rank_count)
    chosen = there[:: -(-len(there) // most)] if there else []
    files: list[tuple[str, int, tuple[str, ...], dict[str, str | int]]] = []
    until_ns = monotonic_ns() + _PATIENCE_NS
    for name in chosen:
        path = os.path.join(folder, name)
        try:
            found = crew.file_system.placement(path)
            files.append((name, os.stat(path).st_size, found.targets, found.details if not files else {}))
        except CannotError as error:
            return {"file_count": len(there), "files": files, "cannot": error.reason}
        except OSError:  # gone meanwhile: then it lies nowhere
            continue
        if monotonic_ns() > until_ns:
            break
    return {"file_count": len(there), "files": files}


def main_targets(crew: Crew, step: str) -> list[str]:
    """Which server holds the largest file of each rank in a step ("" unknown); of meaning on rank 0 only.

    A collective of all ranks, and one question to the file system on each.
    """
    return crew.cluster.texts_on_rank_0(_main_target(crew, step))


def _main_target(crew: Crew, step: str) -> str:
    folder = os.path.join(crew.orders.directory, step)
    sizes = {}
    for name in crew.plan.created[:_LARGEST_OF]:
        with contextlib.suppress(OSError):
            sizes[name] = os.stat(os.path.join(folder, name)).st_size
    if not sizes:
        return ""
    try:
        targets = crew.file_system.placement(os.path.join(folder, max(sizes, key=lambda name: sizes[name]))).targets
    except (CannotError, OSError):
        return ""
    return "+".join(sorted(targets)) if len(targets) <= _STRIPES_MOST else ""
