"""`import result` on the command line."""

from __future__ import annotations

from tests.report.importers.test_importers import PEERS


def test_a_result_is_shown_and_written(ckptstorm, place):
    """As a page, as JSON, as CSV files."""
    ended = ckptstorm("import", "result", "fio", str(PEERS["fio"]), "--csv", "tables")
    assert ended.code == 0, ended.said
    assert ended.out.startswith("2 phases of 2 runs of another tool\n\nfio 3.33: ")
    assert (place / "tables" / "latency.csv").read_text().startswith("storm_id,phase,round,kind,size_class,low_ns")
    data = ckptstorm("import", "result", "dlio", str(PEERS["dlio"]), "--json").data
    assert data[0]["phases"][1]["seconds"] > 4


def test_a_wrong_file_and_a_wrong_kind_are_refused(ckptstorm):
    """With exit code 2, and what there is."""
    ended = ckptstorm("import", "result", "ior", str(PEERS["fio"]))
    assert ended.code == 2
    assert "is no IOR result: Object missing required field `Version`" in ended.err
    assert "dlio, ior, mdtest, fio, elbencho" in ckptstorm("import", "result", "iozone", "x").err.replace("'", "")
