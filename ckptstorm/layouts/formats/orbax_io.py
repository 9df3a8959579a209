"""Sizes of what Orbax writes around the arrays, by their number: laws through one trace.

Traced with Orbax 0.12.8 and tensorstore 0.1.86: one process, 66 arrays in four chunks each.
"""

from __future__ import annotations

_TRACED_ARRAYS = 66
_TRACED_CHUNKS = 4

CHECKPOINT_METADATA_BYTES = 165
SUCCESS_BYTES = 62
MERGED_MANIFEST_BYTES = 119
#: A part of the index that is flushed early: 187 to 391 bytes traced, 305 on average.
NODE_BYTES = 305
# 30,882 bytes for the merged index: a description and four chunks of each array.
_ENTRY_BYTES = 30_882 / (_TRACED_ARRAYS * (1 + _TRACED_CHUNKS))
# The manifest remembers its versions: 113 bytes at first, 387 after six more.
_MANIFEST_BYTES, _VERSION_BYTES = 113, 45


def node_bytes(array_count: int, chunks_per_array: float) -> int:
    """The index of so many arrays; never empty."""
    return max(NODE_BYTES, int(_ENTRY_BYTES * array_count * (1 + chunks_per_array)))


def manifest_bytes(version: int) -> int:
    """A process's manifest, counted from 0."""
    return _MANIFEST_BYTES + _VERSION_BYTES * version


def arrays_bytes(array_count: int) -> int:
    """`array_metadatas/process_N`: 8,513 bytes traced."""
    return max(2, 8513 * array_count // _TRACED_ARRAYS)


def metadata_bytes(array_count: int) -> int:
    """`_METADATA`: 14,215 bytes traced."""
    return 14_215 * array_count // _TRACED_ARRAYS


def sharding_bytes(array_count: int) -> int:
    """`_sharding`: 17,115 bytes traced."""
    return 17_115 * array_count // _TRACED_ARRAYS
