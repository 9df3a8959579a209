"""What a job means on a given world: its model, how ranks cut it, and the layout that was asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from ckptstorm.errors import JobError
from ckptstorm.job import Job, ParallelTable
from ckptstorm.job_words import describe, in_toml_words, short
from ckptstorm.layouts import LAYOUTS
from ckptstorm.layouts.contract import Layout, LayoutOptions, Pointer, Reader, Scene
from ckptstorm.model.parallel import ParallelSpec, World
from ckptstorm.model.tensors import ModelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.registry import allowed, find, suggestion
from ckptstorm.steps import Calls, Facts


@dataclass(frozen=True, slots=True)
class Sides:
    """The two worlds of a job: the first ranks of the MPI world, which is as large as the larger of them.

    Attributes:
        save, restore: who saves, who restores.
        is_same: whether both cut the model alike, so that a rank's shard is what some rank saved.
    """

    save: World
    restore: World
    is_same: bool


def sides_of(job: Job, world: World) -> Sides:
    """Who saves and who restores.

    Raises:
        JobError: the MPI world is not the larger of both.
    """
    target = job.restore.parallel
    save = job.parallel.ranks or world.rank_count
    restore = target.ranks or save
    most = max(save, restore)
    if job.parallel.ranks is None and restore > world.rank_count:
        raise JobError(
            f"[restore.parallel] ranks = {restore}: there are only {world.rank_count} ranks",
            f"start {restore} ranks, and say with [parallel] ranks = {world.rank_count} how many of them save",
        )
    if most != world.rank_count:
        key, said = ("restore.parallel", restore) if restore > save else ("parallel", save)
        raise JobError(
            f"[{key}] ranks = {said}: this job needs {most} ranks (the larger of save and restore),"
            f" and there are {world.rank_count}",
            f"start {most} ranks, or change [{key}] ranks",
        )
    cut = _restoring(job)
    is_same = msgspec.structs.replace(cut, ranks=save) == msgspec.structs.replace(job.parallel, ranks=restore)
    return Sides(world.first(save), world.first(restore), is_same)


def _restoring(job: Job) -> ParallelTable:
    """[parallel] as it holds for the restore."""
    target = job.restore.parallel
    given = {key: value for key in target.__struct_fields__ if (value := getattr(target, key)) is not None}
    if given.get("sharding", "hsdp") != "hsdp":
        given.setdefault("replicas", 1)
    return msgspec.structs.replace(job.parallel, **given)


def scene_of(job: Job, world: World) -> Scene:
    """Model and parallelism of a job's save.

    Raises:
        JobError: the model cannot be resolved, or cannot be cut like this.
    """
    return _scene(job, job.parallel, sides_of(job, world).save, "parallel")


def restore_scene_of(job: Job, world: World) -> Scene:
    """Model and parallelism of a job's restore. Raises as `scene_of`."""
    return _scene(job, _restoring(job), sides_of(job, world).restore, "restore.parallel")


def _scene(job: Job, cut: ParallelTable, world: World, key: str) -> Scene:
    model = resolve(job.model)
    parallel = _parallel(cut, world, key)
    _check_cut(cut, model, key)
    return Scene(model, parallel, cut.sharding, job.layout.overwrite, cut.replicas)


def layout_of(job: Job, world: World) -> Layout:
    """The job's layout, checked; the same object for the same question.

    Raises:
        JobError: no such layout, an option that it does not have, or a scene that it cannot express.
    """
    return _layout(job.layout.name, scene_of(job, world), options_of(job))


def reader_of(job: Job, world: World) -> Reader:
    """How the job's ranks restore: the layout itself, or its reader in another world.

    Raises:
        JobError: as `layout_of`; or the framework does not restore such a checkpoint in that world.
    """
    sides, layout = sides_of(job, world), layout_of(job, world)
    if sides.is_same:
        return layout
    return _reader(job.layout.name, scene_of(job, world), options_of(job), restore_scene_of(job, world))


def options_of(job: Job) -> LayoutOptions:
    """The layout's own keys, as the layout has them.

    Raises:
        JobError: no such layout, or no such option.
    """
    kind = find("layout", LAYOUTS, job.layout.name)
    return _options(job.layout.name, kind.Options, job.layout.options)


def pointer_of(job: Job) -> Pointer | None:
    """What the job's layout has to name a complete checkpoint; None when it has nothing of the kind."""
    kind = find("layout", LAYOUTS, job.layout.name)
    pointer: Pointer | None = getattr(kind, "pointer", None)
    return pointer


