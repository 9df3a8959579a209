"""What must pass between clients and storage: each byte once a node, however often it is read."""

from __future__ import annotations

import os

from ckptstorm.measure.traffic import Span, largest, least_bytes, spans
from ckptstorm.program import READS, WRITES, Kind, Path, Program, op, open_length, table

_OPEN = op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDONLY))


def _program(*rows, sizes=(1000, 500)):
    paths = tuple(Path(1, name, 0, size) for name, size in zip("ab", sizes, strict=True))
    return Program(table([_OPEN, *rows]), paths, ("", "step-0"))


def test_a_span_counts_each_byte_once():
    """Overlapping, repeated and nested reads, in any order; a hole is not counted, a read beyond the end is cut."""
    reads = [(600, 100), (0, 300), (200, 200), (250, 10), (900, 300)]
    program = _program(*(op(Kind.READ, 0, *read) for read in reads), op(Kind.READ, 1, 0, 50))
    assert spans([program], READS) == [Span("step-0/a", 0, 1000, 600), Span("step-0/b", 0, 50, 50)]
    assert spans([program], WRITES) == []


def test_programs_of_one_rank_are_taken_together():
    """Two threads that read halves of a file read the file."""
    halves = [_program(op(Kind.READ, 0, 0, 500)), _program(op(Kind.READ, 0, 500, 500))]
    assert spans(halves, READS) == [Span("step-0/a", 0, 1000, 1000)]


def test_what_ranks_of_a_node_share_comes_once():
    """Four ranks read one file, two read halves of another, two read files of their own."""
    shared = [Span("metadata", 0, 100, 100)] * 4
    halves = [Span("x", 0, 50, 50), Span("x", 50, 100, 40)]
    own = [Span("y", 0, 10, 10), Span("z", 0, 10, 10)]
    assert least_bytes([*shared, *halves, *own]) == 100 + 90 + 20
    assert least_bytes([]) == 0


def test_partly_shared_ranges_count_the_larger():
    """A chain of overlaps is one group: no more than its largest part is certain to have passed."""
    chain = [Span("x", 0, 60, 60), Span("x", 50, 100, 50), Span("x", 90, 200, 110), Span("x", 200, 210, 10)]
    assert least_bytes(chain) == 110 + 10


def test_leaving_out_small_files_only_makes_less_due():
    """Of a hundred files the two largest are told of; what is due from them is no more than from all."""
    many = [Span(f"file-{number}", 0, number, number) for number in range(100)]
    assert [one.location for one in largest(many, 2)] == ["file-99", "file-98"]
    assert least_bytes(largest(many, 2)) == 197 < least_bytes(many)
