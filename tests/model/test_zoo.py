"""The models that a job may name, to the last parameter, and what a job may not ask for."""

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import ModelTable
from ckptstorm.model.zoo import MODELS, resolve
from ckptstorm.units import Bytes

# name: (tensors, parameters), from the published configurations.
COUNTS = {
    "gpt2-124m": (148, 124_439_808),
    "gpt2-1.5b": (580, 1_557_611_200),
    "gpt3-175b": (1156, 174_604_259_328),
    "llama3-8b": (291, 8_030_261_248),
    "llama3-70b": (723, 70_553_706_496),
    "llama3-405b": (1137, 405_853_388_800),
    "mixtral-8x7b": (995, 46_702_792_704),
    "deepseek-v3": (45_395, 671_026_419_200),
    "deepseek-v3+mtp": (46_183, 684_489_845_504),
    "mlperf-1t": (1155, 1_183_035_102_480),
}


@pytest.mark.parametrize("name", MODELS)
def test_counts(name):
    """Every named model has the published number of tensors and parameters."""
    spec = resolve(ModelTable(name=name))
    assert (spec.tensor_count, spec.parameter_count) == COUNTS[name]


@pytest.mark.parametrize("name", MODELS)
def test_names_are_unique(name):
    """No two tensors of a model share a name: each is a key of a state dict."""
    names = [tensor.name for tensor in resolve(ModelTable(name=name)).tensors()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", MODELS)
def test_cut_dimensions_exist(name):
    """Tensor parallelism cuts a dimension that the tensor has."""
    for tensor in resolve(ModelTable(name=name)).tensors():
        assert tensor.tensor_dim is None or tensor.tensor_dim < len(tensor.shape)


def test_every_known_model_says_where_it_comes_from():
    """`ckptstorm list models` has a purpose and a source for each."""
    assert all(known.purpose and known.source and known.spec.name == name for name, known in MODELS.items())


def test_two_layers_of_a_named_model():
    """A constant beside a name replaces that constant and nothing else."""
    spec = resolve(ModelTable(name="llama3-8b", layers=2))
    assert spec.tensor_count == 9 * 2 + 3
    assert next(spec.tensors()).shape == (128256, 4096)


def test_architecture_with_constants():
    """The 75-tensor model of the reference traces."""
    table = ModelTable(architecture="llama", layers=8, hidden=512, ffn=1408, heads=8, kv_heads=4, vocab=32000)
    assert (resolve(table).tensor_count, resolve(table).parameter_count) == (75, 56_369_664)


def test_kv_heads_default_to_heads():
    """A model without grouped queries need not say so."""
    spec = resolve(ModelTable(architecture="llama", layers=1, hidden=64, ffn=80, heads=4, vocab=100))
    assert spec.kv_heads == 4


def test_gpt_width_follows_hidden():
    """A gpt's feed-forward part is four times as wide, also when hidden replaces a named model's."""
    assert resolve(ModelTable(name="gpt2-124m", hidden=1536)).ffn == 4 * 1536
    assert resolve(ModelTable(architecture="gpt", layers=1, hidden=8, heads=2, vocab=9, context_length=4)).ffn == 32


def test_bf16_states_are_two_bytes():
    """[model] states decides the bytes of an element."""
    assert resolve(ModelTable(name="gpt2-124m", states="bf16")).element_bytes == 2


def test_shard_bytes():
    """Plain bytes are one tensor without optimizer."""
    spec = resolve(ModelTable(shard_bytes=Bytes(1 << 20)))
    assert [tensor.shape for tensor in spec.tensors()] == [(1 << 20,)]
    assert spec.states == ()


REFUSED = {
    "[model] is empty": {},
    "[model] name and [model] architecture contradict": {"name": "llama3-8b", "architecture": "llama"},
    "[model] name and [model] shard_bytes contradict": {"name": "llama3-8b", "shard_bytes": Bytes(1)},
    'no model "llama3-8"; did you mean "llama3-8b"?': {"name": "llama3-8"},
    "[model] heads is missing": {"architecture": "llama", "layers": 1, "hidden": 64, "ffn": 80, "vocab": 9},
    "[model] heads = 5 does not divide [model] hidden = 64": {
        "architecture": "llama", "layers": 1, "hidden": 64, "ffn": 80, "vocab": 9, "heads": 5,
    },
    "[model] kv_heads = 3 does not divide [model] heads = 8": {
        "architecture": "llama", "layers": 1, "hidden": 64, "ffn": 80, "vocab": 9, "heads": 8, "kv_heads": 3,
    },
    '[model] experts means nothing to architecture "llama"': {"name": "llama3-8b", "experts": 8},
    "[model] dense_layers = 62 is more than [model] layers = 61": {"name": "deepseek-v3", "dense_layers": 62},
    "[model] layers means nothing beside [model] shard_bytes": {"shard_bytes": Bytes(8), "layers": 2},
    "[model] shard_bytes is 0": {"shard_bytes": Bytes(0)},
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence):
    """What is missing or contradictory is named, with a next step."""
    with pytest.raises(JobError) as caught:
        resolve(ModelTable(**REFUSED[sentence]))
    assert sentence in str(caught.value)
    assert caught.value.hint