def facts_of(job: Job, block_size_bytes: int) -> Facts:
    """What lowering must know: [io], and the target's `st_blksize` unless [io] block_size replaces it."""
    return Facts(
        block_size_bytes=int(job.io.block_size) or block_size_bytes,
        durability=job.io.durability,
        transfer_bytes=int(job.io.transfer),
        calls=calls_of(job),
    )


def calls_of(job: Job) -> Calls:
    """Whose calls move the data: those of the library that the engine is named after, or the kernel's."""
    if job.io.engine == "torch":
        return "torch"
    name = {"mpiio": "mpi", "hdf5": "h5"}.get(job.io.engine)
    if name is None:
        return "posix"
    return f"{name}_all" if job.io.mode == "collective" else name  # type: ignore[return-value]


@lru_cache(maxsize=4)
def _layout(name: str, scene: Scene, options: LayoutOptions) -> Layout:
    layout: Layout = find("layout", LAYOUTS, name)(scene, options)
    layout.check()
    return layout


@lru_cache(maxsize=4)
def _reader(name: str, scene: Scene, options: LayoutOptions, target: Scene) -> Reader:
    return _layout(name, scene, options).resharded(target)


def _options(name: str, kind: type[LayoutOptions], given: dict[str, Any]) -> LayoutOptions:
    known = kind.__struct_fields__
    for key in given:
        if key not in known:
            raise JobError(
                f'[layout] {key}: layout "{name}" has no such option{suggestion(key, known)}',
                allowed(known) if known else f'"{name}" has no options',
            )
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        key = where.strip("`$.").split("[")[0]
        takes = describe(next(field.type for field in msgspec.structs.fields(kind) if field.encode_name == key))
        raise JobError(
            f'[layout] {key} = {short(given.get(key))} is not what layout "{name}" takes: {in_toml_words(problem)}',
            f"allowed: {takes}" if takes else "see docs/job.md for the options of each layout",
        ) from error


def _parallel(asked: ParallelTable, world: World, table: str) -> ParallelSpec:
    taken = asked.tensor * asked.pipeline * asked.context * asked.expert
    if world.rank_count % taken:
        named = " x ".join(
            f"{key} = {getattr(asked, key)}"
            for key in ("tensor", "pipeline", "context", "expert")
            if getattr(asked, key) > 1
        )
        raise JobError(
            f"[{table}] {named} does not divide the {world.rank_count} ranks",
            f"start a multiple of {taken} ranks, or choose factors of {world.rank_count}",
        )
    if asked.replicas > 1 and asked.sharding != "hsdp":
        raise JobError(
            f'[{table}] replicas = {asked.replicas} means nothing to sharding = "{asked.sharding}"',
            f'set [{table}] sharding = "hsdp", or remove [{table}] replicas',
        )
    return ParallelSpec(asked.tensor, asked.context, asked.expert, world.rank_count // taken, asked.pipeline)


def _check_cut(asked: ParallelTable, model: ModelSpec, table: str) -> None:
    if model.architecture == "opaque":
        for key in ("tensor", "pipeline", "context", "expert"):
            if getattr(asked, key) > 1:
                raise JobError(
                    f"[{table}] {key} = {getattr(asked, key)} means nothing beside [model] shard_bytes",
                    f"remove [{table}] {key}: every rank saves its {model.shard_bytes} bytes",
                )
        return
    if asked.pipeline > model.layer_count:
        raise JobError(
            f"[{table}] pipeline = {asked.pipeline} is more than the {model.layer_count} layers of {model.name}",
            f"choose pipeline from 1 to {model.layer_count}",
        )
    if model.heads % asked.tensor or (model.kv_heads % asked.tensor and asked.tensor % max(model.kv_heads, 1)):
        raise JobError(
            f"[{table}] tensor = {asked.tensor} does not divide the {model.heads} heads"
            f" ({model.kv_heads} key-value heads) of {model.name}",
            f"choose tensor among the divisors of {model.heads}",
        )
    if asked.expert > 1 and (model.experts == 0 or model.experts % asked.expert):
        raise JobError(
            f"[{table}] expert = {asked.expert} does not divide the {model.experts} experts of {model.name}",
            f"choose expert among the divisors of {model.experts}" if model.experts else f"set [{table}] expert = 1",
        )
