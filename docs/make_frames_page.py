"""Makes docs/frames.md from the columns of the frames: python docs/make_frames_page.py --write."""

from __future__ import annotations

import sys
from pathlib import Path

from ckptstorm.report.frame_columns import COLUMNS

PAGE = Path(__file__).with_name("frames.md")

HEAD = """# The frames

`ckptstorm.load` opens result folders as pandas frames. It needs pandas and h5py (`pip install '.[analysis]'`), no MPI:

```python
import ckptstorm

results = ckptstorm.load("results/")  # a result folder, a folder of them, or a pattern: "results/llama3*"
results.storms  # each frame is made when it is first asked for
results.ranks.query("phase == 'save' and is_straggler")
```

A folder is data from whoever sent it: nothing in it is executed, sizes are bounded, and a file that is damaged,
cut off or lies ends in one `PlaceError` that names it. Numbers are computed from `storm.h5`, as
[reading a result](reading-a-result.md) defines them. A journal (`NAME.partial`) is opened when it is named.

Columns that end in `_ns` are whole nanoseconds, in `_s` and `seconds` seconds, in `bytes` bytes, in `_count` plain
counts, in `_share` shares of one. Words that repeat (storm, phase, host, kind) are pandas categories: group by
them with `observed=True`.
"""

PURPOSES = {
    "storms": "One row a storm: what was asked, the verdict, the answer.",
    "phases": "One row a phase and round.",
    "ranks": "One row a rank, phase and round.",
    "kind_ns": "What each rank's time went into, in the order of `ranks`, without phases that do not know. It stands "
    "beside `ranks` because it is the largest frame.",
    "latency": "One row a bin of a latency histogram. The maximum is exact; bins are less than 1.6 % wide.",
    "loads": "What loads did, alone or beside saves: one row a stage or window, round and action.",
    "timeline": "One row a node and stretch of time, of each save and restore; at most 150 bins a phase.",
    "placement": "Who ran where, and on which storage targets the files lie: one row a rank, file and target.",
    "clock": "One row a phase and round: the release, the clocks, and the barrier that checks T.",
}


def page() -> str:
    """The page."""
    parts = [HEAD]
    for frame, columns in COLUMNS.items():
        rows = [f"| `{column}` | {meaning} |" for column, meaning in columns.items()]
        parts.append(
            "\n".join([f"## `{frame}`", "", PURPOSES[frame], "", "| column | meaning |", "|---|---|", *rows, ""])
        )
    return "\n".join(parts)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
