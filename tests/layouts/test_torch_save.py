"""Archives of many tensors, as noted from PyTorch 2.13: write calls, read calls, pickles, and C++ streams."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.layouts.formats import ofstream, torch_save
from ckptstorm.layouts.formats.python_io import KERNEL_LIMIT_BYTES, write_calls
from ckptstorm.layouts.formats.torch_pickle import Tensor, pickle_bytes, tensors
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.lowering import lower, record_writes
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Facts, ReadFile, WriteFile

HEAD = (30, 23, 22, 1, 16, 30, 26, 55, 2, 16, 30, 17, 63, 6, 16, 30, 14)
GIB = 1 << 30
# bytes of the tensors, pickle: calls after the pickle's own, noted from a file object that counts.
NOTED = {
    ((3 * GIB, 100, 3 * GIB, 100, 100_000), 421): (
        *HEAD, 62, 3 * GIB, 16, 30, 14, 4, 100, 16, 30, 14, 32, 3 * GIB, 16, 30, 14, 12, 56, 100, 24, 30, 14, 12, 12,
        100_000, 24, 30, 15, 12, 15, 2, 24, 30, 30, 12, 30, 40, 24, 751, 56, 20, 22,
    ),
    ((5 * GIB, 7, 2**32 - 1, 100), 357): (
        *HEAD, 20, 42, 5 * GIB, 24, 30, 14, 12, 48, 7, 24, 30, 14, 28, 25, 2**32 - 1, 24, 30, 14, 12, 49, 100, 24,
        30, 15, 12, 11, 2, 24, 30, 30, 12, 30, 40, 24, 739, 56, 20, 22,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTED)
def test_pieces_beyond_4_gib(case):
    """Headers grow by the zip64 fields exactly where torch's do."""
    data, pickle = case
    pieces = torch_save.record(Archive(len(torch_save.OBJECT_STEM), pickle, data)).pieces
    assert pieces == (30, 16, 18, pickle, 16, *NOTED[case])


def test_an_empty_tensor_has_a_header_only():
    """1513 bytes: the archive of one tensor without elements."""
    archive = Archive(len(torch_save.OBJECT_STEM), 163, (0,))
    assert torch_save.size_bytes(archive) == 1513
    assert torch_save.record(archive).pieces[22:27] == (62, 30, 15, 19, 2)


def test_reads_are_those_of_torch():
    """torch.load on five tensors, one of them empty: places and lengths as noted."""
    archive = Archive(torch_save.stem_bytes("x/some_file.pt"), 404, (4096, 28, 1_200_000, 16, 0))
    places = [(seek.offset_bytes, seek.length_bytes) for seek in torch_save.read(archive).seeks]
    assert places == [
        (0, 4), (1206639, 0), (0, 8), (1202543, 4096), (1206617, 22), (1206597, 20), (1206541, 56), (1205816, 725),
        (1205650, 30), (1205760, 40), (1205568, 30), (1205632, 2), (484, 30), (576, 1), (722, 30), (832, 6),
        (593, 30), (704, 2), (0, 30), (64, 404), (854, 30), (960, 4096), (5072, 30), (5184, 28), (5228, 30),
        (5312, 1_200_000), (1205328, 30), (1205440, 16),
    ]  # fmt: skip


def test_stream_gathers():
    """What strace showed of 105 small and large tensors: the buffer goes with a piece that is long or does not fit."""
    counts = [1024, 7, 300_000, 4, 200, 255, 256, 257, *[1] * 75, *[100] * 20, 5000, 9]
    pieces = torch_save.record(Archive(9, 8180, tuple(4 * number for number in counts))).pieces
    assert ofstream.write_calls(pieces, KERNEL_LIMIT_BYTES) == [
        (8244, 2), (4556, 2), (1_200_256, 2), (3264, 2), (1156, 2), (8192, 2), (8588, 2), (23184, 2), (7433, 2),
        (98, 0),
    ]  # fmt: skip


def test_stream_at_the_edge():
    """A buffer of 8191 bytes takes 8190 and no more (strace of a C++ program); 1024 bytes never wait in it."""
    assert ofstream.write_calls([*[1023] * 8, 6, 1, 10, 1023], KERNEL_LIMIT_BYTES) == [(8191, 2), (1033, 0)]
    assert ofstream.write_calls([*[1023] * 8, 7, 1024], KERNEL_LIMIT_BYTES) == [(8191, 2), (1024, 2)]


@given(st.lists(st.integers(0, 20_000), max_size=40), st.integers(10_000, 50_000))
def test_streams_lose_nothing(pieces, most):
    """All bytes go out, in calls of at most `most`; only what is left at the end is a plain write of its own."""
    calls = ofstream.write_calls(pieces, most)
    assert sum(length for length, _ in calls) == sum(pieces)
    assert all(0 < length <= most for length, _ in calls)
    assert all(parts in (0, ofstream.PARTS) for _, parts in calls)


