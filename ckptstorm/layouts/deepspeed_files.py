"""The files of a DeepSpeed ZeRO checkpoint: names, what is in each, and how large it is; of any rank, in closed form.

Sizes of tensors are those of DeepSpeed 0.19.6, traced: flat buffers padded to 2 elements for each data
rank (stages 1 and 2; the padding is saved too), or every tensor cut into equal padded parts (stage 3).
Sizes of pickles are laws: they hold names and settings, KBs beside GBs. For Llama's names they are within 1 % of
its model files (other ways of nesting modules: 20 %), and give each rank's optimizer file the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.deepspeed_experts import Experts
from ckptstorm.layouts.deepspeed_layers import Layers
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.tensors import ModelSpec

Int64s = NDArray[np.int64]

WEIGHT_BYTES, STATE_BYTES, SCALAR_BYTES = 2, 4, 4
#: ZeRO-3 keeps fp32 states in sub-groups of this many elements of a rank (its `sub_group_size`).
SUB_GROUP_ELEMENTS = 10**9
# Each param costs its entries in the state dict, in the shapes, and in the modules' metadata, its name
# three to four times; from about the 25th on, memo entries of the pickle take five bytes and not two.
_MODEL_PICKLE, _MODEL_ENTRY, _MODEL_NAME, _MODEL_LATE, _LATE_FROM = 900, 115, 3.1, 37, 25
# A rank's optimizer file names the params that its partition touches; K / d and one that is cut, on average.
_OPTIMIZER_PICKLE, _OPTIMIZER_ENTRY, _OPTIMIZER_LATE, _OPTIMIZER_LATE_FROM = 1360, 28, 6, 50
#: A second group, that of the experts, with its settings and mappings; its entries are in the average.
_OPTIMIZER_GROUP = 750
_STAGE_3_PICKLE, _SUB_GROUP_ENTRY = 1000, 250
# With layer files the model file holds the shapes of its params and the settings.
_SETTINGS_PICKLE, _SETTINGS_ENTRY = 773, 22


@dataclass(frozen=True)
class Files:
    """The files of a model under ZeRO.

    Attributes:
        model: what is saved.
        parallel: tensor and pipeline make DeepSpeed's model parallelism; all else is data.
        stage: 1, 2 or 3.
        precision: of the weights; in the names.
        experts: "files": experts are DeepSpeed's own, each in files of its own; "plain": weights like others.
    """

    model: ModelSpec
    parallel: ParallelSpec
    stage: int
    precision: Literal["bf16", "fp16"]
    experts: Literal["files", "plain"] = "plain"

    @cached_property
    def part_count(self) -> int:
        """Model-parallel ranks."""
        return self.parallel.tensor * self.parallel.pipeline

    @cached_property
    def data_count(self) -> int:
        """Data ranks: those that share the optimizer of one model-parallel rank."""
        return self.parallel.rank_count // self.part_count

    @property
    def has_layers(self) -> bool:
        """Whether weights are in files of their layers."""
        return self.parallel.pipeline > 1

    def place(self, rank: int) -> tuple[int, int]:
        """(data rank, model-parallel rank); neighbours differ in tensor, then data, then pipeline."""
        rest, tensor = divmod(rank, self.parallel.tensor)
        pipeline, data = divmod(rest, self.data_count)
        return data, pipeline * self.parallel.tensor + tensor

    def rank_of(self, data: int, part: int) -> int:
        """The rank that stands there."""
        pipeline, tensor = divmod(part, self.parallel.tensor)
        return (pipeline * self.data_count + data) * self.parallel.tensor + tensor

    def expert_place(self, rank: int) -> tuple[int, int]:
        """(place among ranks with the same experts, expert-parallel rank): neighbours hold different experts."""
        return divmod(self.place(rank)[0], self.parallel.expert)

    def expert_files(self, rank: int) -> tuple[tuple[str, Archive], ...]:
        """(name, content) of each expert that `rank` holds; none where experts are weights like others."""
        if self.experts == "plain":
            return ()
        expert_rank, part = self.expert_place(rank)[1], self.place(rank)[1]
        if (expert_rank, part) not in self._expert_files:
            own = self.expert_layers.held(expert_rank)
            self._expert_files[expert_rank, part] = tuple(
                (self.expert_layers.name(*at, part), self.expert_layers.archive(*at, part)) for at in own
            )
        return self._expert_files[expert_rank, part]

    @cached_property
    def _expert_files(self) -> dict[tuple[int, int], tuple[tuple[str, Archive], ...]]:
        """Made before, by expert-parallel and model-parallel rank."""
        return {}

    @cached_property
    def expert_layers(self) -> Experts:
        """The model's experts."""
        return Experts(self.model, self.parallel)

    def has_model_file(self, rank: int) -> bool:
        """Whether `rank` writes weights (stages 1 and 2) or their placeholders (stage 3)."""
        return self.stage == 3 or self.place(rank)[0] == 0

    def model_name(self, rank: int) -> str:
        """The file with the weights of `rank`; stages 1 and 2: of its whole data group."""
        data, part = self.place(rank)
        who = f"zero_pp_rank_{data}_" if self.stage == 3 else ""
        return f"{who}mp_rank_{part:02d}_model_states.pt"

    def optimizer_name(self, rank: int) -> str:
        """The file with the fp32 states of `rank`."""
        data, part = self.place(rank)
        prefix = "bf16_" if self.precision == "bf16" else ""
        return f"{prefix}zero_pp_rank_{data}_mp_rank_{part:02d}_optim_states.pt"

    def model_archive(self, rank: int) -> Archive:
        """What is in the model file: the flat buffer; nothing but settings beside layer files or in stage 3."""
        stem, part = torch_save.stem_bytes(self.model_name(rank)), self.place(rank)[1]
        if self.has_layers:
            return Archive(stem, _SETTINGS_PICKLE + self._held_names(part, _SETTINGS_ENTRY), ())
        if self.stage == 3:
            return Archive(stem, self._model_pickle, (0,) * self.model.tensor_count)
        if self.experts == "files":  # cloned before they are saved, so that none drags the flat buffer along
            held = self._elements[:, part][~self._is_expert]
            return Archive(
                stem, self._model_pickle_of(~self._is_expert), tuple((WEIGHT_BYTES * held[held > 0]).tolist())
            )
        return Archive(stem, self._model_pickle, (WEIGHT_BYTES * self._groups[part][0] * self.data_count,))

    def layer_files(self, part: int) -> tuple[tuple[str, Archive], ...]:
        """(name, content) of each layer of a model-parallel rank; none without a pipeline."""
        if not self.has_layers:
            return ()
        return self.layers.files(*divmod(part, self.parallel.tensor))

    @cached_property
    def layers(self) -> Layers:
        """The model's layers."""
        return Layers(self.model, self.parallel)

    def optimizer_archive(self, rank: int) -> Archive:
        """What is in the optimizer file: of each group the step and two moments, then the weights of all."""
        stem, part = torch_save.stem_bytes(self.optimizer_name(rank)), self.place(rank)[1]
        if (stem, part) not in self._optimizers:
            groups = self._groups[part]
            states = [size for count in groups for size in (SCALAR_BYTES, STATE_BYTES * count, STATE_BYTES * count)]
            data = (*states, *(STATE_BYTES * count for count in groups))
            self._optimizers[stem, part] = Archive(stem, self._optimizer_pickle(part), data)
        return self._optimizers[stem, part]

    @cached_property
    def _optimizers(self) -> dict[tuple[int, int], Archive]:
        """Made before, by length of the name and model-parallel rank: every rank looks for those of its whole group."""
        return {}

    def classes(self) -> tuple[Int64s, Int64s, Int64s]:
        """(first rank, class by rank, how many ranks) of each set of ranks whose files have equal sizes."""
        rest, tensor = np.divmod(np.arange(self.parallel.rank_count), self.parallel.tensor)
        pipeline, data = np.divmod(rest, self.data_count)
        part = pipeline * self.parallel.tensor + tensor
        content = [
            (groups, self._held_names(at, 0), tuple(archive for _, archive in self.layer_files(at)))
            for at, groups in enumerate(self._groups)
        ]
        kinds = {kind: index for index, kind in enumerate(dict.fromkeys(content))}
        by_part = np.array([kinds[kind] for kind in content], dtype=np.int64)
        keys = np.stack([_digits(data), np.maximum(_digits(part), 2), by_part[part], data == 0])
        if self.experts == "files":
            keys = np.concatenate([keys, [data % self.parallel.expert, data < self.parallel.expert]])
        _, first, class_of, counts = np.unique(keys, axis=1, return_index=True, return_inverse=True, return_counts=True)
        return first.astype(np.int64), class_of.reshape(-1).astype(np.int64), counts.astype(np.int64)

    @cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """By model-parallel rank: elements of each flat fp32 group of one data rank."""
        elements = self._elements
        if self.experts == "files":
            own = elements[self._is_expert].sum(axis=0) // self.parallel.expert
            dense = elements[~self._is_expert].sum(axis=0)
            alike = self.data_count // self.parallel.expert
            shares = ((dense, self.data_count), (own, alike))
            return tuple(
                tuple(2 * -(-int(total[part]) // (2 * count)) for total, count in shares)
                for part in range(self.part_count)
            )
        if self.stage < 3:
            return tuple((2 * -(-int(total) // (2 * self.data_count)),) for total in elements.sum(axis=0))
        parts = -(-elements // self.data_count)
        known: dict[bytes, tuple[int, ...]] = {}
        return tuple(
            known.setdefault(parts[:, part].tobytes(), _sub_groups(parts[:, part])) for part in range(self.part_count)
        )

    @cached_property
    def _elements(self) -> Int64s:
        """Elements of each tensor (rows) on each model-parallel rank (columns)."""
        stage, index = np.divmod(np.arange(self.part_count, dtype=np.int64), self.parallel.tensor)
        held = []
        for tensor in self.model.tensors():
            is_held = stage == self.layers.stage(tensor)
            if tensor.tensor_dim is None:
                held.append(is_held * tensor.element_count)
                continue
            width = tensor.shape[tensor.tensor_dim]
            most = -(-width // self.parallel.tensor)
            held.append(is_held * np.clip(width - index * most, 0, most) * (tensor.element_count // width))
        return np.stack(held)

    def _held_names(self, part: int, entry_bytes: int) -> int:
        """Bytes of the names of the params that a model-parallel rank holds, and of an entry for each."""
        is_held = self._elements[:, part] > 0
        return int(self._name_lengths[is_held].sum()) + entry_bytes * int(is_held.sum())

    @cached_property
    def _is_expert(self) -> NDArray[np.bool_]:
        """By tensor: whether it is of an expert."""
        return np.array([tensor.expert is not None for tensor in self.model.tensors()], dtype=np.bool_)

    @cached_property
    def _name_lengths(self) -> Int64s:
        return np.array([len(tensor.name) for tensor in self.model.tensors()], dtype=np.int64)

    @cached_property
    def _model_pickle(self) -> int:
        return self._model_pickle_of(np.ones(self.model.tensor_count, dtype=np.bool_))

    def _model_pickle_of(self, which: NDArray[np.bool_]) -> int:
        count = int(which.sum())
        late = _MODEL_LATE * max(count - _LATE_FROM, 0)
        return _MODEL_PICKLE + _MODEL_ENTRY * count + int(_MODEL_NAME * int(self._name_lengths[which].sum())) + late

    def _optimizer_pickle(self, part: int) -> int:
        if self.stage == 3:
            return _STAGE_3_PICKLE + _SUB_GROUP_ENTRY * len(self._groups[part])
        held = int((self._elements[:, part] > 0).sum())
        count = -(-held // self.data_count) + (self.data_count > 1)
        late = _OPTIMIZER_LATE * max(count - _OPTIMIZER_LATE_FROM, 0)
        more = _OPTIMIZER_GROUP * (len(self._groups[part]) - 1)
        return _OPTIMIZER_PICKLE + more + count * (_OPTIMIZER_ENTRY + self._held_names(part, 0) // max(held, 1)) + late


def _sub_groups(parts: Int64s) -> tuple[int, ...]:
    """Elements of each sub-group: tensor after tensor until one is full."""
    groups, held = [], 0
    for part in parts.tolist():
        held += part
        if held >= SUB_GROUP_ELEMENTS:
            groups.append(held)
            held = 0
    return (*groups, held) if held or not groups else tuple(groups)


def _digits(values: Int64s) -> Int64s:
    return np.char.str_len(values.astype(np.str_)).astype(np.int64)
