"""The layout contract where ranks share a file: what it says of a file's owner is said of its ranges."""

import itertools

import numpy as np
import pytest

from ckptstorm.lowering import lower
from ckptstorm.program import READS, WRITES
from ckptstorm.steps import Facts, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs, runs

WORLDS = (1, 3, 4, 7, 64)


def ranges(program, kinds):
    """(file, start, stop) of the program's ops of these kinds."""
    rows = program.ops[np.isin(program.ops["kind"], kinds)]
    return [
        (program.location(int(row["file"])), int(row["offset_bytes"]), int(row["offset_bytes"] + row["length_bytes"]))
        for row in rows
    ]


class SharedFileContract(LayoutContract):
    """The contract of layouts that let ranks write into one file. Override `make`."""

    #: Whether a file is full: no place in it is left to nobody.
    is_dense = True

    @pytest.mark.parametrize("rank_count", WORLDS)
    def test_no_two_ranks_write_one_file(self, rank_count):
        """Every file is removed by one rank, all agree on its image and size, and none truncates it."""
        layout = self.make(rank_count)
        paths = {item.path for rank in range(rank_count) for item in items(layout.save(rank)) if is_write(item)}
        assert len({path.name for path in paths}) == len(paths)
        created = [name for rank in range(rank_count) for name in layout.created(rank)]
        assert sorted(created) == sorted(path.name for path in paths)

    @pytest.mark.parametrize("block_size_bytes", (4096, 1 << 20))
    @pytest.mark.parametrize("rank_count", WORLDS)
    def test_writes_append(self, rank_count, block_size_bytes):
        """The writes of all ranks never overlap, end at the file's size, and leave no gap where none is meant."""
        layout, written, sizes = self.make(rank_count), {}, {}
        for rank in range(rank_count):
            for program in programs(layout.save(rank), Facts(block_size_bytes)):
                for file, start, stop in ranges(program, WRITES):
                    written.setdefault(file, []).append((start, stop))
                sizes |= {program.location(index): path.size_bytes for index, path in enumerate(program.paths)}
        for file, places in written.items():
            ordered = sorted(places)
            gaps = [start - stop for (_, stop), (start, _) in itertools.pairwise(ordered)]
            assert min(gaps, default=0) >= 0
            assert ordered[-1][1] == sizes[file]
            if self.is_dense:
                assert ordered[0][0] == 0
                assert max(gaps, default=0) == 0

    @pytest.mark.parametrize("rank_count", WORLDS)
    def test_reads_are_of_whole_records(self, rank_count):
        """A rank's restore reads the very ranges that its save wrote, in the same order."""
        layout = self.make(rank_count)
        for rank in range(rank_count):
            wrote, read = (
                [place for program in programs(steps, Facts(4096)) for place in ranges(program, kinds)]
                for steps, kinds in ((layout.save(rank), WRITES), (layout.restore(rank), READS))
            )
            assert wrote == read

    @pytest.mark.parametrize("rank_count", WORLDS)
    def test_census_is_the_sum_of_all_plans(self, rank_count):
        """Closed form equals brute force: records, bytes of each rank, tensors, files."""
        layout = self.make(rank_count)
        census, records, tensors, files = layout.census(), {}, 0, set()
        for rank in range(rank_count):
            size = 0
            for run in runs(layout.save(rank)):
                for item in items([run]):
                    if is_write(item):
                        files.add(item.path)
                        written = lower((item,), Facts(4096)).ops
                        size += int(written["length_bytes"][np.isin(written["kind"], WRITES)].sum())
                        for record in item.records:
                            key = (record.pieces, record.tensor_count)
                            records[key] = records.get(key, 0) + record.count
                            tensors += record.count * record.tensor_count
            assert census.file_bytes[rank] == size
        assert {(record.pieces, record.tensor_count): count for record, count in census.records.items()} == records
        assert sum(record.tensor_count * count for record, count in census.records.items()) == tensors > 0
        assert census.file_count == len(files)


def is_write(item):
    """Whether an item is a file written."""
    return isinstance(item, WriteFile)
