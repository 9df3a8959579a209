"""The expert files of DeepSpeed's MoE layers: one an expert, layer and tensor rank, by the first data rank that has it.

Traced with DeepSpeed 0.19.6. Expert-parallel neighbours hold an equal share of each layer's experts; ranks that hold
the same experts are data-parallel to one another, and the first of them writes. Everything else of the model is
in the model file, each tensor by itself. With ZeRO the states of experts lie in every rank's optimizer
file, as a group of their own; `expp_rank_*_optim_states.pt` exists without ZeRO only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_pickle import Tensor, Tree, pickle_bytes, tensors
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.shard import chunk_rows
from ckptstorm.model.tensors import ModelSpec, TensorSpec

#: What DeepSpeed's modules add to an expert tensor's name: ".deepspeed_moe.experts.deepspeed_experts." for ".experts.".
_LONGER_NAME = len("deepspeed_moe.") + len("deepspeed_")


@dataclass(frozen=True)
class Experts:
    """The experts of a model on expert-parallel ranks.

    Attributes:
        model: what is saved.
        parallel: tensor cuts an expert, expert deals them out.
    """

    model: ModelSpec
    parallel: ParallelSpec

    def held(self, expert_rank: int) -> tuple[tuple[int, int], ...]:
        """(MoE layer, expert) of each expert of an expert-parallel rank, layer by layer."""
        share = self.model.experts // self.parallel.expert
        own = range(expert_rank * share, (expert_rank + 1) * share)
        return tuple((layer, expert) for layer in range(len(self._by_layer)) for expert in own)

    def name(self, layer: int, expert: int, part: int) -> str:
        """The file of an expert; layers are counted among those that have experts."""
        return f"layer_{layer}_expert_{expert}_mp_rank_{part:02d}_model_states.pt"

    def archive(self, layer: int, expert: int, part: int) -> Archive:
        """What is in it: the expert's tensors in 2 bytes, each with a storage of its own."""
        tree: dict[str, Tensor] = {}
        for tensor in self._by_layer[layer].get(expert, ()):
            tree["n" * (len(tensor.name) + _LONGER_NAME - 1) + str(len(tree))] = Tensor(
                self._shape(tensor, part), "bf16"
            )
        return archive(self.name(layer, expert, part), tree, 0)

    def _shape(self, tensor: TensorSpec, part: int) -> tuple[int, ...]:
        shape = list(tensor.shape)
        if tensor.tensor_dim is not None:
            cut = shape[tensor.tensor_dim]
            shape[tensor.tensor_dim] = chunk_rows(cut, self.parallel.tensor, part % self.parallel.tensor)
        return tuple(shape)

    @cached_property
    def _by_layer(self) -> list[dict[int, list[TensorSpec]]]:
        """By MoE layer, by expert: its tensors."""
        layers: dict[int, dict[int, list[TensorSpec]]] = {}
        for tensor in self.model.tensors():
            if tensor.expert is not None:
                layers.setdefault(tensor.layer, {}).setdefault(tensor.expert, []).append(tensor)
        return [layers[layer] for layer in sorted(layers)]


def archive(name: str, tree: Tree, more_bytes: int) -> Archive:
    """An archive whose pickle holds `more_bytes` besides the tensors."""
    data = tuple(tensor.data_bytes for tensor in tensors(tree))
    return Archive(torch_save.stem_bytes(name), pickle_bytes(tree) + more_bytes, data)


def check_experts(scene: Scene) -> None:
    """Refuse what DeepSpeed's MoE layers are not.

    Raises:
        JobError: names the key.
    """
    if not scene.model.experts:
        raise JobError(
            f"[layout] expert_files = true: {scene.model.name} has no experts",
            "choose a model with experts (ckptstorm list models), or remove [layout] expert_files",
        )
    for key, ways, way_out in (
        ("pipeline", scene.parallel.pipeline, 1), ("context", scene.parallel.context, 1),
    ):  # fmt: skip
        if ways > 1:
            raise JobError(
                f'[parallel] {key} = {ways} beside experts is not planned for [layout] name = "deepspeed"',
                f"set [parallel] {key} = {way_out}",
            )
    if scene.sharding == "zero3":
        raise JobError(
            '[parallel] sharding = "zero3": DeepSpeed refuses its MoE layers with ZeRO-3',
            'set [parallel] sharding = "zero1" or "zero2"',
        )
