"""The allocation in the record: what is kept of Slurm's words, and bindings as groups of ranks."""

from __future__ import annotations

from ckptstorm.cluster.placement import Station
from ckptstorm.storm import allocation
from ckptstorm.storm.allocation import alike, bindings, pairs, per_node, ranges


def _station(host="n1", cpus="0-1", rail="", network=()):
    return Station(host, 0, cpus, "0", rail, network, host)


def test_ranks_bound_alike_are_one_entry():
    """A thousand ranks of a well-bound job are as many lines as there are ranks on a node."""
    stations = [_station(cpus="0-1"), _station(cpus="2-3"), _station("n2", "0-1"), _station("n2", "2-3")]
    assert bindings(stations) == [
        {"ranks": "0,2", "cpus": "0-1", "memory_nodes": "0"},
        {"ranks": "1,3", "cpus": "2-3", "memory_nodes": "0"},
    ]
    rails = [_station(rail="mlx5_0:1", network=("UCX_NET_DEVICES=mlx5_0:1",))]
    assert bindings(rails)[0] == bindings(rails)[0] | {"rail": "mlx5_0:1", "network": ["UCX_NET_DEVICES=mlx5_0:1"]}


def test_notations():
    """Ranks and nodes as Slurm writes them."""
    assert ranges([5, 0, 2, 1]) == "0-2,5"
    assert per_node(["a", "a", "b", "b", "c"]) == "2(x2),1"


def test_scontrol_is_read_as_pairs_with_spaces_in_values():
    """One line an entry; an operating system's name has spaces and equal signs."""
    text = "NodeName=n1 Arch=x86_64 OS=Linux 6.1 #1 SMP a=b CurrentWatts=250 CfgTRES=cpu=4,mem=4000M Gres=(null) \n"
    (row,) = pairs(text)
    assert row["Arch"] == "x86_64"
    assert row["CfgTRES"] == "cpu=4,mem=4000M"
    nodes = alike([row, {**row, "CurrentWatts": "260"}, {"Arch": "aarch64"}])
    assert nodes == [
        {"node_count": "2", "Arch": "x86_64", "CurrentWatts": "250"},
        {"node_count": "1", "Arch": "aarch64"},
    ]


def test_without_a_batch_system_bindings_are_all_there_is():
    """No scontrol is asked, nothing is made up."""
    assert allocation.allocation({}, [_station()]) == {
        "ranks_per_node": "1",
        "bindings": [{"ranks": "0", "cpus": "0-1", "memory_nodes": "0"}],
    }


def test_a_missing_scontrol_leaves_its_facts_out(monkeypatch):
    """In a container there is none: what the environment says stays."""
    monkeypatch.setenv("PATH", "/nonexistent")
    found = allocation.allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_PARTITION": "gpu"}, [_station()])
    assert (found["job_id"], found["partition"]) == ("7", "gpu")
    assert "job" not in found
