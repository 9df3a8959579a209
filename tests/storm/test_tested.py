"""Several directories under test: who writes where, who finds it again, and each with its own numbers."""

from __future__ import annotations

import os

import pytest

from ckptstorm.errors import JobError, PlaceError
from ckptstorm.jobfile import decode
from ckptstorm.model.parallel import World
from ckptstorm.plan import totals
from ckptstorm.program import READS, Kind, Path, Program, op, table
from ckptstorm.storm.lowered import LoweredRun
from ckptstorm.storm.tested import check_more, index_of, located, made_directories
from tests.conftest import TINY
from tests.services.loop import loop
from tests.storm.test_file_systems import JOB, on_nodes  # noqa: F401 - a fixture

_TWO = "[model]\nshard_bytes = '1MiB'\n[layout]\nname = 'file_per_rank'\n"


def test_ranks_are_dealt_one_by_one_or_by_node():
    """Eight ranks on two nodes over three and over two directories."""
    nodes = [0, 0, 0, 0, 1, 1, 1, 1]
    assert [index_of(rank, node, 3, "rank") for rank, node in enumerate(nodes)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [index_of(rank, node, 2, "node") for rank, node in enumerate(nodes)] == nodes


def test_paths_lead_to_the_directory_of_who_wrote_them():
    """A file of another rank is absolute, one's own is relative, and a round renames the step in all of them."""
    paths = (Path(1, ""), Path(1, "own", 1, 10), Path(1, "other", 0, 10), Path(1, "looked-for", 0))
    rows = [op(Kind.MKDIR, 0), *(op(READS[0], file, 0, 10) for file in (1, 2))]
    program = Program(table(rows), paths, ("", "step-0"))
    stages = (LoweredRun((program,), "data"),)
    (stage,) = located(stages, ("/a", "/b"), 1, lambda writer: writer % 2, 1)
    (moved,) = stage.programs
    assert [moved.location(file) for file in range(4)] == [
        "step-0",
        "step-0/own",
        "/a/step-0/other",
        "step-0/looked-for",
    ]
    assert moved.in_step("step-7").location(2) == "/a/step-7/other"
    assert moved.in_step("step-7").location(1) == "step-7/own"
    assert located(stages, ("/a",), 0, lambda writer: 0, 0) is stages
    assert made_directories(stages) == {""}


@pytest.mark.parametrize(
    ("job", "names", "spread", "error", "says"),
    [
        (_TWO, ("a", "b", "c", "d", "e"), "rank", PlaceError, "5 directories under test, and 4 ranks"),
        (_TWO, ("a", "b"), "node", PlaceError, "2 directories under test, and 1 node to spread"),
        (_TWO, ("a", "a/b"), "rank", PlaceError, "lie in one another"),
        (_TWO, ("a", "a"), "rank", PlaceError, "lie in one another"),
        (_TWO, ("a", "full"), "rank", PlaceError, "full: is not empty"),
        (_TWO.replace("file_per_rank", "shared_file"), ("a", "b"), "rank", JobError, "would get no file"),
    ],
)
def test_directories_that_cannot_be_are_refused(tmp_path, job, names, spread, error, says):
    """Too many, in one another, foreign, or without a file to hold."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    read, world = decode(job, "job.toml"), World(4, 4)
    directories = tuple(str(tmp_path / name) for name in names)
    with pytest.raises(error, match=says):
        check_more(read, world, totals(read, world), directories, spread)
    assert sorted(os.listdir(tmp_path)) == ["full"]


@pytest.mark.mpi
def test_two_file_systems_under_one_storm(storm, place):
    """XFS and ext4, two ranks each: each with its facts, its bytes by its own device, its receipts; both left clean."""
    with loop("xfs") as one, loop("ext4") as two:
        named = [str(one.mount / "data"), str(two.mount / "data")]
        ended = storm("--dir", named[0], "--dir", named[1], job=JOB, ranks=4)
        left = [os.path.exists(path) for path in named]
    assert ended.code == 0, ended.said
    assert left == [False, False]
    assert [each["directory"] for each in ended.data["directories"]] == named
    assert [each["file_system"] for each in ended.data["directories"]] == ["xfs", "ext4"]
    for each in ended.data["directories"]:
        assert [(phase["phase"], phase["rank_count"], phase["bytes"]) for phase in each["phases"]] == [
            ("save", 2, 16 << 20),
            ("restore", 2, 16 << 20),
        ]
        assert {name: receipt["state"] for name, receipt in each["receipts"].items()} == {
            "durable": "yes",
            "cold": "cold",
            "verified": "all",
        }
        assert "at the device" in each["receipts"]["cold"]["evidence"]
    save = next(phase for phase in ended.data["phases"] if phase["phase"] == "save")
    assert sorted(traffic["directory"] for traffic in save["traffic"]) == [0, 1]
    assert ended.data["environment"]["directory_of_rank"] == [0, 1, 0, 1]


@pytest.mark.mpi
def test_files_are_left_in_each_and_cleaned_in_each(ckptstorm, place):
    """--keep-files with a framework's layout: each directory holds its ranks' files and its own mark."""
    (place / "job.toml").write_text(TINY)
    ended = ckptstorm("run", "job.toml", "--ranks", "2", "--keep-files", "--dir", "a", "--dir", "b")
    assert ended.code in (0, 1), ended.said
    assert sorted(os.listdir(place / "a" / "step-0")) == [".metadata", "__0_0.distcp"]
    assert sorted(os.listdir(place / "b" / "step-0")) == ["__1_0.distcp"]
    for name in ("a", "b"):
        assert f"ckptstorm clean {place / name}" in ended.err
        assert ckptstorm("clean", name).code == 0
        assert not (place / name).exists()


@pytest.mark.mpi
def test_a_directory_a_node_and_everybody_reads_the_other(on_nodes, tmp_path):  # noqa: F811
    """Spread by node, restored from the other node: every byte is read where its writer put it."""
    shared = tmp_path / "shared"
    arguments = ("--dir", str(shared / "other"), "--spread", "node")
    code, data, err = on_nodes((None, None), shared, *arguments)
    assert code in (0, 1), err
    assert data["receipts"]["verified"]["state"] == "all"
    assert data["environment"]["directory_of_rank"] == [0, 0, 1, 1]
    assert data["environment"]["source_of_rank"] == [1, 1, 0, 0]
