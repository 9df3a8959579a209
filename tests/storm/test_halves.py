"""Split storms: what a save leaves, whose bytes a restore reads, how both halves become one record, what is refused."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.job import Job, to_builtins
from ckptstorm.jobfile import decode
from ckptstorm.measure.rows import Phase
from ckptstorm.record import files
from ckptstorm.record.receipts import receipts
from ckptstorm.record.record import Node
from ckptstorm.storm import halves
from ckptstorm.storm import saved as saved_module
from ckptstorm.storm.saved import Saved, SavedFile, SavedRound, job_to_restore, sources
from tests.conftest import TINY
from tests.record import synthetic
from tests.record.synthetic import Make

TWO_ROUNDS = TINY.replace("rounds = 1", "rounds = 2\nwarmup = 1\nkeep = 2")


@pytest.mark.mpi
@pytest.mark.io
def test_both_halves_become_one_record(storm, ckptstorm, place):
    """Two checkpoints are left with their manifest; the restore reads each once, joins the save, and cleans up."""
    ended = storm("--only", "save", job=TWO_ROUNDS)
    first = ended.data
    assert "--only restore --from" in ended.err
    assert [phase["phase"] for phase in first["phases"]].count("save") == 3
    assert not any(phase["phase"] == "restore" for phase in first["phases"])
    left = json.loads((place / "ckptstorm-data/.ckptstorm-saved").read_text())
    assert [(each["index"], each["round"]) for each in left["rounds"]] == [(1, 1), (2, 2)]
    for each in left["rounds"]:
        for file in each["files"]:
            assert (place / "ckptstorm-data" / each["step"] / file["name"]).stat().st_size == file["bytes"]
    data = storm("--only", "restore", "--from", "ckptstorm-data", job=TWO_ROUNDS).data
    measured = [(phase["phase"], phase["round"]) for phase in data["phases"] if phase["round"] >= 1]
    assert [name for name, _ in measured].count("save") == 2
    assert [pair for pair in measured if pair[0] == "restore"] == [("restore", 1), ("restore", 2)]
    assert data["receipts"]["verified"]["state"] == "all"
    assert data["receipts"]["durable"]["state"] == "yes"
    assert "100 % of the bytes had been written on the node that read them" in data["receipts"]["cold"]["evidence"]
    assert data["environment"]["halves"]["save"]["storm_id"] == first["storm_id"]
    assert not any("ROUNDS" in reason for reason in data["verdict"]["reasons"])
    assert not (place / "ckptstorm-data").exists()
    (folder,) = [path for path in (place / "results").iterdir() if path.name == data["storm_id"]]
    assert "Halves" in ckptstorm("report", str(folder)).out


@pytest.mark.mpi
@pytest.mark.io
def test_a_flipped_byte_is_found_hours_later(storm, place):
    """The payload is a function of the manifest's seed, round, file and offset: the restore needs no memory."""
    storm("--only", "save")
    path = next((place / "ckptstorm-data").glob("step-*/__1_0.distcp"))
    with path.open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    ended = storm("--only", "restore", "--from", "ckptstorm-data")
    assert ended.code == 3
    assert ended.data["receipts"]["verified"]["state"] == "no"


@pytest.mark.mpi
@pytest.mark.io
def test_what_does_not_fit_is_refused_and_touches_nothing(storm, ckptstorm, place):
    """Another world, another layout, nothing saved; `clean` removes what a save left, manifest and all."""
    assert "nothing to restore" in storm("--only", "restore", "--from", "absent").err
    assert "of what?" in storm("--only", "restore").err
    assert "--only restore alone" in storm("--from", "x").err
    storm("--only", "save")
    before = sorted((place / "ckptstorm-data").rglob("*"))
    ended = storm("--only", "restore", "--from", "ckptstorm-data", ranks=1)
    assert ended.code == 2
    assert "was saved by 2 ranks, and there are 1" in ended.err
    ended = storm("--only", "restore", "--from", "ckptstorm-data", "--set", "layout.name=file_per_rank")
    assert "saved with [layout] name = 'dcp', and this job says 'file_per_rank'" in ended.err
    ended = storm("--only", "restore", "--from", "ckptstorm-data", "--set", "restore.from=other-node")
    assert "2 of 2 ranks would read what their own node wrote" in ended.err
    assert "still holds the files of storm" in storm("--dir", "ckptstorm-data").err
    assert sorted((place / "ckptstorm-data").rglob("*")) == before
    assert ckptstorm("clean", "ckptstorm-data").code == 0
    assert not (place / "ckptstorm-data").exists()


def test_no_node_reads_what_it_wrote_wherever_that_can_be():
    """Over random places of writers and readers: a bijection, with as few own reads as any bijection can have."""
    draw = random.Random(8)
    for _ in range(3000):
        ranks, hosts = draw.randint(1, 12), draw.randint(1, 5)
        writers = [str(draw.randrange(hosts)) for _ in range(ranks)]
        readers = [str(draw.randrange(hosts)) for _ in range(ranks)]
        found = sources(writers, readers)
        assert sorted(found) == list(range(ranks))
        own = sum(writers[source] == reader for source, reader in zip(found, readers, strict=True))
        both = Counter(writers) + Counter(readers)
        assert own == max(0, *(count - ranks for count in both.values()))


