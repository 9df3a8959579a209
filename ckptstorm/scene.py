"""What a job means on a given world: its model, how ranks cut it, and the layout that was asked for, checked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from ckptstorm.errors import JobError
from ckptstorm.job import Job
from ckptstorm.layouts import LAYOUTS
from ckptstorm.layouts.contract import Layout, LayoutOptions, Scene
from ckptstorm.model.parallel import ParallelSpec, World
from ckptstorm.model.tensors import ModelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.registry import allowed, find, suggestion
from ckptstorm.steps import Facts


def scene_of(job: Job, world: World) -> Scene:
    """Model and parallelism of a job on this world.

    Raises:
        JobError: the model cannot be resolved, or cannot be cut like this.
    """
    model = resolve(job.model)
    parallel = _parallel(job, world)
    _check_cut(job, model)
    return Scene(model, parallel, job.parallel.sharding, job.layout.overwrite, job.parallel.replicas)


def layout_of(job: Job, world: World) -> Layout:
    """The job's layout, checked; the same object for the same question.

    Raises:
        JobError: no such layout, an option that it does not have, or a scene that it cannot express.
    """
    kind = find("layout", LAYOUTS, job.layout.name)
    return _layout(job.layout.name, scene_of(job, world), _options(job.layout.name, kind.Options, job.layout.options))


def facts_of(job: Job, block_size_bytes: int) -> Facts:
    """What lowering must know: [io], and the target's `st_blksize` unless [io] block_size replaces it."""
    return Facts(
        block_size_bytes=int(job.io.block_size) or block_size_bytes,
        durability=job.io.durability,
        transfer_bytes=int(job.io.transfer),
    )


@lru_cache(maxsize=4)
def _layout(name: str, scene: Scene, options: LayoutOptions) -> Layout:
    layout: Layout = find("layout", LAYOUTS, name)(scene, options)
    layout.check()
    return layout


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
        key = where.strip("`$.")
        raise JobError(
            f'[layout] {key} = {given.get(key)!r} is not what layout "{name}" takes: {problem}',
            "see docs/job.md for the options of each layout",
        ) from error


def _parallel(job: Job, world: World) -> ParallelSpec:
    asked = job.parallel
    taken = asked.tensor * asked.pipeline * asked.context * asked.expert
    if world.rank_count % taken:
        named = " x ".join(
            f"{key} = {getattr(asked, key)}"
            for key in ("tensor", "pipeline", "context", "expert")
            if getattr(asked, key) > 1
        )
        raise JobError(
            f"[parallel] {named} does not divide the {world.rank_count} ranks",
            f"start a multiple of {taken} ranks, or choose factors of {world.rank_count}",
        )
    if asked.replicas > 1 and asked.sharding != "hsdp":
        raise JobError(
            f'[parallel] replicas = {asked.replicas} means nothing to sharding = "{asked.sharding}"',
            'set [parallel] sharding = "hsdp", or remove [parallel] replicas',
        )
    return ParallelSpec(asked.tensor, asked.context, asked.expert, world.rank_count // taken, asked.pipeline)


def _check_cut(job: Job, model: ModelSpec) -> None:
    asked = job.parallel
    if model.architecture == "opaque":
        for key in ("tensor", "pipeline", "context", "expert"):
            if getattr(asked, key) > 1:
                raise JobError(
                    f"[parallel] {key} = {getattr(asked, key)} means nothing beside [model] shard_bytes",
                    f"remove [parallel] {key}: every rank saves its {model.shard_bytes} bytes",
                )
        return
    if asked.pipeline > model.layer_count:
        raise JobError(
            f"[parallel] pipeline = {asked.pipeline} is more than the {model.layer_count} layers of {model.name}",
            f"choose pipeline from 1 to {model.layer_count}",
        )
    if model.heads % asked.tensor or (model.kv_heads % asked.tensor and asked.tensor % max(model.kv_heads, 1)):
        raise JobError(
            f"[parallel] tensor = {asked.tensor} does not divide the {model.heads} heads"
            f" ({model.kv_heads} key-value heads) of {model.name}",
            f"choose tensor among the divisors of {model.heads}",
        )
    if asked.expert > 1 and (model.experts == 0 or model.experts % asked.expert):
        raise JobError(
            f"[parallel] expert = {asked.expert} does not divide the {model.experts} experts of {model.name}",
            f"choose expert among the divisors of {model.experts}" if model.experts else "set [parallel] expert = 1",
        )
