"""The files of MLPerf Storage v2.0's checkpoint workload: which rank writes which, what is in each, to the byte.

Read in DLIO (branch mlperf_storage_v2.0, 392621b, `base_checkpointing.py`), whose own formulas of a
transformer these are: six weights a layer in fp16, six flat tensors of optimizer state in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_pickle import Tensor, Tree, pickle_bytes, tensors
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.tensors import ModelSpec

Int64s = NDArray[np.int64]

#: DLIO's workload files give Llama 3 70B 128 heads, the model has 64: its key and value matrices are half as wide.
_HEADS = {"llama3-70b": 128}


@dataclass(frozen=True)
class Files:
    """The files of a model as DLIO lays them out.

    Attributes:
        model: only its constants count; DLIO has formulas of its own.
        parallel: tensor, pipeline and data; DLIO numbers ranks in that order.
        stage: ZeRO's.
    """

    model: ModelSpec
    parallel: ParallelSpec
    stage: int

    @property
    def model_parallel(self) -> int:
        """Ranks that share one copy of the model (of the optimizer, in stage 3)."""
        return self.parallel.tensor * self.parallel.pipeline

    @cached_property
    def parameter_count(self) -> int:
        """DLIO's count of the model's parameters."""
        hidden, model = self.model.hidden, self.model
        layer = 2 * hidden + sum(self._matrices)
        return 2 * model.vocab * hidden + layer * model.layers + hidden

    def files(self, rank: int) -> tuple[tuple[str, Archive], ...]:
        """(name, content) of each file of `rank`, in the order in which it saves and loads them."""
        data, part = divmod(rank, self.model_parallel)
        own = f"zero_pp_rank_{data}_mp_rank_{part}"
        layers = self.layers(part // self.parallel.tensor)
        optimizer = (f"{own}_optim_states.pt", self._optimizer)
        if self.stage == 3:
            return ((f"{own}_model_states.pt", _file_of_all(self, layers)), optimizer)
        if data > 0:
            return (optimizer,)
        if self.parallel.pipeline == 1:
            return ((f"model_{part}_model_states.pt", _file_of_all(self, layers)), optimizer)
        each = ((f"layer_{layer}-model_{part}_model_states.pt", _file_of(self, self._like(layer))) for layer in layers)
        return (*each, optimizer)

    def layers(self, pipeline: int) -> range:
        """Layers of a pipeline stage: 0 is the embedding, behind the last come the head and the last norm."""
        share, more = divmod(self.model.layers, self.parallel.pipeline)
        first = pipeline * share + min(pipeline, more) + 1
        after = first + share + (pipeline < more)
        is_last = pipeline == self.parallel.pipeline - 1
        return range(0 if pipeline == 0 else first, self.model.layers + 3 if is_last else after)

    def _like(self, layer: int) -> int:
        """A layer of the same content."""
        return 1 if 0 < layer <= self.model.layers else layer

    def classes(self) -> tuple[Int64s, Int64s, Int64s]:
        """(first rank, class by rank, how many ranks) of each set of ranks whose files have equal sizes."""
        data, part = np.divmod(np.arange(self.parallel.rank_count), self.model_parallel)
        stage = part // self.parallel.tensor
        more = self.model.layers % self.parallel.pipeline
        keys = np.stack([data == 0, stage == 0, stage == self.parallel.pipeline - 1, stage < more])
        _, first, class_of, counts = np.unique(keys, axis=1, return_index=True, return_inverse=True, return_counts=True)
        return first.astype(np.int64), class_of.reshape(-1).astype(np.int64), counts.astype(np.int64)

    @cached_property
    def _matrices(self) -> tuple[int, int, int, int]:
        """Elements of query-key-value, output, the two halves of the first feed-forward matrix, and the second."""
        hidden, model = self.model.hidden, self.model
        key_value = hidden // _HEADS.get(model.name, model.heads) * model.kv_heads
        return hidden * (hidden + 2 * key_value), hidden * hidden, 2 * hidden * model.ffn, hidden * model.ffn

    def layer(self, layer: int) -> Tree:
        """The weights of a layer on one rank, numbered; what comes out empty is left out."""
        cut = self.parallel.data if self.stage == 3 else 1
        hidden, tensor = self.model.hidden, self.parallel.tensor
        if layer in (0, self.model.layers + 1):
            counts = [hidden * self.model.vocab // tensor // cut]
        elif layer == self.model.layers + 2:
            counts = [hidden // cut]
        else:
            attention, output, up, down = (matrix // tensor // cut for matrix in self._matrices)
            counts = [hidden // cut, attention, output, hidden // cut, up, down]
        return {str(index): Tensor((count,), "fp16") for index, count in enumerate(counts) if count}

    @cached_property
    def _optimizer(self) -> Archive:
        share = self.parameter_count // self.parallel.rank_count
        counts = (share, 5 * self.model.hidden) * 3
        return _archive({str(index): Tensor((count,), "fp32") for index, count in enumerate(counts)})


@lru_cache(maxsize=64)
def _file_of(files: Files, layer: int) -> Archive:
    """The file of one layer; that of the first transformer layer stands for all of them."""
    return _archive(files.layer(layer))


@lru_cache(maxsize=64)
def _file_of_all(files: Files, layers: range) -> Archive:
    """The file of all these layers."""
    return _archive({str(layer): files.layer(layer) for layer in layers})


def _archive(tree: Tree) -> Archive:
    data = tuple(tensor.data_bytes for tensor in tensors(tree))
    return Archive(len(torch_save.OBJECT_STEM), pickle_bytes(tree), data)
