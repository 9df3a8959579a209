"""The tensors of a model, by name and shape, so that a plan asks for the bytes that a real job would.

Names and shapes are those of the Hugging Face implementations (transformers 5.24, checked on the
meta device). Nothing is stored per model: a list is generated when it is walked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Stage = Literal["first", "layer", "last"]
Architecture = Literal["llama", "gpt", "mixtral", "deepseek", "opaque"]

#: What AdamW keeps of each tensor besides the weight, under the names that frameworks use.
OPTIMIZER_STATES = ("exp_avg", "exp_avg_sq")

# DeepSeek-V3's latent attention: ranks of the query and key-value projections, and the head's parts
# (without position, rotary, value), from the model's config.json.
_QUERY_RANK, _KEY_VALUE_RANK = 1536, 512
_HEAD_PLAIN, _HEAD_ROTARY, _HEAD_VALUE = 128, 64, 128


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named parameter.

    Attributes:
        name: as in the model's state dict.
        shape: elements per dimension.
        tensor_dim: the dimension that tensor parallelism cuts; None when every rank holds a copy.
        stage: which pipeline stage owns it: that of its layer, or the first or the last.
        layer: index of its layer; 0 when it belongs to none.
        expert: index of its expert; None when it belongs to none.
    """

    name: str
    shape: tuple[int, ...]
    tensor_dim: int | None = None
    stage: Stage = "layer"
    layer: int = 0
    expert: int | None = None

    @property
    def element_count(self) -> int:
        """Elements in the whole tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ModelSpec:
    """A model as constants; `tensors()` is the list they mean.

    Attributes:
        name: what the job calls it.
        architecture: which list; "opaque" is one flat tensor a rank, of `shard_bytes`.
        layers, hidden, ffn, heads, kv_heads, vocab: the usual constants; 0 where they mean nothing.
        head_size: elements of one head.
        context_length: gpt: rows of the position embedding.
        experts, moe_ffn, dense_layers, mtp_layers: mixtral and deepseek.
        element_bytes: bytes of one element of weight and optimizer state.
        shard_bytes: opaque only: bytes of each rank.
    """

    name: str
    architecture: Architecture
    layers: int = 0
    hidden: int = 0
    ffn: int = 0
    heads: int = 0
    kv_heads: int = 0
    vocab: int = 0
    head_size: int = 0
    context_length: int = 0
    experts: int = 0
    moe_ffn: int = 0
    dense_layers: int = 0
    mtp_layers: int = 0
    element_bytes: int = 4
    shard_bytes: int = 0

    def tensors(self) -> Iterator[TensorSpec]:
        """The parameters, in the order of the model's state dict."""
        return _LISTS[self.architecture](self)

    @property
    def states(self) -> tuple[str, ...]:
        """What is saved of each parameter besides the weight."""
        return () if self.architecture == "opaque" else OPTIMIZER_STATES

    @property
    def layer_count(self) -> int:
        """Layers that a pipeline can deal out, prediction layers included."""
        return self.layers + self.mtp_layers

    @cached_property
    def tensor_count(self) -> int:
        """How many parameters have a name."""
        return sum(1 for _ in self.tensors())

    @cached_property
    def parameter_count(self) -> int:
        """Elements of all of them."""
        return sum(tensor.element_count for tensor in self.tensors())


def _ends(model: ModelSpec, middle: Iterator[TensorSpec]) -> Iterator[TensorSpec]:
    yield TensorSpec("model.embed_tokens.weight", (model.vocab, model.hidden), 0, "first")
    yield from middle
    yield TensorSpec("model.norm.weight", (model.hidden,), None, "last")
    yield TensorSpec("lm_head.weight", (model.vocab, model.hidden), 0, "last")


def _attention(model: ModelSpec, layer: int) -> Iterator[TensorSpec]:
    prefix, hidden = f"model.layers.{layer}.self_attn", model.hidden
    query, key = hidden, model.kv_heads * model.head_size
    yield TensorSpec(f"{prefix}.q_proj.weight", (query, hidden), 0, "layer", layer)
    yield TensorSpec(f"{prefix}.k_proj.weight", (key, hidden), 0, "layer", layer)
    yield TensorSpec(f"{prefix}.v_proj.weight", (key, hidden), 0, "layer", layer)
    yield TensorSpec(f"{prefix}.o_proj.weight", (hidden, query), 1, "layer", layer)


def _feed_forward(prefix: str, hidden: int, ffn: int, layer: int, expert: int | None = None) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{prefix}.gate_proj.weight", (ffn, hidden), 0, "layer", layer, expert)
    yield TensorSpec(f"{prefix}.up_proj.weight", (ffn, hidden), 0, "layer", layer, expert)
    yield TensorSpec(f"{prefix}.down_proj.weight", (hidden, ffn), 1, "layer", layer, expert)


def _norms(model: ModelSpec, layer: int) -> Iterator[TensorSpec]:
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield TensorSpec(f"model.layers.{layer}.{norm}.weight", (model.hidden,), None, "layer", layer)


def _llama(model: ModelSpec) -> Iterator[TensorSpec]:
    def layers() -> Iterator[TensorSpec]:
        for layer in range(model.layers):
            yield from _attention(model, layer)
            yield from _feed_forward(f"model.layers.{layer}.mlp", model.hidden, model.ffn, layer)
            yield from _norms(model, layer)

    return _ends(model, layers())


