"""Archives as planned beside archives as they are: torch.save and torch.load under strace, to the byte."""

import os

import pytest

from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_pickle import Tensor, pickle_bytes, tensors
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.lowering import lower
from ckptstorm.program import DATA, STEP, Kind, Path
from ckptstorm.steps import Facts, ReadFile, WriteFile
from tests.real.strace_log import trace
from tests.real.test_dcp import python  # noqa: F401 - the fixture

# Both sides of 64 bytes, of a stream's 1024 and 8191, and of a block; scalars in a row; one empty tensor.
SHAPES = [(), (3,), (16,), (255,), (256,), (257,), (1023,), (0,), (90, 7), (100, 90), (300_000,), *[()] * 60,
          *[(100,)] * 30, (2047,), (33, 1000)]  # fmt: skip
TREE = {f"layer.{index}.weight": Tensor(shape, "fp32") for index, shape in enumerate(SHAPES)}


def archive(stem):
    """What both files hold, but for what names start with."""
    return Archive(len(stem), pickle_bytes(TREE), tuple(tensor.data_bytes for tensor in tensors(TREE)))


def path(name, stem):
    """The file, with the planned size."""
    return Path(STEP, name, 0, torch_save.size_bytes(archive(stem)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the files and the logs lie."""
    return tmp_path_factory.mktemp("torch_save")


@pytest.fixture(scope="module")
def traced(python, folder):  # noqa: F811
    """The calls of the one process."""
    shapes = [(name, tensor.shape) for name, tensor in TREE.items()]
    return trace(python, folder, {"rank_count": 1, "tensors": shapes, "script": "torch_save_reference.py"})[0]


def found(calls, phase, name):
    """(call, bytes moved) of the data calls on a file."""
    words = {kind.word for kind in DATA}
    return [
        (call.name, call.result) for call in calls if (call.phase, call.file) == (phase, name) and call.name in words
    ]


def planned(item, folder):
    """The same of our program."""
    program = lower((item,), Facts((folder / "task.json").stat().st_blksize))
    both = zip(program.ops["kind"].tolist(), program.expected_bytes().tolist(), strict=True)
    return [(Kind(kind).word, moved) for kind, moved in both if kind in DATA]


@pytest.mark.real
@pytest.mark.parametrize(
    ("phase", "name", "stem", "api"),
    [("save 0", "model.pt", "model", "ofstream"), ("save 1", "object.pt", torch_save.OBJECT_STEM, "python")],
)
def test_save(traced, folder, phase, name, stem, api):
    """A C++ stream for a path, Python's buffer for a file object: each write and writev, in order, to the byte."""
    file = WriteFile(path(name, stem), (torch_save.record(archive(stem)),), api, False, os.O_WRONLY)
    assert planned(file, folder) == found(traced, phase, name)


@pytest.mark.real
@pytest.mark.parametrize(("name", "stem"), [("model.pt", "model"), ("object.pt", torch_save.OBJECT_STEM)])
def test_load(traced, folder, name, stem):
    """Each read, in order, to the byte; empty tensors are not read."""
    file = ReadFile(path(name, stem), (0,), (torch_save.read(archive(stem)),), "python")
    assert planned(file, folder) == found(traced, "restore 1", name)


@pytest.mark.real
def test_two_parts(traced):
    """Each writev has the buffer and the piece: two parts."""
    assert {call.asked_bytes for call in traced if call.name == "writev"} == {2}


@pytest.mark.real
def test_sizes_on_disk(traced, folder):
    """The files have their planned sizes, pickle included."""
    assert traced
    for name, stem in (("model.pt", "model"), ("object.pt", torch_save.OBJECT_STEM)):
        assert (folder / "checkpoint" / name).stat().st_size == path(name, stem).size_bytes
