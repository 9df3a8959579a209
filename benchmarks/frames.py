"""How long `ckptstorm.load` takes on a large result: python -P benchmarks/frames.py [ranks] [rounds].

Makes a result folder of that world (10,000 ranks on 1,250 nodes and 20 rounds of four phases, unless told
otherwise) with times that do not compress away, then opens each frame in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
FRAMES = ("storms", "phases", "ranks", "latency", "placement", "clock", "timeline", "kind_ns")
OPEN = """
import resource, sys, time
begun = time.perf_counter()
import ckptstorm
results = ckptstorm.load(sys.argv[1])
rows = sum(len(getattr(results, name)) for name in sys.argv[2:])
wall_s, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss: it remembers the process that started this one.
peak_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(f"{rows:>12,} {wall_s:>9.2f} {used.ru_utime + used.ru_stime:>9.2f} {peak_kb / 1e6:>8.2f}")
"""


def make(folder: Path, ranks: int, rounds: int) -> None:
    """Write the result folder."""
    sys.path.insert(0, str(ROOT))
    from ckptstorm.measure.rows import Phase
    from ckptstorm.record import files
    from tests.record import synthetic

    made = synthetic.record(synthetic.Make(ranks=ranks, nodes=-(-ranks // 8), rounds=rounds, late={ranks // 2: 9.0}))
    chance = np.random.default_rng(1)
    phases = []
    for phase in made.phases:
        rows, kind_ns = phase.rows.copy(), phase.kind_ns.copy()
        for column in ("durable_ns", "first_op_ns", "cpu_ns", "generate_wait_ns"):
            rows[column] += chance.integers(0, 5_000_000, len(rows))
        kind_ns[:, :4] += chance.integers(0, 10_000_000, (len(rows), 4))
        phases.append(replace(phase, rows=rows, kind_ns=kind_ns))
        other = Phase.SETTLE if phase.phase == Phase.SAVE else Phase.CLEAN_UP
        phases.append(replace(phases[-1], phase=other, timeline=type(phase.timeline)()))
    files.write(replace(made, phases=tuple(phases)), folder)


def main(ranks: int, rounds: int) -> None:
    """Print a table: frame, rows, seconds, CPU seconds, peak memory in GB."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "result"
        make(folder, ranks, rounds)
        print(f"{ranks:,} ranks, {rounds} rounds: storm.h5 has {(folder / 'storm.h5').stat().st_size / 1e6:.0f} MB")
        print(f"{'frame':<28} {'rows':>12} {'seconds':>9} {'CPU s':>9} {'peak GB':>8}")
        for names in (*((name,) for name in FRAMES), FRAMES[:6]):
            command = [sys.executable, "-P", "-c", OPEN, str(folder), *names]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            print(f"{names[0] if len(names) == 1 else 'all but the last two':<28} {told.rstrip()}")


if __name__ == "__main__":
    main(*(int(each) for each in (*sys.argv[1:], *("10000", "20")[len(sys.argv) - 1 :])))