# 75 parameters of the reference model: bf16 weights, three fp32 states and a step each; 789.2 MB.
SHAPES = [(32000, 512), *[(512, 512), (256, 512), (256, 512), (512, 512), (1408, 512), (1408, 512), (512, 1408),
          (512,), (512,)] * 8, (512,), (32000, 512)]  # fmt: skip
ELEMENTS = [rows * (rest[0] if rest else 1) for rows, *rest in SHAPES]
REFERENCE = (*[2 * count for count in ELEMENTS], *[size for count in ELEMENTS for size in (4, *[4 * count] * 3)])


def test_reference_trace_of_a_path():
    """300 tensors and 75 scalars into a C++ stream: 302 writev and 1 write, 8 of them above 16 MiB."""
    archive = Archive(9, 30_000, REFERENCE)
    calls = record_writes(torch_save.record(archive), "ofstream", Facts(4096))
    assert (len(calls[Kind.WRITEV]), len(calls[Kind.WRITE])) == (302, 1)
    assert sum(length > 16 << 20 for length in calls[Kind.WRITEV]) == 8
    assert torch_save.size_bytes(archive) == pytest.approx(789_266_138, rel=1e-4)


def test_reference_trace_of_a_file_object():
    """The same through Python's buffer of 4 KiB: 503 writes; of 4 MiB: 120."""
    pieces = torch_save.record(Archive(7, 30_000, REFERENCE)).pieces
    for block_size_bytes, number in ((4096, 503), (4 << 20, 120)):
        calls, held = write_calls(pieces, block_size_bytes)
        assert len(calls) + (held > 0) == pytest.approx(number, rel=0.06)


@pytest.mark.parametrize(("block_size_bytes", "number"), [(4096, 493), (4 << 20, 104)])
def test_reference_trace_of_a_load(block_size_bytes, number):
    """torch.load of that file: 493 reads through 4 KiB, 232 of them of whole tensors; 104 through 4 MiB."""
    archive = Archive(9, 30_000, REFERENCE)
    size = torch_save.size_bytes(archive)
    file = ReadFile(Path(1, "model.pt", 0, size), (0,), (torch_save.read(archive),), "python")
    program = lower((file,), Facts(block_size_bytes))
    lengths = program.expected_bytes()[program.ops["kind"] == Kind.READ]
    assert len(lengths) == pytest.approx(number, rel=0.02)
    if block_size_bytes == 4096:
        edges = (65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
        assert [int(((low < lengths) & (lengths <= high)).sum()) for low, high in pairwise(edges)] == [128, 96, 0, 8]
        assert lengths.sum() == pytest.approx(789.3e6, rel=1e-3)


def test_a_stream_in_a_program():
    """writev carries its number of parts; a tensor above the kernel's limit goes on as a plain write."""
    record = torch_save.record(Archive(5, 500, (3 * GIB,)))
    file = WriteFile(Path(STEP, "model", 0, record.size_bytes), (record,), "ofstream", False, 0)
    ops = lower((file,), Facts(4096)).ops[1:-1]
    assert [(Kind(row["kind"]).word, int(row["flags"])) for row in ops] == [
        ("writev", 2), ("write", 0), ("write", 0),
    ]  # fmt: skip
    assert int(ops["length_bytes"][0]) == KERNEL_LIMIT_BYTES
    assert int(ops["length_bytes"].sum()) == record.size_bytes


# tree: size of data.pkl as torch.save makes it on Python 3.11.
PICKLES = (
    ({str(index): Tensor((count,), "fp32") for index, count in enumerate((5, 50, 70_000, 300, 20_480, 1))}, 458),
    ({str(a): {str(b): Tensor((100 + b,), "fp16") for b in range(6)} for a in range(35)}, 17_365),
    ({f"model.layers.{index}.w": Tensor((3, 300), "fp32") for index in range(300)}, 31_236),
    ({f"m{index}": Tensor((3, 2), "bf16") for index in range(2001)}, 181_235),
    ({"0": Tensor((7,), "fp16")}, 161),
    ({"state": {f"a{index}": {"step": Tensor((), "fp32"), "exp_avg": Tensor((4, 4), "fp32")} for index in range(40)}},
     5665),
)  # fmt: skip


@pytest.mark.parametrize(("tree", "size"), PICKLES)
def test_pickles(tree, size):
    """Opcode by opcode: memo entries, batches, shared literals, integers of each size."""
    assert pickle_bytes(tree) == size


def test_tensors_in_order():
    """Storages follow the order of the pickle."""
    one, two, three = (Tensor((number,), "fp32") for number in (1, 2, 3))
    assert tensors({"a": one, "b": {"c": two, "d": {"e": three}}}) == [one, two, three]


def test_large_integers_in_a_pickle():
    """An element count beyond 31 bits is a long: 2 bytes and its own, sign bit included."""
    sizes = [pickle_bytes({"a": Tensor((count,), "fp16")}) for count in (2**31 - 1, 2**31, 2**39 - 1, 2**39)]
    assert [size - sizes[0] for size in sizes] == [0, 2 * 2, 2 * 2, 2 * 3]
