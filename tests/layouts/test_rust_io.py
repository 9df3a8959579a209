"""Rust's BufWriter: the traced calls, and what must hold for any writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.layouts.formats.rust_io import BUFFER_BYTES, buffered

#: Length and header of a file; 150 tensors of 1 KiB; tensors around the size of the buffer; one of 2 bytes.
WRITES = (8, 11_392, *(1024,) * 150, 10_000, 8192, 8190, 2, 8190)
# safetensors 0.5.3 and 0.7.0, and 0.8.0, under strace.
TRACED = {"rust_8k": [8, 11_392, *(8192,) * 18, 6144, 10_000, 8192, 8192, 8190], "rust_1m": [199_574]}


@pytest.mark.parametrize("api", BUFFER_BYTES)
def test_traced_calls(api):
    """Writes of these sizes reach the kernel in the traced calls."""
    assert [sum(call) for call in buffered(WRITES, BUFFER_BYTES[api])] == TRACED[api]


def test_a_write_as_large_as_the_buffer_goes_past_it():
    """And what comes after it is held apart: it is not filled up."""
    assert buffered((10, 10, 3), 10) == [(10,), (10,), (3,)]


def test_a_full_buffer_waits():
    """A buffer that is exactly full is sent when the next write comes, or at the end."""
    assert buffered((4, 6, 1), 10) == [(4, 6), (1,)]
    assert buffered((4, 6), 10) == [(4, 6)]


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 20))
def test_writes_are_never_split_or_reordered(pieces, buffer_bytes):
    """Calls are the writes in order; one with several fits the buffer, and could not have held the next one."""
    calls = buffered(pieces, buffer_bytes)
    assert [piece for call in calls for piece in call] == pieces
    for call, following in zip(calls, [*calls[1:], (buffer_bytes + 1,)], strict=False):
        assert len(call) == 1 or sum(call) <= buffer_bytes
        is_past_the_buffer = call[0] >= buffer_bytes
        assert is_past_the_buffer or sum(call) + following[0] > buffer_bytes


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 20))
def test_the_groups_are_their_own(pieces, buffer_bytes):
    """A call's writes alone, from an empty buffer, make that call: so a plan may store them as one record."""
    for call in buffered(pieces, buffer_bytes):
        assert buffered(call, buffer_bytes) == [call]
