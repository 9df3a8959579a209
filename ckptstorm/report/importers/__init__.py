"""Other tools' results read onto our frames: one file a tool, one line here.

A number is taken over only where the tool measured it. What it did not measure is absent, and `basis` says how the
time was found, beside the headline that the tool itself would print.
"""

from __future__ import annotations

from ckptstorm.registry import Entry, find
from ckptstorm.report.importers.seen import Seen

IMPORTERS = {
    "dlio": Entry(
        "ckptstorm.report.importers.dlio:read",
        "DLIO and MLPerf Storage: the folder with N_per_epoch_stats.json and summary.json",
        "dlio_benchmark@e1919d7 utils/statscounter.py, main.py",
    ),
    "ior": Entry(
        "ckptstorm.report.importers.ior:read",
        "IOR: the JSON of -O summaryFormat=JSON",
        "IOR 4.1.0+dev, as it writes it",
    ),
    "mdtest": Entry(
        "ckptstorm.report.importers.mdtest:read",
        "mdtest: what it prints",
        "mdtest 4.1.0+dev, as it writes it",
    ),
    "fio": Entry(
        "ckptstorm.report.importers.fio:read",
        "fio: --output-format=json+ (json has no histograms)",
        "fio 3.33, as it writes it; fio stat.h for its bins",
    ),
    "elbencho": Entry(
        "ckptstorm.report.importers.elbencho:read",
        "elbencho: its CSV results file",
        "elbencho@d085b19 docs/csv-docs.md, source/Statistics.cpp",
    ),
}


def read(kind: str, path: str) -> tuple[Seen, ...]:
    """What another tool left.

    Raises:
        JobError: no such kind.
        PlaceError: the file is none of that kind, damaged or too large: the sentence says what is wrong.
    """
    found: tuple[Seen, ...] = find("kind of result", IMPORTERS, kind)(path)
    return found