def _saved(**changes) -> dict:
    saved = Saved(
        "s", 1, to_builtins(Job()), 1, ("m",), (0,), "/r",
        (SavedRound(0, 1, "step-0", (SavedFile("a", 1, (0,)),)),),
    )  # fmt: skip
    plain = json.loads(saved_module.msgspec.json.encode(saved))
    return plain | changes


def _round(file: dict) -> dict:
    return {"index": 0, "round": 1, "step": "step-0", "files": [file]}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rounds": []}, "it names no checkpoint"),
        ({"machine_of_rank": [1]}, "do not fit together"),
        ({"machine_of_rank": [0, 0]}, "do not fit together"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"rounds": [{"index": 0, "round": 1, "step": "../etc", "files": []}]}, "step"),
        ({"rounds": [_round({"name": "../x", "bytes": 1, "writers": [0]})]}, "leads elsewhere"),
        ({"rounds": [_round({"name": "x", "bytes": 1, "writers": [7]})]}, "a machine that there is not"),
    ],
)  # fmt: skip
def test_a_strangers_manifest_is_refused(tmp_path, changes, problem):
    """It is data: whatever stands in it, one sentence and nothing opened."""
    path = tmp_path / ".ckptstorm-saved"
    path.write_text(json.dumps(_saved()))
    assert saved_module.read(str(tmp_path)).storm_id == "s"
    path.write_text(json.dumps(_saved(**changes)))
    with pytest.raises(PlaceError, match="damaged: ") as raised:
        saved_module.read(str(tmp_path))
    assert problem in str(raised.value)
    for raw in (b"", b"{", b"\xff", b"[" * 10000):
        path.write_bytes(raw)
        with pytest.raises(PlaceError, match="damaged"):
            saved_module.read(str(tmp_path))


def test_a_restore_keeps_its_own_limits_and_the_saves_rounds():
    """[slo], [io] and [restore] are the restore's; rounds and durability are what was saved."""
    was = decode("[storm]\nrounds = 7\nwarmup = 2\n[io]\ndurability = 'fsync'", "a")
    asked = decode("[storm]\nrounds = 1\n[slo]\nrestore_seconds = 5\n[restore]\nverify = 0.5", "b")
    saved = Saved("s", 1, to_builtins(was), 1, ("m",), (0,), "/r", ())
    job = job_to_restore(saved, asked, "DIR")
    assert (job.storm.rounds, job.storm.warmup, job.io.durability) == (7, 2, "fsync")
    assert (job.slo, job.restore.verify) == (asked.slo, 0.5)


def test_the_other_halfs_nodes_are_numbered_anew(tmp_path):
    """Saved on two nodes, restored on one of them and a third: rows and timelines still name the right hosts."""
    save = replace(synthetic.record(Make(nodes=2)), storm_id="save", nodes=(Node("a", 2), Node("b", 2)))
    save = replace(save, phases=tuple(phase for phase in save.phases if phase.phase == Phase.SAVE))
    files.write(save, tmp_path / "save")
    whole = synthetic.record(Make(nodes=2))
    restore = replace(
        whole,
        storm_id="restore",
        nodes=(Node("c", 2), Node("b", 2)),
        phases=tuple(phase for phase in whole.phases if phase.phase == Phase.RESTORE),
        environment=whole.environment
        | {"halves": {"run": "restore", "planned": {"save": 0, "restore": 3}, "save": {}}},
    )
    saved = Saved("save", 1, {}, 4, ("a", "b"), (0, 0, 1, 1), str(tmp_path / "save"), ())
    joined = halves.joined(restore, halves.Part("restore", Job(), saved))
    assert [node.host for node in joined.nodes] == ["c", "b", "a"]
    first = joined.phases[0]
    assert first.phase == Phase.SAVE
    assert [joined.nodes[node].host for node in first.rows["node"]] == ["a", "a", "b", "b"]
    moved = {joined.nodes[node].host: int(first.timeline.bins["bytes"][node].sum()) for node in range(3)}
    assert moved["c"] == 0 and moved["a"] > 0 and moved["b"] > 0
    files.write(joined, tmp_path / "joined")
    assert len(files.load(tmp_path / "joined").phases) == 6
    lost = halves.joined(restore, halves.Part("restore", Job(), msgspec.structs.replace(saved, result="/absent")))
    assert "no result folder" in lost.environment["halves"]["save"]["missing"]
    assert len(lost.phases) == 3


@pytest.mark.parametrize(("own", "resident", "state"), [(0.0, -1.0, "cold"), (0.5, -1.0, "warm"), (0.5, 0.0, "cold")])
def test_what_a_node_wrote_itself_makes_its_restore_warm(own, resident, state):
    """By the save's manifest; only pages that are proved to be gone say otherwise."""
    made = synthetic.record(Make(resident_share=resident))
    asked = made.asked | {"restore.from": ("auto", "own" if own else "other-node")}
    made = replace(made, environment=made.environment | {"own_written_share": own}, asked=asked)
    receipt = receipts(made)["cold"]
    assert receipt.state == state
    assert "by the save's manifest" in receipt.evidence
