"""Sizes of torch.save archives, as noted from PyTorch 2.13."""

import pytest

from ckptstorm.layouts.formats import torch_zip

# bytes of the tensor: (bytes of the archive, padding before the version member).
NOTED = {
    4: (1577, 63), 8: (1577, 59), 60: (1577, 7), 64: (1641, 67), 68: (1641, 63), 400: (1961, 51),
    600: (2153, 43), 4096: (5673, 67), 65536: (67113, 67), 400_000: (401_577, 67), 16_384_000: (16_385_577, 67),
}  # fmt: skip


@pytest.mark.parametrize("data_bytes", NOTED)
def test_tensor_record(data_bytes):
    """Pieces add up to the noted size, with the data whole and the padding where it was."""
    record = torch_zip.tensor_record(data_bytes)
    assert (record.size_bytes, record.pieces[27]) == NOTED[data_bytes]
    assert record.pieces[23] == data_bytes
    assert len(record.pieces) == 39


def test_empty_tensor_record():
    """A shard without rows still has a head and a tail."""
    assert torch_zip.tensor_record(0).size_bytes == 1513
    assert len(torch_zip.tensor_record(0).pieces) == 37


@pytest.mark.parametrize("data_bytes", [0, 1, 4, 63, 64, 65, 4096, 123_457])
def test_size_law(data_bytes):
    """The size law is the sum of the pieces, and reads stay inside the archive."""
    size = torch_zip.tensor_record_bytes(data_bytes)
    assert torch_zip.tensor_record(data_bytes).size_bytes == size
    read = torch_zip.tensor_read(data_bytes)
    assert read.size_bytes == size
    assert all(0 <= seek.offset_bytes <= seek.offset_bytes + seek.length_bytes <= size for seek in read.seeks)


def test_read_places():
    """The calls of torch.load on a tensor of 64 KiB, as noted."""
    places = [(seek.offset_bytes, seek.length_bytes) for seek in torch_zip.tensor_read(65536).seeks]
    assert places == [
        (0, 4), (67113, 0), (0, 8), (63017, 4096), (67091, 22), (67071, 20), (67015, 56), (66552, 463), (66386, 30),
        (66496, 40), (66256, 30), (66368, 2), (240, 30), (320, 1), (466, 30), (576, 6), (337, 30), (448, 2),
        (0, 30), (64, 160), (598, 30), (704, 65536),
    ]  # fmt: skip


# names: size of the archive that torch.save makes of the list.
NAMES = {1: 1261, 2: 1325, 30: 2605, 299: 15341, 1000: 50349, 1001: 50413, 2500: 126893}


@pytest.mark.parametrize("count", NAMES)
def test_blob_of_names(count):
    """A parameter group's list of names, by number and length of the names."""
    letters = sum(len(f"model.layers.{layer}.self_attn.q_proj.weight") for layer in range(count))
    assert torch_zip.blob_bytes(torch_zip.names_pickle_bytes(letters, count)) == NAMES[count]