def _mixtral(model: ModelSpec) -> Iterator[TensorSpec]:
    def layers() -> Iterator[TensorSpec]:
        for layer in range(model.layers):
            yield from _attention(model, layer)
            prefix = f"model.layers.{layer}.block_sparse_moe"
            yield TensorSpec(f"{prefix}.gate.weight", (model.experts, model.hidden), None, "layer", layer)
            for expert in range(model.experts):
                for part, shape, cut in (
                    ("w1", (model.ffn, model.hidden), 0),
                    ("w2", (model.hidden, model.ffn), 1),
                    ("w3", (model.ffn, model.hidden), 0),
                ):
                    yield TensorSpec(f"{prefix}.experts.{expert}.{part}.weight", shape, cut, "layer", layer, expert)
            yield from _norms(model, layer)

    return _ends(model, layers())


def _gpt(model: ModelSpec) -> Iterator[TensorSpec]:
    hidden = model.hidden
    yield TensorSpec("transformer.wte.weight", (model.vocab, hidden), 0, "first")
    yield TensorSpec("transformer.wpe.weight", (model.context_length, hidden), None, "first")
    for layer in range(model.layers):
        # The projections are Conv1D: (in, out), so column-parallel ones are cut in dimension 1.
        for part, shape, cut in (
            ("ln_1", (hidden,), None),
            ("attn.c_attn", (hidden, 3 * hidden), 1),
            ("attn.c_proj", (hidden, hidden), 0),
            ("ln_2", (hidden,), None),
            ("mlp.c_fc", (hidden, model.ffn), 1),
            ("mlp.c_proj", (model.ffn, hidden), 0),
        ):
            prefix = f"transformer.h.{layer}.{part}"
            yield TensorSpec(f"{prefix}.weight", shape, cut, "layer", layer)
            yield TensorSpec(f"{prefix}.bias", shape[-1:], 0 if cut == 1 else None, "layer", layer)
    yield TensorSpec("transformer.ln_f.weight", (hidden,), None, "last")
    yield TensorSpec("transformer.ln_f.bias", (hidden,), None, "last")


def _latent_attention(model: ModelSpec, layer: int) -> Iterator[TensorSpec]:
    prefix, hidden, heads = f"model.layers.{layer}.self_attn", model.hidden, model.heads
    for part, shape, cut in (
        ("q_a_proj", (_QUERY_RANK, hidden), None),
        ("q_a_layernorm", (_QUERY_RANK,), None),
        ("q_b_proj", (heads * (_HEAD_PLAIN + _HEAD_ROTARY), _QUERY_RANK), 0),
        ("kv_a_proj_with_mqa", (_KEY_VALUE_RANK + _HEAD_ROTARY, hidden), None),
        ("kv_a_layernorm", (_KEY_VALUE_RANK,), None),
        ("kv_b_proj", (heads * (_HEAD_PLAIN + _HEAD_VALUE), _KEY_VALUE_RANK), 0),
        ("o_proj", (hidden, heads * _HEAD_VALUE), 1),
    ):
        yield TensorSpec(f"{prefix}.{part}.weight", shape, cut, "layer", layer)


def _experts(model: ModelSpec, layer: int) -> Iterator[TensorSpec]:
    prefix = f"model.layers.{layer}.mlp"
    yield TensorSpec(f"{prefix}.gate.weight", (model.experts, model.hidden), None, "layer", layer)
    yield TensorSpec(f"{prefix}.gate.e_score_correction_bias", (model.experts,), None, "layer", layer)
    for expert in range(model.experts):
        yield from _feed_forward(f"{prefix}.experts.{expert}", model.hidden, model.moe_ffn, layer, expert)
    yield from _feed_forward(f"{prefix}.shared_experts", model.hidden, model.moe_ffn, layer)


def _deepseek(model: ModelSpec) -> Iterator[TensorSpec]:
    def layers() -> Iterator[TensorSpec]:
        for layer in range(model.layers):
            yield from _latent_attention(model, layer)
            if layer < model.dense_layers:
                yield from _feed_forward(f"model.layers.{layer}.mlp", model.hidden, model.ffn, layer)
            else:
                yield from _experts(model, layer)
            yield from _norms(model, layer)
        for layer in range(model.layers, model.layer_count):
            yield from _prediction_layer(model, layer)

    return _ends(model, layers())


def _prediction_layer(model: ModelSpec, layer: int) -> Iterator[TensorSpec]:
    prefix, hidden = f"model.layers.{layer}", model.hidden
    yield TensorSpec(f"{prefix}.embed_tokens.weight", (model.vocab, hidden), 0, "layer", layer)
    yield TensorSpec(f"{prefix}.enorm.weight", (hidden,), None, "layer", layer)
    yield TensorSpec(f"{prefix}.hnorm.weight", (hidden,), None, "layer", layer)
    yield TensorSpec(f"{prefix}.eh_proj.weight", (hidden, 2 * hidden), None, "layer", layer)
    yield from _latent_attention(model, layer)
    yield from _experts(model, layer)
    yield from _norms(model, layer)
    yield TensorSpec(f"{prefix}.shared_head.norm.weight", (hidden,), None, "layer", layer)
    yield TensorSpec(f"{prefix}.shared_head.head.weight", (model.vocab, hidden), 0, "layer", layer)


def _opaque(model: ModelSpec) -> Iterator[TensorSpec]:
    yield TensorSpec("shard", (model.shard_bytes,))


_LISTS = {"llama": _llama, "gpt": _gpt, "mixtral": _mixtral, "deepseek": _deepseek, "opaque": _opaque}
