"""The layer files of DeepSpeed's pipeline modules: one a layer and tensor rank, written by the first data rank.

Traced with DeepSpeed 0.19.6. Layer 0 is the embedding; behind the last layer come the last norm and the head,
each a layer of its own. A load lists the directory once for every layer, and reads two files of each: the first
that fits the layer's name, to look at it, and its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_pickle import Tensor, pickle_bytes, tensors
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.shard import chunk_rows
from ckptstorm.model.tensors import ModelSpec, TensorSpec

#: A layer's state dict is an OrderedDict in a class of its own: so much more than a plain one.
_ORDERED_BYTES = 3


@dataclass(frozen=True)
class Layers:
    """A model as layers that pipeline stages deal out.

    Attributes:
        model: what is saved.
        parallel: tensor and pipeline.
    """

    model: ModelSpec
    parallel: ParallelSpec

    def stage(self, tensor: TensorSpec) -> int:
        """The pipeline stage that holds a tensor; the first stages have one layer more if they do not come out even."""
        if tensor.stage != "layer":
            return 0 if tensor.stage == "first" else self.parallel.pipeline - 1
        share, more = divmod(self.model.layer_count, self.parallel.pipeline)
        long = more * (share + 1)
        return tensor.layer // (share + 1) if tensor.layer < long else more + (tensor.layer - long) // share

    def numbers(self, stage: int) -> tuple[int, ...]:
        """Layers of a stage, ascending."""
        return tuple(number for number, held in self._held.items() if self.stage(held[0]) == stage)

    def name(self, number: int, tensor_rank: int) -> str:
        """The file of a layer; without tensor parallelism it has no word for that."""
        where = f"model_{tensor_rank:02d}-" if self.parallel.tensor > 1 else ""
        return f"layer_{number:02d}-{where}model_states.pt"

    def files(self, stage: int, tensor_rank: int) -> tuple[tuple[str, Archive], ...]:
        """(name, content) of each layer of a stage."""
        return _files(self, stage, tensor_rank)

    def archive(self, number: int, tensor_rank: int) -> Archive:
        """What is in it: every tensor in 2 bytes, in a storage of its own, under its name in the layer."""
        tree = {}
        for tensor in self._held[number]:
            shape = list(tensor.shape)
            if tensor.tensor_dim is not None:
                shape[tensor.tensor_dim] = chunk_rows(shape[tensor.tensor_dim], self.parallel.tensor, tensor_rank)
            tree[_local(tensor)] = Tensor(tuple(shape), "bf16")
        data = tuple(tensor.data_bytes for tensor in tensors(tree))
        stem = torch_save.stem_bytes(self.name(number, tensor_rank))
        return Archive(stem, pickle_bytes(tree) + _ORDERED_BYTES, data)

    @cached_property
    def _held(self) -> dict[int, list[TensorSpec]]:
        """Tensors of each layer, by its number."""
        held: dict[int, list[TensorSpec]] = {}
        last: dict[str, int] = {}
        for tensor in self.model.tensors():
            number = 0 if tensor.stage == "first" else tensor.layer + 1
            if tensor.stage == "last":
                number = self.model.layer_count + 1 + last.setdefault(tensor.name.rpartition(".")[0], len(last))
            held.setdefault(number, []).append(tensor)
        return dict(sorted(held.items()))


@lru_cache(maxsize=1024)
def _files(layers: Layers, stage: int, tensor_rank: int) -> tuple[tuple[str, Archive], ...]:
    numbers = layers.numbers(stage)
    return tuple((layers.name(number, tensor_rank), layers.archive(number, tensor_rank)) for number in numbers)


def _local(tensor: TensorSpec) -> str:
    """A tensor's name in its layer: "model.layers.7.mlp.up_proj.weight" is "mlp.up_proj.weight" there."""
    before, found, after = tensor.name.partition(f".{tensor.layer}.")
    return after if tensor.stage == "layer" and found and before else tensor.name.rpartition(".")[2]
