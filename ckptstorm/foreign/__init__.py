"""Job files of other tools as ours: one file a tool, one line here. What has no meaning here is refused by name."""

from __future__ import annotations

from ckptstorm.registry import Entry

FOREIGN: dict[str, Entry] = {
    "fio": Entry("ckptstorm.foreign.fio:to_job", "a fio job file", "fio 3.33, its HOWTO and tried"),
}
