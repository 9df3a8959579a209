"""The compiled payload kernels: the same bytes as the NumPy reference, for any slice, alignment and damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm import payload
from ckptstorm.payload import Payload
from ckptstorm.program import Path

pytestmark = pytest.mark.skipif(not payload.HAS_KERNELS, reason="the kernels were not compiled")

_IMAGES = st.builds(
    lambda storm, number, rank: Payload(storm, number).image(Path(1, "__3_0.distcp", rank=rank)),
    st.integers(0, (1 << 64) - 1),
    st.integers(-1, 1 << 30),
    st.integers(0, (1 << 32) - 1),
)
_OFFSETS = st.one_of(st.integers(0, 20_000), st.integers(0, 1 << 62))


def _both(image, length, offset, misaligned_by):
    """The slice made by the kernels, at any address, and by NumPy; the bytes around must stay as they were."""
    room = np.full(length + misaligned_by + 64, 0xA5, dtype=np.uint8)
    image.fill(room[misaligned_by : misaligned_by + length], offset)
    assert (room[:misaligned_by] == 0xA5).all() and (room[misaligned_by + length :] == 0xA5).all()
    reference = np.empty(length, dtype=np.uint8)
    image.fill_with_numpy(reference, offset)
    return room[misaligned_by : misaligned_by + length], reference


@given(image=_IMAGES, length=st.integers(0, 30_000), offset=_OFFSETS, misaligned_by=st.integers(0, 63))
@settings(max_examples=200, deadline=None)
def test_kernels_make_the_bytes_of_the_reference(image, length, offset, misaligned_by):
    """Any storm, round, rank, offset, length and address: byte for byte the same, and nothing beside it is touched."""
    made, reference = _both(image, length, offset, misaligned_by)
    assert (reference == made).all()
    assert image.compare_with_kernels(made, offset) == (0, 0, 0)


@given(
    image=_IMAGES,
    length=st.integers(1, 30_000),
    offset=_OFFSETS,
    damage=st.dictionaries(st.integers(0, 29_999), st.integers(1, 255), min_size=1, max_size=20),
)
@settings(max_examples=200, deadline=None)
def test_kernels_find_what_the_reference_finds(image, length, offset, damage):
    """However many bytes are damaged, and wherever: the same count, the same first place, the same expected byte."""
    found = np.empty(length, dtype=np.uint8)
    image.fill(found, offset)
    for at, flips in damage.items():
        found[at % length] ^= flips
    assert image.compare_with_numpy(found, offset) == image.compare_with_kernels(found, offset)


def test_a_read_only_buffer_is_compared():
    """Bytes that came from a file as an immutable object need no copy."""
    image = Payload(1, 1).image(Path(0, "f"))
    made = np.empty(5000, dtype=np.uint8)
    image.fill(made, 123)
    assert image.check(np.frombuffer(made.tobytes(), dtype=np.uint8), 123, "f") is None


def test_without_kernels_numpy_does_it(monkeypatch):
    """Where there was no compiler, fill and check answer the same."""
    image = Payload(1, 1).image(Path(0, "f"))
    with_kernels, without = np.empty(9000, dtype=np.uint8), np.empty(9000, dtype=np.uint8)
    image.fill(with_kernels, 77)
    damaged = with_kernels.copy()
    damaged[5000] ^= 1
    seen = image.check(damaged, 77, "f")
    monkeypatch.setattr(payload, "HAS_KERNELS", False)
    image.fill(without, 77)
    assert (with_kernels == without).all()
    assert image.check(damaged, 77, "f") == seen
    assert image.check(without, 77, "f") is None
