"""Who meets whom in a phase: the ranks of its world, and the groups that a framework's collectives are of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ckptstorm.cluster.comm import Cluster, Group
from ckptstorm.job import Job
from ckptstorm.measure.rows import Phase
from ckptstorm.model.parallel import ParallelSpec, World
from ckptstorm.plan import restore_scene_of, scene_of, sides_of
from ckptstorm.steps import SCOPES, Meet, RankPlan, Step
from ckptstorm.storm.phase import Groups


class Meeting:
    """Communicators of the save and of the restore; making one is a collective of all ranks."""

    def __init__(self, cluster: Cluster, job: Job, world: World, plan: RankPlan) -> None:
        self._everyone: Groups = {"world": cluster.everyone}
        self._all = world.rank_count
        self._counts: dict[Phase, int] = {}
        self._groups: dict[Phase, Groups] = {}
        if not job.saves:
            return
        sides = sides_of(job, world)
        self._counts = {Phase.SAVE: sides.save.rank_count, Phase.RESTORE: sides.restore.rank_count}
        self._counts[Phase.QUIET_SAVE] = sides.save.rank_count
        self._counts[Phase.RECOVER] = sides.restore.rank_count
        self._groups = {
            Phase.SAVE: _groups(cluster, scene_of(job, world).parallel, plan.save),
            Phase.RESTORE: _groups(cluster, restore_scene_of(job, world).parallel, plan.restore),
        }
        self._groups[Phase.QUIET_SAVE] = self._groups[Phase.SAVE]
        self._groups[Phase.RECOVER] = self._groups[Phase.RESTORE]

    def rank_count(self, phase: Phase) -> int:
        """The first so many ranks take part."""
        return self._counts.get(phase, self._all)

    def groups(self, phase: Phase) -> Groups:
        """Whom this rank meets, by scope."""
        return self._groups.get(phase, self._everyone)


def _groups(cluster: Cluster, parallel: ParallelSpec, steps: tuple[Step, ...]) -> Groups:
    """A group for each scope that some rank's steps name; of ranks outside the world, none."""
    scopes = ["world", *(step.scope for step in steps if isinstance(step, Meet))]
    wanted = cluster.greatest(np.array([scope in scopes for scope in SCOPES], dtype=np.int8))
    return dict(_made(cluster, parallel, [scope for scope, is_wanted in zip(SCOPES, wanted, strict=True) if is_wanted]))


def _made(cluster: Cluster, parallel: ParallelSpec, scopes: list[str]) -> Iterator[tuple[str, Group]]:
    is_inside = cluster.rank < parallel.rank_count
    for scope in scopes:
        if scope == "world" and parallel.rank_count == cluster.rank_count:
            yield scope, cluster.everyone
            continue
        color = 0 if scope == "world" else parallel.group_of(cluster.rank, scope) if is_inside else -1
        group = cluster.split(color if is_inside else -1)
        if group is not None:
            yield scope, group
