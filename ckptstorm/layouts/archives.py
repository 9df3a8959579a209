"""Counts of layouts whose files are whole archives of `torch.save`, from one rank of each class of equal files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.contract import Census
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.steps import Record

Int64s = NDArray[np.int64]

#: (first rank, class by rank, how many ranks) of each set of ranks whose files have equal sizes.
Classes = tuple[Int64s, Int64s, Int64s]


def census(classes: Classes, archives_of: Callable[[int], Sequence[Archive]]) -> Census:
    """Data files of all ranks, when ranks of a class have archives of equal sizes."""
    first, class_of, _ = classes
    records, sizes, file_count = Counter[Record](), [], 0
    for rank, rank_count in pairs(classes):
        archives = archives_of(rank)
        for archive in archives:
            records[torch_save.record(archive)] += rank_count
        sizes.append(sum(map(torch_save.size_bytes, archives)))
        file_count += len(archives) * rank_count
    assert len(sizes) == len(first)
    return Census(records, np.array(sizes, dtype=np.int64)[class_of], file_count)


def pairs(classes: Classes) -> tuple[tuple[int, int], ...]:
    """(rank, how many ranks it stands for) of each class."""
    first, _, counts = classes
    return tuple(zip(first.tolist(), counts.tolist(), strict=True))
