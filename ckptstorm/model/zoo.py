"""The models that a job may name, and the way from a job's [model] table to a `ModelSpec`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptstorm.errors import JobError
from ckptstorm.job import ModelTable
from ckptstorm.model.tensors import ModelSpec
from ckptstorm.registry import allowed, suggestion

_LLAMA_3 = "arXiv 2407.21783, table 3; transformers 5.24 on the meta device"
_DEEPSEEK = "arXiv 2412.19437; the released config.json; transformers 5.24 on the meta device"


@dataclass(frozen=True, slots=True)
class Known:
    """A model that a job may name.

    Attributes:
        spec: its constants.
        purpose: one line for `ckptstorm list models`.
        source: where the constants come from.
    """

    spec: ModelSpec
    purpose: str
    source: str


def _llama(name: str, layers: int, hidden: int, ffn: int, heads: int) -> ModelSpec:
    return ModelSpec(
        name, "llama", layers, hidden, ffn, heads, kv_heads=8, vocab=128256, head_size=hidden // heads
    )  # fmt: skip


def _gpt(name: str, layers: int, hidden: int, heads: int, context_length: int) -> ModelSpec:
    return ModelSpec(
        name, "gpt", layers, hidden, 4 * hidden, heads, heads, 50257, hidden // heads, context_length
    )  # fmt: skip


_V3 = ModelSpec(
    "deepseek-v3", "deepseek", layers=61, hidden=7168, ffn=18432, heads=128, kv_heads=128, vocab=129280,
    head_size=192, experts=256, moe_ffn=2048, dense_layers=3,
)  # fmt: skip
_MIXTRAL = ModelSpec(
    "mixtral-8x7b", "mixtral", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocab=32000,
    head_size=128, experts=8,
)  # fmt: skip
#: 25872 / 192 heads is no whole number: the benchmark rounds the key-value heads down to 134 elements.
_MLPERF_1T = ModelSpec(
    "mlperf-1t", "llama", layers=128, hidden=25872, ffn=98304, heads=192, kv_heads=32, vocab=128256, head_size=134
)

MODELS: dict[str, Known] = {
    "gpt2-124m": Known(_gpt("gpt2-124m", 12, 768, 12, 1024), "small enough for a laptop", "GPT-2 release"),
    "gpt2-1.5b": Known(_gpt("gpt2-1.5b", 48, 1600, 25, 1024), "GPT-2, the largest", "GPT-2 release"),
    "gpt3-175b": Known(_gpt("gpt3-175b", 96, 12288, 96, 2048), "many 1-D tensors", "arXiv 2005.14165, table 2.1"),
    "llama3-8b": Known(_llama("llama3-8b", 32, 4096, 14336, 32), "one to eight nodes", _LLAMA_3),
    "llama3-70b": Known(_llama("llama3-70b", 80, 8192, 28672, 64), "a few dozen nodes", _LLAMA_3),
    "llama3-405b": Known(_llama("llama3-405b", 126, 16384, 53248, 128), "a whole cluster", _LLAMA_3),
    "mixtral-8x7b": Known(_MIXTRAL, "eight experts", "arXiv 2401.04088; transformers 5.24 on the meta device"),
    "deepseek-v3": Known(_V3, "45,395 tensors: 256 experts, one by one", _DEEPSEEK),
    "deepseek-v3+mtp": Known(
        replace(_V3, name="deepseek-v3+mtp", mtp_layers=1), "with its multi-token-prediction layer", _DEEPSEEK
    ),
    "mlperf-1t": Known(_MLPERF_1T, "the largest of MLPerf Storage v2.0", "mlcommons/storage, llama3_1t workload"),
}

#: The constants that each architecture needs from a job, and those it may have beside them.
_NEEDED = {
    "llama": ("layers", "hidden", "ffn", "heads", "vocab"),
    "gpt": ("layers", "hidden", "heads", "vocab", "context_length"),
    "mixtral": ("layers", "hidden", "ffn", "heads", "vocab", "experts"),
    "deepseek": ("layers", "hidden", "ffn", "heads", "vocab", "experts", "moe_ffn"),
}
_OPTIONAL = {
    "llama": ("kv_heads",),
    "gpt": ("ffn",),
    "mixtral": ("kv_heads",),
    "deepseek": ("dense_layers", "mtp_layers"),
}
_CONSTANTS = (
    "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "context_length",
    "experts", "moe_ffn", "dense_layers", "mtp_layers",
)  # fmt: skip


def resolve(table: ModelTable) -> ModelSpec:
    """The model that a job asks for.

    Args:
        table: a name, perhaps with constants that replace the named model's (`layers = 2` cuts it);
            or an architecture with its constants; or `shard_bytes`.

    Raises:
        JobError: nothing is asked for, two things at once, a constant is missing, does not belong
            to the architecture, or contradicts another; names the key and what to do.
    """
    asked = [key for key in ("name", "architecture", "shard_bytes") if getattr(table, key) is not None]
    if not asked:
        raise JobError(
            "[model] is empty: the job does not say what is saved",
            'give [model] name (ckptstorm list models), or architecture with its constants, or shard_bytes = "4GiB"',
        )
    if len(asked) > 1:
        raise JobError(f"[model] {asked[0]} and [model] {asked[1]} contradict each other", "keep one of them")
    given = {key: getattr(table, key) for key in _CONSTANTS if getattr(table, key) is not None}
    if table.shard_bytes is not None:
        return _opaque(int(table.shard_bytes), given)
    spec = _named(str(table.name), given) if table.name is not None else _built(str(table.architecture), given)
    _check(spec)
    return replace(spec, element_bytes=4 if table.states == "fp32" else 2)


def _opaque(shard_bytes: int, given: dict[str, int]) -> ModelSpec:
    if given:
        key = next(iter(given))
        raise JobError(f"[model] {key} means nothing beside [model] shard_bytes", f"remove [model] {key}")
    if shard_bytes == 0:
        raise JobError("[model] shard_bytes is 0: there is nothing to save", "give at least 1 byte")
    return ModelSpec("shard", "opaque", element_bytes=1, shard_bytes=shard_bytes)


def _named(name: str, given: dict[str, int]) -> ModelSpec:
    if name not in MODELS:
        raise JobError(f'[model] name: there is no model "{name}"{suggestion(name, MODELS)}', allowed(MODELS))
    spec = MODELS[name].spec
    _refuse_foreign(spec.architecture, given)
    changed = replace(spec, **given)  # type: ignore[arg-type]
    if spec.architecture == "gpt" and "hidden" in given and "ffn" not in given:
        changed = replace(changed, ffn=4 * changed.hidden)
    if spec.architecture == "gpt":
        changed = replace(changed, kv_heads=changed.heads)
    if spec.architecture != "deepseek" and {"hidden", "heads"} & given.keys():
        changed = replace(changed, head_size=_head_size(changed.hidden, changed.heads))
    return changed


def _built(architecture: str, given: dict[str, int]) -> ModelSpec:
    _refuse_foreign(architecture, given)
    missing = [key for key in _NEEDED[architecture] if key not in given]
    if missing:
        raise JobError(
            f'[model] {missing[0]} is missing: architecture "{architecture}" needs it',
            f"give {', '.join(f'[model] {key}' for key in missing)}",
        )
    heads = given["heads"]
    spec = ModelSpec(architecture, architecture, kv_heads=given.pop("kv_heads", heads), **given)  # type: ignore[arg-type]
    if architecture == "gpt" and spec.ffn == 0:
        spec = replace(spec, ffn=4 * spec.hidden)
    return replace(spec, head_size=192 if architecture == "deepseek" else _head_size(spec.hidden, heads))


def _head_size(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise JobError(
            f"[model] heads = {heads} does not divide [model] hidden = {hidden}",
            f"choose heads that divide {hidden}",
        )
    return hidden // heads


def _refuse_foreign(architecture: str, given: dict[str, int]) -> None:
    known = _NEEDED[architecture] + _OPTIONAL[architecture]
    for key in given:
        if key not in known:
            raise JobError(
                f'[model] {key} means nothing to architecture "{architecture}"{suggestion(key, known)}', allowed(known)
            )


def _check(spec: ModelSpec) -> None:
    if spec.kv_heads and spec.heads % spec.kv_heads:
        raise JobError(
            f"[model] kv_heads = {spec.kv_heads} does not divide [model] heads = {spec.heads}",
            f"choose kv_heads that divide {spec.heads}",
        )
    if spec.dense_layers > spec.layers:
        raise JobError(
            f"[model] dense_layers = {spec.dense_layers} is more than [model] layers = {spec.layers}",
            f"choose dense_layers from 0 to {spec.layers}",
        )
