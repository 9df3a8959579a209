"""A copy for strangers: nothing of who and where is left, nothing of the numbers is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.job import to_builtins
from ckptstorm.jobfile import decode
from ckptstorm.measure.failure import Failure
from ckptstorm.measure.traffic import Traffic
from ckptstorm.record import files, stormjson
from ckptstorm.record.record import MismatchSeen, StormRecord
from ckptstorm.record.verdict import verdict
from ckptstorm.report.anonymous import anonymous
from tests.record import synthetic
from tests.record.synthetic import Make, with_phase

SECRETS = (
    "gpu001", "gpu000", "cluster.example", "/scratch/proj42", "alice", "proj42", "mgs@o2ib", "secret", "zephyr",
    "10.1.2.3", "6.1.0-zephyr", "+0530",
)  # fmt: skip


def _record() -> StormRecord:
    made = synthetic.record(Make(ranks=4, nodes=2, rounds=2))
    nodes = tuple(replace(node, host=f"{node.host}.cluster.example") for node in made.nodes)
    failure = Failure("ENOSPC", "write", 3, nodes[1].host, "step-1/__3_0.distcp", 4096, 5)
    seen = MismatchSeen(1, nodes[0].host, "/scratch/proj42/alice/x/step-1/__1_0.distcp at offset 4096 on gpu000")
    counted = Traffic("mgs@o2ib:zephyr", "servers", nodes[0].host, 0, 9, 1, 2, {"10.1.2.3:9422 reads": 3, "alien": 4})
    made = with_phase(made, 0, failures=(failure,), mismatches=(seen,), traffic=(counted,))
    environment = made.environment | {
        "mount": {"type": "lustre", "path": "/scratch", "source": "mgs@o2ib:/proj42", "size_bytes": 1 << 50,
                  "options": "rw,flock,addr=10.1.2.3,wsize=1048576"},
        "directory": "/scratch/proj42/alice/x",
        "started": "2026-11-01T12:00:00+0530",
        "command": "ckptstorm run secret.toml --dir /scratch/proj42/alice/x",
        "versions": {"ckptstorm": "0.1.0", "linux": "6.1.0-zephyr", "mpi": "MPICH 4.3 built by alice"},
        "allocation": {"account": "proj42", "partition": "zephyr", "ranks_per_node": "2(x2)"},
        "a fact of later": "alice",
        "waits": [{"rank": 3, "host": "gpu001.cluster.example", "op": "write of /scratch/proj42/alice/x/step-1/a"}],
        "file_system": {"adapter": "lustre", "server": "10.1.2.3", "targets": [{"name": "zephyr-1", "size_bytes": 9}]},
    }  # fmt: skip
    job = made.job | {"load": [{"kind": "random", "name": "of alice"[:2], "directory": "/home/alice/data"}]}
    return replace(
        made,
        nodes=nodes,
        environment=environment,
        job=job,
        job_text="# secret project of alice\n[model]\nname = 'llama3-8b'\n",
        ended="lost_rank",
        ended_because="rank 3 on gpu001.cluster.example hung in /scratch/proj42/alice/x/step-1/a, as zephyr said",
    )


def test_nothing_of_who_and_where_is_left(tmp_path):
    """In none of the three files, whatever they are encoded as."""
    files.write(anonymous(_record()), tmp_path / "given")
    for name in (files.JOB_NAME, files.JSON_NAME, files.H5_NAME):
        content = (tmp_path / "given" / name).read_bytes()
        for secret in SECRETS:
            assert secret.encode() not in content, (name, secret)
    made = files.load(tmp_path / "given")
    assert [node.host for node in made.nodes] == ["node-0001", "node-0002"]
    assert made.ended_because == ("rank 3 on node-0002 hung in /directory-under-test/step-1/a, as partition said")
    assert made.environment["mount"]["options"] == "rw,flock,wsize=1048576"


def test_the_numbers_are_whole(tmp_path):
    """Rows, histograms, summaries and the verdict's exit code are those of the original."""
    before = _record()
    after = anonymous(before)
    for old, new in zip(before.phases, after.phases, strict=True):
        assert np.array_equal(old.rows, new.rows)
        assert np.array_equal(old.latency.counts, new.latency.counts)
    old_json, new_json = stormjson.to_json(before), stormjson.to_json(after)
    assert old_json["rounds"] == new_json["rounds"]
    assert [p["seconds"] for p in old_json["phases"]] == [p["seconds"] for p in new_json["phases"]]
    assert old_json["verdict"]["exit_code"] == new_json["verdict"]["exit_code"]
    assert new_json["environment"]["mount"]["size_bytes"] == 1 << 50
    assert new_json["environment"]["file_system"]["targets"] == [{"name": "target-1", "size_bytes": 9}]
    counted = after.phases[0].traffic[0]
    assert (counted.source, counted.host, counted.values) == (
        "source-1", "node-0001", {"address:9422 reads": 3, "alien": 4},
    )  # fmt: skip


def test_the_job_can_be_run_again():
    """Its text is the resolved job, without comments of who wrote it."""
    job = decode('[model]\nname = "gpt2-124m"\n[io]\nengine = "posix"\n', "x")
    made = anonymous(replace(synthetic.record(), job=to_builtins(job)))
    assert decode(made.job_text, "copy") == job


def test_what_cannot_be_told_apart_is_not_given_away():
    """A host that bears the name of a word of ours would be found in every sentence."""
    record = synthetic.record()
    named = replace(record, nodes=(replace(record.nodes[0], host="save"),))
    with pytest.raises(PlaceError, match="would still name 'save'"):
        anonymous(named)


def test_several_directories_and_what_is_judged_are_kept():
    """Their paths numbered, the shares of ranks whole, and the verdict the same; free words taken out."""
    record = _record()
    listed = [
        {"directory": f"/scratch/proj42/alice/{n}", "mount": {"type": "lustre", "source": "mgs@o2ib:/z"}} for n in "ab"
    ]
    told = {"directories": listed, "directory_of_rank": [0, 0, 1, 1], "spread": "by rank"}
    recovery = {"recovery": {"is_newest": True, "step": 3, "who": "alice.example"}}
    made = anonymous(replace(record, environment=record.environment | told | recovery))
    assert [each["directory"] for each in made.environment["directories"]] == [
        "/directory-under-test-1", "/directory-under-test-2",
    ]  # fmt: skip
    assert made.environment["directory_of_rank"] == [0, 0, 1, 1]
    assert made.environment["recovery"] == {"is_newest": True, "step": 3, "who": "taken out"}
    assert verdict(made).exit_code == verdict(record).exit_code
