"""A batch script before it is text: one job on one site, as one storm, as a sweep, or split into two jobs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ckptstorm.batch.estimate import Estimate, estimate
from ckptstorm.batch.site import Site
from ckptstorm.batch.sweep import Point, points
from ckptstorm.errors import JobError
from ckptstorm.jobfile import find_job, read_job, shipped_jobs
from ckptstorm.model.parallel import World
from ckptstorm.plan import check_plan


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for.

    Attributes:
        job_name: a job file, or a shipped job's name.
        rank_count: ranks; None when a sweep says it.
        overrides, sweeps: --set and --sweep, as written.
        directory, results: --dir and --results; None for the site's.
        shape: one storm, a job array, or save and restore as two jobs.
        restores_on: split storms only: "other" nodes than the save's, or "any".
    """

    job_name: str
    rank_count: int | None
    overrides: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    directory: str | None = None
    results: str | None = None
    shape: Literal["storm", "sweep", "split"] = "storm"
    restores_on: Literal["other", "any"] = "other"


@dataclass(frozen=True, slots=True)
class Script:
    """All that a template needs.

    Attributes:
        asked, site: the question and the cluster.
        name: of the batch job.
        job: what `ckptstorm run` is given: an absolute path or a shipped name.
        directory, results: absolute.
        points: the storms, one unless it is a sweep.
        limit: the time limit, of the longest storm.
    """

    asked: Asked
    site: Site
    name: str
    job: str
    directory: str
    results: str
    points: tuple[Point, ...]
    limit: Estimate

    @property
    def node_count(self) -> int:
        """Nodes of the largest storm."""
        return max(point.node_count for point in self.points)

    @property
    def rank_count(self) -> int:
        """Ranks of the largest storm."""
        return max(point.rank_count for point in self.points)

    @property
    def ranks_per_node(self) -> int:
        """At most; fewer where there are not as many ranks."""
        return min(self.site.allocation.ranks_per_node, self.rank_count)


def script_of(asked: Asked, site: Site) -> Script:
    """Check the job on every world that is asked for, and put the script together.

    Raises:
        JobError: a job that cannot be on one of the worlds, a sweep that is none, no number of ranks.
    """
    swept = points(asked.sweeps, asked.rank_count, site.allocation.ranks_per_node)
    limits = []
    for point in swept:
        job, _ = read_job(asked.job_name, (*asked.overrides, *point.overrides))
        world = World(point.rank_count, min(point.rank_count, site.allocation.ranks_per_node))
        try:
            check_plan(job, world)
        except JobError as error:
            if not asked.sweeps:
                raise
            together = "keys that must change together: --sweep layout.name+parallel.sharding=dcp+fsdp2,deepspeed+zero3"
            raise JobError(f"{point.label}: {error}", f"{error.hint}\n{together}".strip()) from None
        limits.append(estimate(job, world, site))
    stem = Path(asked.job_name).stem
    return Script(
        asked,
        site,
        "storm-" + re.sub(r"[^A-Za-z0-9_.-]", "_", stem)[:40],
        _job_word(asked.job_name),
        _absolute(asked.directory or site.storage.directory),
        _absolute(asked.results or site.storage.results),
        swept,
        max(limits, key=lambda limit: limit.minutes),
    )


def _job_word(name: str) -> str:
    """A shipped job by its name, which means the same on every node; a file by its absolute path."""
    found = find_job(name)
    return found.stem if found in shipped_jobs() else str(found.absolute())


def _absolute(path: str) -> str:
    """$SCRATCH and ~ are of the user who renders the script; a batch job may start elsewhere."""
    found = os.path.expanduser(os.path.expandvars(path))
    unset = re.search(r"\$\{?[A-Za-z_]\w*", found)
    if unset:
        raise JobError(f"{path}: {unset[0].replace('{', '')} is not set here", "set it, or write the path out")
    return os.path.abspath(found)
