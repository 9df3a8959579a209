"""The server-side join: a read of which less passed the counters than had to is warm, whatever else looks cold."""

from __future__ import annotations

import pytest

from ckptstorm.measure.traffic import Traffic
from ckptstorm.record import stormjson
from ckptstorm.record.receipts import receipts
from ckptstorm.record.verdict import verdict
from ckptstorm.record.wire import wire
from tests.record import synthetic
from tests.record.synthetic import S, with_phase

_GIB = 1 << 30


def _counted(made, index, *bytes_of_nodes, due=4 * _GIB, at="client's wire"):
    """The record with counters in one phase, one node each."""
    traffic = tuple(
        Traffic(f"client {number}", at, f"gpu{number:03d}", -S // 2, 2 * S, moved, moved, {"reads": 7})
        for number, moved in enumerate(bytes_of_nodes)
    )
    return with_phase(made, index, traffic=traffic, due_bytes=due)


@pytest.mark.parametrize(
    ("nodes", "resident", "state"),
    [
        ((2 * _GIB, 2 * _GIB), -1.0, "cold"),
        ((2 * _GIB, int(1.98 * _GIB)), -1.0, "cold"),  # 0.5 % short: inline data, a last page
        ((2 * _GIB, int(1.9 * _GIB)), -1.0, "warm"),
        ((2 * _GIB, 0), 0.0, "warm"),  # empty page caches, and yet: a cache on the way
        ((2 * _GIB, 2 * _GIB), 0.5, "warm"),
        ((9 * _GIB, 9 * _GIB), 0.0, "cold"),
    ],
)
def test_fewer_bytes_than_due_are_warm(nodes, resident, state):
    """Of three restores one decides; the bytes of all nodes count together."""
    made = synthetic.record(synthetic.Make(nodes=2, resident_share=resident))
    for index in (1, 3, 5):
        made = _counted(made, index, 2 * _GIB, 2 * _GIB)
    made = _counted(made, 3, *nodes)
    receipt = receipts(made)["cold"]
    assert receipt.state == state, receipt.evidence
    assert verdict(made).valid == (state == "cold")


def test_the_evidence_has_the_figures():
    """1 GiB of the 4 GiB that had to come, over two and a half seconds."""
    made = _counted(synthetic.record(synthetic.Make(rounds=1)), 1, _GIB)
    assert receipts(made)["cold"].evidence.startswith(
        "a cache on the way served reads: 1.00 GiB (25 %) of at least 4.00 GiB over the clients' wires"
    )
    found = wire(made.phases[1])
    assert (found.seconds, found.bytes_per_s) == (2.5, _GIB / 2.5)


def test_a_node_that_counts_nothing_proves_nothing():
    """A counter of -1 in the direction of the phase, or none at all: residency decides as before."""
    made = synthetic.record(synthetic.Make(rounds=1))
    assert wire(made.phases[1]) is None
    assert wire(_counted(made, 1, 2 * _GIB, -1).phases[1]) is None
    assert receipts(_counted(made, 1, 2 * _GIB, -1))["cold"].state == "cold"


@pytest.mark.parametrize(
    ("at", "sent", "state"),
    [("client's wire", 0.5, "no"), ("client's wire", 0.95, "yes"), ("network", 0.5, "yes"), ("device", 0.5, "yes")],
)
def test_a_save_that_had_not_left_the_client_is_not_durable(at, sent, state):
    """Every sync succeeded, and half of the bytes were still on the node: only a wire of its own can tell."""
    made = synthetic.record()
    for index in (0, 2, 4):
        made = _counted(made, index, int(sent * 4 * _GIB), at=at)
    receipt = receipts(made)["durable"]
    assert receipt.state == state
    assert verdict(made).valid == (state == "yes")
    if state == "no":
        assert "but only 2.00 GiB (50 %) of at least 4.00 GiB over the clients' wires" in receipt.evidence
    staged = synthetic.with_job(made, "storm", staging=1 << 30)
    assert receipts(staged)["durable"].state == "yes"


def test_counters_are_kept_with_their_rates(tmp_path):
    """storm.json has each counter and its rate; a record read back is the one written."""
    from ckptstorm.record import files

    made = _counted(synthetic.record(synthetic.Make(rounds=1)), 1, _GIB)
    files.write(made, tmp_path / "folder")
    read = files.load(tmp_path / "folder")
    assert [phase.traffic for phase in read.phases] == [phase.traffic for phase in made.phases]
    assert read.phases[1].due_bytes == 4 * _GIB
    told = stormjson.to_json(read)["phases"][1]["traffic"][0]
    assert told["read_bytes_per_s"] == _GIB / 2.5
    assert told["values"] == {"reads": 7}
