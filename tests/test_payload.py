"""The payload: any slice is the same bytes, nothing compresses, and a flipped bit has an address."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.payload import GOLDEN, MIX, PAGE_BYTES, STAMP_BYTES, STAMP_DTYPE, STAMP_MAGIC, Payload
from ckptstorm.program import Path

_PATH = Path(1, "__3_0.distcp", rank=3)


def _bytes(payload, path, offset, length):
    out = np.empty(length, dtype=np.uint8)
    payload.image(path).fill(out, offset)
    return out


@given(offset=st.integers(0, 1 << 42), cut=st.integers(0, 20_000), length=st.integers(1, 20_000))
@settings(max_examples=60, deadline=None)
def test_any_slice_is_the_same_bytes(offset, cut, length):
    """What a write of any alignment makes is what a read of any other alignment expects."""
    payload = Payload(11, 2)
    whole = _bytes(payload, _PATH, offset, cut + length)
    assert (_bytes(payload, _PATH, offset + cut, length) == whole[cut:]).all()


def test_the_definition_holds():
    """A word in the middle of a page is the documented function of its place, computed by hand."""
    payload, mask = Payload(5, 1), (1 << 64) - 1
    image = payload.image(_PATH)
    page, word = 7, 100
    key = (image.key + page * GOLDEN) & mask
    key = ((key ^ key >> 30) * MIX) & mask
    key = ((key ^ key >> 27) * 0x94D049BB133111EB) & mask
    x = ((key ^ key >> 31) + word * GOLDEN) & mask
    x = ((x ^ x >> 32) * MIX) & mask
    found = _bytes(payload, _PATH, page * PAGE_BYTES + word * 8, 8)
    assert x == int(found.view("<u8")[0])


def test_each_page_names_its_origin():
    """Storm, round, rank, file and offset stand at each file-aligned 4 KiB, whatever the write's alignment."""
    payload = Payload(0xABCDEF, -1)
    content = _bytes(payload, _PATH, 704, 5 * PAGE_BYTES)
    for page in range(1, 5):
        at = page * PAGE_BYTES - 704
        stamp = content[at : at + STAMP_BYTES].view(STAMP_DTYPE)[0]
        assert tuple(int(stamp[name]) for name in ("magic", "rank", "storm", "round")) == (STAMP_MAGIC, 3, 0xABCDEF, -1)
        assert (payload.file_key("__3_0.distcp"), page * PAGE_BYTES) == (int(stamp["file"]), int(stamp["offset_bytes"]))


def test_storms_rounds_and_files_share_nothing():
    """Another storm, round or file has another 8-byte word everywhere but in the stamps."""
    base = _bytes(Payload(1, 1), _PATH, 0, 1 << 16).view("<u8").reshape(-1, 512)[:, 5:]
    for other in (Payload(2, 1), Payload(1, 2)):
        words = _bytes(other, _PATH, 0, 1 << 16).view("<u8").reshape(-1, 512)[:, 5:]
        assert not np.intersect1d(base, words).size
    words = _bytes(Payload(1, 1), Path(1, "__4_0.distcp", rank=4), 0, 1 << 16).view("<u8").reshape(-1, 512)[:, 5:]
    assert not np.intersect1d(base, words).size


def test_nothing_compresses_or_deduplicates():
    """zstd -3 with a window over all files of a save finds 2 % at most."""
    payload = Payload(99, 1)
    files = [_bytes(payload, Path(1, f"__{rank}_0.distcp", rank=rank), 0, 4 << 20) for rank in range(4)]
    everything = np.concatenate(files).tobytes()
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(everything)
    assert len(everything) / len(packed) <= 1.02


@given(at=st.integers(0, 29_999), bit=st.integers(0, 7), offset=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_one_flipped_bit_is_found_and_named(at, bit, offset):
    """Anywhere in any slice: file, offset, expected and found byte, and only that byte."""
    payload = Payload(3, 1)
    content = _bytes(payload, _PATH, offset, 30_000)
    before = int(content[at])
    content[at] ^= 1 << bit
    seen = payload.image(_PATH).check(content, offset, "step-1/__3_0.distcp")
    assert ("step-1/__3_0.distcp", offset + at, before, before ^ 1 << bit, 1) == (
        seen.file,
        seen.offset_bytes,
        seen.expected,
        seen.found,
        seen.differing_bytes,
    )


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda: _bytes(Payload(3, 1), _PATH, PAGE_BYTES, 8192), "this storm, round 1, rank 3, this file, offset 4096"),
        (lambda: _bytes(Payload(3, 1), Path(1, "x", rank=2), 0, 8192), "this storm, round 1, rank 2, another file"),
        (lambda: _bytes(Payload(3, 0), _PATH, 0, 8192), "this storm, round 0"),
        (lambda: _bytes(Payload(4, 1), _PATH, 0, 8192), "another storm"),
        (lambda: np.zeros(8192, dtype=np.uint8), "holds zeros"),
        (lambda: np.full(8192, 7, dtype=np.uint8), "no stamp of ours"),
    ],
)  # fmt: skip
def test_a_mismatch_says_what_was_found_instead(other, says):
    """Misplaced, foreign, stale, lost and strange pages are told apart by the stamp found there."""
    seen = Payload(3, 1).image(_PATH).check(other(), 0, "x")
    assert says in seen.sentence()
