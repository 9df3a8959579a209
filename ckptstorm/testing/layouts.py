"""The contract suite of layouts: subclass `LayoutContract`, say how to make one, inherit the tests.

class TestMine(LayoutContract):
    def make(self, rank_count): return MyLayout(scene(rank_count), MyOptions())
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from ckptstorm.layouts.contract import Layout
from ckptstorm.layouts.formats.python_io import KERNEL_LIMIT_BYTES
from ckptstorm.lowering import lower
from ckptstorm.program import READS, WRITES, Kind, Program, open_flags
from ckptstorm.steps import Call, Facts, Meet, ReadFile, Record, Run, Step, WriteFile

#: One, few, odd, and more ranks than some tensors have rows.
_WORLDS = (1, 2, 3, 7, 16)
_BLOCKS = (4096, 1 << 20)


def runs(steps: Iterable[Step]) -> Iterator[Run]:
    """The steps that are I/O."""
    return (step for step in steps if isinstance(step, Run))


def items(steps: Iterable[Step]) -> Iterator[Call | WriteFile | ReadFile]:
    """All items of all threads, in order."""
    return (item for run in runs(steps) for draft in run.drafts for item in draft)


def programs(steps: Iterable[Step], facts: Facts) -> list[Program]:
    """Every draft, lowered."""
    return [lower(draft, facts) for run in runs(steps) for draft in run.drafts]


def written_files(program: Program) -> set[str]:
    """Where the program's opens for writing lead."""
    opens = program.ops[program.ops["kind"] == Kind.OPEN]
    is_write = [open_flags(int(length))[0] & os.O_ACCMODE != os.O_RDONLY for length in opens["length_bytes"]]
    return {program.location(int(row["file"])) for row, wanted in zip(opens, is_write, strict=True) if wanted}


def _places(records: Iterable[Record]) -> Iterator[tuple[int, int]]:
    """(offset, size) of each record of a file."""
    at = 0
    for record in records:
        for _ in range(record.count):
            yield at, record.size_bytes
            at += record.size_bytes


class LayoutContract:
    """What must hold for every layout. Override `make`."""

    def make(self, rank_count: int) -> Layout:
        """The layout under test, for a small model on `rank_count` ranks."""
        raise NotImplementedError

    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_no_two_ranks_write_one_file(self, rank_count: int) -> None:
        """Every file is created by one rank, which says so beforehand; and nothing else is created."""
        layout, seen = self.make(rank_count), Counter[str]()
        for rank in range(rank_count):
            made = {item.path.name for item in items(layout.save(rank)) if isinstance(item, WriteFile)}
            made |= {
                item.target.name
                for item in items(layout.save(rank))
                if isinstance(item, Call) and item.kind is Kind.RENAME and item.target is not None
            }
            assert made == set(layout.created(rank))
            seen.update(made)
        assert set(seen.values()) == {1}

    @pytest.mark.parametrize("block_size_bytes", _BLOCKS)
    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_writes_append(self, rank_count: int, block_size_bytes: int) -> None:
        """A file's writes follow one another from 0 to its stated size, none above the kernel's limit."""
        layout = self.make(rank_count)
        for rank in range(rank_count):
            for program in programs(layout.save(rank), Facts(block_size_bytes)):
                ends: dict[int, int] = {}
                for row in program.ops[np.isin(program.ops["kind"], WRITES)]:
                    assert row["offset_bytes"] == ends.get(int(row["file"]), 0)
                    assert 0 < row["length_bytes"] <= KERNEL_LIMIT_BYTES
                    ends[int(row["file"])] = int(row["offset_bytes"]) + int(row["length_bytes"])
                for file, end in ends.items():
                    assert program.paths[file].size_bytes == end

    @pytest.mark.parametrize("block_size_bytes", _BLOCKS)
    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_reads_find_what_was_written(self, rank_count: int, block_size_bytes: int) -> None:
        """A restore opens files that a save made, of the same size and writer, and moves bytes in each read."""
        layout = self.make(rank_count)
        made = {
            item.path.name: (item.path.rank, item.path.size_bytes)
            for rank in range(rank_count)
            for item in items(layout.save(rank))
            if isinstance(item, WriteFile)
        }
        made |= {".metadata": made[".metadata.tmp"]} if ".metadata.tmp" in made else {}
        for rank in range(rank_count):
            for program in programs(layout.restore(rank), Facts(block_size_bytes)):
                is_read = np.isin(program.ops["kind"], READS)
                assert (program.expected_bytes()[is_read] > 0).all()
                for path in (program.paths[file] for file in set(program.ops["file"][is_read].tolist())):
                    assert made[path.name] == (path.rank, path.size_bytes)

    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_reads_are_of_whole_records(self, rank_count: int) -> None:
        """A restore asks for items where the save put them, and for each of their bytes' size."""
        layout = self.make(rank_count)
        written = {
            (item.path.content_name, at, size)
            for rank in range(rank_count)
            for item in items(layout.save(rank))
            if isinstance(item, WriteFile)
            for at, size in _places(item.records)
        }
        for rank in range(rank_count):
            for item in items(layout.restore(rank)):
                if isinstance(item, ReadFile) and item.path.name != ".metadata":
                    for at, record in zip(item.offsets_bytes, item.records, strict=True):
                        assert (item.path.name, at, record.size_bytes) in written

    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_nothing_is_visible_before_all_data(self, rank_count: int) -> None:
        """A commit that renames follows all data of its rank and a meet after it."""
        layout = self.make(rank_count)
        for rank in range(rank_count):
            steps = layout.save(rank)
            commits = [at for at, step in enumerate(steps) if isinstance(step, Run) and step.part == "commit"]
            data = [at for at, step in enumerate(steps) if isinstance(step, Run) and step.part == "data"]
            for at in commits:
                assert max(data) < at
                if any(item.kind is Kind.RENAME for item in items([steps[at]]) if isinstance(item, Call)):
                    assert any(isinstance(step, Meet) for step in steps[max(data) : at])

    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_meets_agree(self, rank_count: int) -> None:
        """All ranks meet in the same order with messages of one size, or the storm would hang."""
        layout = self.make(rank_count)
        for phase in (layout.save, layout.restore):
            orders = {
                tuple(
                    (step.kind, step.why, step.scope, step.bytes_per_rank)
                    for step in phase(rank)
                    if isinstance(step, Meet)
                )
                for rank in range(rank_count)
            }
            assert len(orders) == 1

    @pytest.mark.parametrize("rank_count", _WORLDS)
    def test_census_is_the_sum_of_all_plans(self, rank_count: int) -> None:
        """Closed form equals brute force: records, and bytes of each rank."""
        layout = self.make(rank_count)
        census, records = layout.census(), Counter[Record]()
        for rank in range(rank_count):
            size = 0
            for run in runs(layout.save(rank)):
                for item in items([run]):
                    if isinstance(item, WriteFile) and run.part == "data":
                        size += item.path.size_bytes
                        for record in item.records:
                            one = Record(record.pieces, record.is_flushed, 1, record.tensor_count)
                            records[one] += record.count
            assert census.file_bytes[rank] == size
        assert {record: count for record, count in census.records.items() if count} == dict(records)

    def test_plans_are_values(self) -> None:
        """A plan does not depend on who asks, when, or what was planned before."""
        once = [self.make(3).save(rank) for rank in (0, 1, 2)]
        again = [self.make(3).save(rank) for rank in (2, 1, 0)]
        assert once == again[::-1]
