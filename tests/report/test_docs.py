"""docs/reading-a-result.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from ckptstorm.errors import EXIT_REFUSED
from ckptstorm.measure import rows
from ckptstorm.record.clockcheck import POLITE_SLEEP_NS, SCHEDULING_NS
from ckptstorm.record.definitions import DEFINITIONS
from ckptstorm.record.receipts import COLD_RESIDENT_SHARE, RECEIPTS, SELF_WAIT_SHARE
from ckptstorm.report.headline import EXIT_MEANINGS
from ckptstorm.sizes import SIZE_CLASS_NAMES

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "reading-a-result.md").read_text().split())


def test_every_definition_stands_in_the_docs():
    """Word for word, beside its key."""
    for key, sentence in DEFINITIONS.items():
        assert f"| `{key}` | {sentence} |" in PAGE


def test_every_exit_code_stands_in_the_docs():
    """With its meaning as the report says it."""
    for code, meaning in EXIT_MEANINGS.items():
        assert f"| {code} | {meaning}" in PAGE
    assert EXIT_REFUSED in EXIT_MEANINGS


def test_every_receipt_and_its_constants_stand_in_the_docs():
    """Thresholds included."""
    for name in RECEIPTS:
        assert f"| {name} |" in PAGE
    assert f"more than {SELF_WAIT_SHARE:.0%} of T".replace("%", " %") in PAGE
    assert f"at most {COLD_RESIDENT_SHARE:.0%} of the bytes".replace("%", " %") in PAGE
    assert f"{POLITE_SLEEP_NS // 10**6} ms for each step" in PAGE
    assert f"{SCHEDULING_NS // 10**6} ms for the scheduler" in PAGE


def test_size_classes_and_state_bits_stand_in_the_docs():
    """In the order of the code."""
    assert ", ".join(SIZE_CLASS_NAMES) in PAGE
    bits = [rows.STATE_ERRORS, rows.STATE_INCOMPLETE, rows.STATE_STOPPED, rows.STATE_MISMATCH, rows.STATE_SYNCED]
    words = ["errors", "incomplete", "stopped", "mismatch", "synced", "sync due"]
    told = [f"{bit} {word}" for bit, word in zip([*bits, rows.STATE_SYNC_DUE], words, strict=True)]
    assert ", ".join(told) in PAGE
