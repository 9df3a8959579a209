"""The section on the storage: who serves it, the fullest target, the straggler's target, what passed the counters."""

from __future__ import annotations

from dataclasses import replace

from ckptstorm.measure.traffic import Traffic
from ckptstorm.report.facts import know
from ckptstorm.report.storage import storage
from ckptstorm.report.terminal import render
from tests.record import synthetic
from tests.record.synthetic import Make, S, with_phase

_GIB = 1 << 30


def _made(**changes):
    made = synthetic.record(Make(ranks=4, rounds=1, late={3: 9.0}))
    facts = {
        "title": "Lustre",
        "server": "10.0.0.1@o2ib",
        "version": "2.15.5",
        "targets": [{"name": f"fs-OST000{number}"} for number in range(4)],
        "details": {"directory.stripe_count": 1},
        "quotas": [{"who": "user 7", "used_bytes": _GIB, "limit_bytes": 10 * _GIB}],
    }
    placed = {
        "file_count": 4,
        "asked_count": 4,
        "targets": {
            "fs-OST0000": {"files": 1, "bytes": _GIB},
            "fs-OST0002": {"files": 3, "bytes": 3 * _GIB},
        },
        "map": [[0, "a", [1]], [1, "b", [1]], [2, "c", [1]], [3, "d", [0]]],
    }
    environment = made.environment | {"file_system": facts, "placement": placed}
    return replace(made, environment=environment, **changes)


def test_the_fullest_target_is_named_with_its_share():
    """Three of four GiB on one of four targets: three times its share."""
    text = render(_made())
    assert "served by  Lustre, 2.15.5, served by 10.0.0.1@o2ib" in text
    assert "user 7: 1.00 GiB of 10.0 GiB" in text
    joined = " ".join(text.split())
    assert "4 files on 2 of 4 targets; the fullest, fs-OST0002, holds 75 % of the bytes, 3.00 times its share" in joined
    assert "fs-OST0002 3 3.00 GiB 3.00" in joined


def test_a_stragglers_target_is_named():
    """Rank 3 is late, and its file lies where no other does."""
    assert "rank 3's files lie on fs-OST0000" in " ".join(render(_made()).split())


def test_what_passed_the_counters_stands_in_a_row():
    """The save: 4 GiB over two nodes' wires in two and a half seconds."""
    traffic = tuple(Traffic(f"c{n}", "client's wire", f"n{n}", -S // 2, 2 * S, 0, 2 * _GIB) for n in range(2))
    text = render(with_phase(_made(), 0, traffic=traffic, due_bytes=4 * _GIB))
    assert "save 1   client's wire  4.00 GiB  4.00 GiB  1.60 GiB/s        2" in text


def test_a_record_without_any_of_it_has_no_such_section():
    """Records of earlier versions, and of strangers with odd values, show nothing and break nothing."""
    assert storage(know(synthetic.record(Make(rounds=1)))).blocks == ()
    odd = {"file_system": {"targets": 3, "quotas": ["x"], "details": []}, "placement": {"targets": [], "map": 7}}
    made = synthetic.record(Make(rounds=1))
    render(replace(made, environment=made.environment | odd))
    placed = _made().environment["placement"]
    for strange in (7, [3], [[0, "a", "b"]], [[0, "a", [99, None]]], [["x", "a", [0]]]):
        made = _made()
        render(replace(made, environment=made.environment | {"placement": placed | {"map": strange}}))
