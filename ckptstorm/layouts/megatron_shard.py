"""What one model-parallel rank of Megatron-LM holds: its parameters, fused and ordered as Megatron has them.

Read in NVIDIA/Megatron-LM@d98e8a6. Query, key and value are one parameter, gate and up another; the
order is that of module registration, which decides where a parameter lies in the optimizer's buffer.
A checkpoint stores gate and up apart again (the SwiGLU factory), and one key for a tensor of all layers.
Not modelled: the padding of the vocabulary, and the second copy of tied embeddings on the last stage.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from ckptstorm.model.parallel import Coordinates, ParallelSpec
from ckptstorm.model.shard import chunk_rows, pieces
from ckptstorm.model.tensors import ModelSpec, TensorSpec

#: Ending of a tensor's name: (place within its layer, what the checkpoint calls it).
_IN_LAYER = {
    "self_attn.o_proj.weight": (0, "self_attention.linear_proj.weight"),
    "input_layernorm.weight": (1, "self_attention.linear_qkv.layer_norm_weight"),
    "self_attn.q_proj.weight": (2, "self_attention.linear_qkv.weight"),
    "self_attn.k_proj.weight": (2, "self_attention.linear_qkv.weight"),
    "self_attn.v_proj.weight": (2, "self_attention.linear_qkv.weight"),
    "post_attention_layernorm.weight": (3, "mlp.linear_fc1.layer_norm_weight"),
    "mlp.gate_proj.weight": (4, "mlp.linear_fc1.weight"),
    "mlp.up_proj.weight": (4, "mlp.linear_fc1.weight"),
    "mlp.down_proj.weight": (5, "mlp.linear_fc2.weight"),
    "attn.c_proj.weight": (0, "self_attention.linear_proj.weight"),
    "attn.c_proj.bias": (1, "self_attention.linear_proj.bias"),
    "ln_1.weight": (2, "self_attention.linear_qkv.layer_norm_weight"),
    "ln_1.bias": (3, "self_attention.linear_qkv.layer_norm_bias"),
    "attn.c_attn.weight": (4, "self_attention.linear_qkv.weight"),
    "attn.c_attn.bias": (5, "self_attention.linear_qkv.bias"),
    "ln_2.weight": (6, "mlp.linear_fc1.layer_norm_weight"),
    "ln_2.bias": (7, "mlp.linear_fc1.layer_norm_bias"),
    "mlp.c_fc.weight": (8, "mlp.linear_fc1.weight"),
    "mlp.c_fc.bias": (9, "mlp.linear_fc1.bias"),
    "mlp.c_proj.weight": (10, "mlp.linear_fc2.weight"),
    "mlp.c_proj.bias": (11, "mlp.linear_fc2.bias"),
}
_OUTSIDE = {
    "model.embed_tokens.weight": "embedding.word_embeddings.weight",
    "transformer.wte.weight": "embedding.word_embeddings.weight",
    "transformer.wpe.weight": "embedding.position_embeddings.weight",
    "model.norm.weight": "decoder.final_layernorm.weight",
    "transformer.ln_f.weight": "decoder.final_layernorm.weight",
    "transformer.ln_f.bias": "decoder.final_layernorm.bias",
    "lm_head.weight": "output_layer.weight",
}
#: Parameters that the checkpoint holds as one tensor for each of the tensors fused in them.
_STORED_APART = "mlp.linear_fc1.weight"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a model-parallel rank.

    Attributes:
        key: what the checkpoint calls it; a tensor has one key in all layers.
        layer: of which layer; 0 for none.
        parts: elements of each tensor that the checkpoint stores of it.
        is_copied: whether every tensor-parallel rank holds the same.
    """

    key: str
    layer: int
    parts: tuple[int, ...]
    is_copied: bool

    @property
    def element_count(self) -> int:
        """Elements in it."""
        return sum(self.parts)


def shard_class(model: ModelSpec, parallel: ParallelSpec, tensor: int, pipeline: int) -> tuple[int, ...]:
    """Equal for model-parallel ranks that hold parameters of equal sizes and write the same of them.

    Tensor-parallel rank 0 alone writes what all of them hold; rank 0 of all writes what is common.
    """
    cut = {item.shape[item.tensor_dim] for item in _tensors(model) if item.tensor_dim is not None}
    rows = sorted(cut)
    return (pipeline, int(tensor == 0), *(chunk_rows(row_count, parallel.tensor, tensor) for row_count in rows))


@lru_cache(maxsize=64)
def parameters(model: ModelSpec, parallel: ParallelSpec, tensor: int, pipeline: int) -> tuple[Parameter, ...]:
    """Parameters of a model-parallel rank, in the order of its module."""
    rank = parallel.rank_of(Coordinates(tensor, 0, 0, 0, pipeline))
    first: list[Parameter] = []
    last: list[Parameter] = []
    layers: dict[int, dict[int, list[tuple[TensorSpec, int]]]] = defaultdict(lambda: defaultdict(list))
    for piece in pieces(model, parallel, "ddp", rank):
        if piece.tensor.stage == "layer":
            layers[piece.tensor.layer][_in_layer(piece.tensor)[0]].append((piece.tensor, piece.element_count))
            continue
        own = Parameter(key_of(piece.tensor), 0, (piece.element_count,), piece.tensor.tensor_dim is None)
        (first if piece.tensor.stage == "first" else last).append(own)
    middle = [_fused(places[place]) for _, places in sorted(layers.items()) for place in sorted(places)]
    return (*first, *middle, *last)


def key_of(tensor: TensorSpec) -> str:
    """What the checkpoint calls it."""
    return _in_layer(tensor)[1] if tensor.stage == "layer" else _OUTSIDE[tensor.name]


@lru_cache(maxsize=8)
def key_elements(model: ModelSpec) -> dict[str, int]:
    """Elements of the whole tensor behind each key, of all layers: by these Megatron deals to its workers."""
    counts: dict[str, int] = defaultdict(int)
    for tensor in model.tensors():
        counts[key_of(tensor)] += tensor.element_count
    return dict(counts)


@lru_cache(maxsize=4)
def _tensors(model: ModelSpec) -> tuple[TensorSpec, ...]:
    return tuple(model.tensors())


def _in_layer(tensor: TensorSpec) -> tuple[int, str]:
    ending = tensor.name.split(".", 3)[3]
    place, key = _IN_LAYER[ending]
    return place, f"decoder.layers.{key}"


def _fused(tensors: list[tuple[TensorSpec, int]]) -> Parameter:
    key, layer = key_of(tensors[0][0]), tensors[0][0].layer
    sizes = tuple(size for _, size in tensors)
    parts = sizes if key.endswith(_STORED_APART) else (sum(sizes),)
    return Parameter(key, layer, parts, all(tensor.tensor_dim is None for tensor, _ in tensors))
