"""From a job to any one rank's steps: pure, and computed by the rank that needs it."""

from __future__ import annotations

from ckptstorm.job import Job
from ckptstorm.loads import check_loads
from ckptstorm.model.parallel import World
from ckptstorm.restore_source import check_restore, restore_note, restore_source
from ckptstorm.scene import facts_of, layout_of, reader_of, restore_scene_of, scene_of, sides_of
from ckptstorm.steps import RankPlan
from ckptstorm.totals import OpTotals, Totals, totals

__all__ = [
    "OpTotals", "Totals", "World", "check_plan", "created_files", "facts_of", "plan", "restore_note",
    "restore_scene_of", "restore_source", "scene_of", "sides_of", "totals",
]  # fmt: skip


def plan(job: Job, world: World, rank: int) -> RankPlan:
    """All that `rank` does in one round.

    Costs O(tensors of the model + files that the framework itself touches), whatever the world's size.
    A rank outside the world of a phase has no steps in it.

    Raises:
        JobError: as `check_plan`.
    """
    assert 0 <= rank < world.rank_count
    if not job.saves:
        return RankPlan(rank, (), ())
    sides, layout = sides_of(job, world), layout_of(job, world)
    is_saver, is_restorer = rank < sides.save.rank_count, rank < sides.restore.rank_count
    return RankPlan(
        rank=rank,
        save=layout.save(rank) if is_saver else (),
        restore=reader_of(job, world).restore(restore_source(job, sides.restore, rank)) if is_restorer else (),
        created=layout.created(rank) if is_saver else (),
    )


def created_files(job: Job, world: World, rank: int) -> tuple[str, ...]:
    """Names that `rank` creates below the step directory, temporary ones included; plans nothing."""
    if not job.saves:
        return ()
    return layout_of(job, world).created(rank) if rank < sides_of(job, world).save.rank_count else ()


def check_plan(job: Job, world: World) -> None:
    """Refuse combinations of model, world, parallelism, layout and loads that cannot be.

    Raises:
        JobError: names the key, the value, what is allowed and what to do.
    """
    if job.saves:
        reader_of(job, world)
        check_restore(job, world)
    check_loads(job.load, world)
