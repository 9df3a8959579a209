"""Where files lie: each rank asks for its own, a sample of them when there are many, and no longer than it may."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ckptstorm.filesystems.contract import CannotError, Placement
from ckptstorm.storm import placing


class _Asked:
    """A file system that says where a file lies, and remembers what it was asked."""

    def __init__(self, reason: str = "") -> None:
        self.paths: list[str] = []
        self._reason = reason

    def placement(self, path: str) -> Placement:
        """By the last letter of the name."""
        if self._reason:
            raise CannotError("placement", self._reason)
        self.paths.append(path)
        return Placement((f"OST{path[-1]}",), {"stripe_count": 1})


class _Alone:
    """A world of one rank, of which its place in a larger one is of no concern."""

    rank_count = 4

    def texts_on_rank_0(self, text: str) -> list[str]:
        """What rank 0 gets of everybody."""
        return [text]


@pytest.fixture
def crew(tmp_path):
    """A rank that has made ten files of 100 bytes, and one that is not there."""
    (tmp_path / "step-0").mkdir()
    names = tuple(f"shard-{number}" for number in range(10))
    for name in names:
        (tmp_path / "step-0" / name).write_bytes(b"a" * 100)
    plan = SimpleNamespace(created=(*names, "never-made"))
    return SimpleNamespace(directory=str(tmp_path), plan=plan, cluster=_Alone(), file_system=_Asked())


def test_every_file_is_asked_for_and_its_bytes_are_counted(crew):
    """Ten files on ten targets; the one that a failed save never made is no file."""
    found = placing.placement(crew, "step-0")
    assert (found["file_count"], found["asked_count"]) == (10, 10)
    assert found["targets"]["OST7"] == {"files": 1, "bytes": 100}
    assert found["map"][3] == [0, "shard-3", [list(found["targets"]).index("OST3")]]
    assert found["details"] == {"stripe_count": 1}


def test_of_many_files_a_sample_is_asked_for(crew, monkeypatch):
    """With room for twelve files of four ranks, each asks for three of its ten, spread over them."""
    monkeypatch.setattr(placing, "FILES_MOST", 12)
    found = placing.placement(crew, "step-0")
    assert (found["file_count"], found["asked_count"]) == (10, 3)
    assert [path[-1] for path in crew.file_system.paths] == ["0", "4", "8"]


def test_a_file_system_that_does_not_say_is_asked_once(crew):
    """The reason is what is kept."""
    crew.file_system = _Asked("lfs is not on PATH")
    assert placing.placement(crew, "step-0") == {"cannot": "lfs is not on PATH"}
