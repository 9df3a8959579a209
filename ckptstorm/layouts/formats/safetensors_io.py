"""Safetensors files as sizes and write calls, and how transformers splits a model into them.

A file is the length of a header (8 bytes), the header (JSON, padded with spaces to a multiple of 8),
and the tensors by name, back to back. Traced with safetensors 0.5.3, 0.7.0 and 0.8.0; the split and
the index are those of huggingface_hub 2.4 and transformers 5.24, read in their source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckptstorm.layouts.formats.rust_io import BUFFER_BYTES, buffered
from ckptstorm.model.tensors import TensorSpec
from ckptstorm.steps import Record

INDEX_NAME = "model.safetensors.index.json"
#: Weights are stored as BF16.
ELEMENT_BYTES = 2
_LENGTH_BYTES, _ALIGNMENT = 8, 8
# What `save_pretrained` tells of the framework.
_METADATA = '"__metadata__":{"format":"pt"}'


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One of the files that a model is saved in.

    Attributes:
        name: of the file.
        header_bytes: the length and the header together.
        tensor_bytes: of each tensor, in file order.
    """

    name: str
    header_bytes: int
    tensor_bytes: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the whole file."""
        return self.header_bytes + sum(self.tensor_bytes)

    def records(self, api: str) -> tuple[Record, ...]:
        """What the writer's buffer (a key of `rust_io.BUFFER_BYTES`) sends at once; equal neighbours as one run."""
        head = (_LENGTH_BYTES, self.header_bytes - _LENGTH_BYTES)
        records: list[Record] = []
        heads_left = len(head)
        for pieces in buffered((*head, *self.tensor_bytes), BUFFER_BYTES[api]):
            heads_here = min(heads_left, len(pieces))
            heads_left -= heads_here
            record = Record(pieces, tensor_count=len(pieces) - heads_here)
            if records and (records[-1].pieces, records[-1].tensor_count) == (pieces, record.tensor_count):
                record = Record(pieces, count=records.pop().count + 1, tensor_count=record.tensor_count)
            records.append(record)
        return tuple(records)


def tensor_bytes(tensor: TensorSpec) -> int:
    """Bytes of a tensor as it is stored."""
    return tensor.element_count * ELEMENT_BYTES


def split(tensors: Iterable[TensorSpec], shard_bytes: int) -> list[list[TensorSpec]]:
    """The tensors of each file, in the model's order: a new one when the next tensor would not fit.

    A tensor that is larger than a file may be gets one of its own, before the one under way.
    """
    files: list[list[TensorSpec]] = []
    current: list[TensorSpec] = []
    size = 0
    for tensor in tensors:
        more = tensor_bytes(tensor)
        if more > shard_bytes:
            files.append([tensor])
            continue
        if size + more > shard_bytes:
            files.append(current)
            current, size = [], 0
        current.append(tensor)
        size += more
    return [*files, current] if current else files


def model_files(files: Sequence[Sequence[TensorSpec]]) -> tuple[ModelFile, ...]:
    """Names and sizes of the files that hold these tensors."""
    return tuple(_model_file(_name(index, len(files)), tensors) for index, tensors in enumerate(files))


def index_bytes(files: Sequence[Sequence[TensorSpec]]) -> int:
    """Size of the index: which tensor is in which file."""
    elements = sum(tensor.element_count for tensors in files for tensor in tensors)
    index = {
        "metadata": {"total_parameters": elements, "total_size": elements * ELEMENT_BYTES},
        "weight_map": {
            tensor.name: _name(index, len(files)) for index, tensors in enumerate(files) for tensor in tensors
        },
    }
    return len(json.dumps(index, indent=2, sort_keys=True)) + len("\n")


def _name(index: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{index + 1:05d}-of-{count:05d}.safetensors"


def _model_file(name: str, tensors: Sequence[TensorSpec]) -> ModelFile:
    by_name = sorted(tensors, key=lambda tensor: tensor.name)
    sizes = tuple(map(tensor_bytes, by_name))
    length = len("{") + len(_METADATA) + len("}")
    start = 0
    for tensor, size in zip(by_name, sizes, strict=True):
        shape = ",".join(map(str, tensor.shape))
        entry = f',"{tensor.name}":{{"dtype":"BF16","shape":[{shape}],"data_offsets":[{start},{start + size}]}}'
        length += len(entry)
        start += size
    return ModelFile(name, _LENGTH_BYTES + -(-length // _ALIGNMENT) * _ALIGNMENT, sizes)
