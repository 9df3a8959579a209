"""Does a load keep its declared rate while a save runs, and what does either cost the other?

    python -P benchmarks/beside.py [--dir DIR] [--rate 1000] [--rounds 5] [--ranks 2]

Runs one storm of GPT-2 124M with stats beside it and prints, for each window of a round, what was due, what ended and
the share; the target is 99 % during the save, on a machine that does nothing else. Then the tails, and what the load
cost the save, as the median of pairs of saves with and without it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

JOB = """
[storm]
rounds = {rounds}
around = "5s"
[model]
name = "gpt2-124m"
[[load]]
kind = "metadata"
name = "stats"
when = "beside"
rate = "{rate}/s"
items = 2000
mix = {{ stat = 1 }}
"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="ckptstorm-data")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        job = Path(home) / "job.toml"
        job.write_text(JOB.format(rounds=asked.rounds, rate=asked.rate))
        command = [sys.executable, "-P", "-m", "ckptstorm", "run", str(job), "--ranks", str(asked.ranks), "--json"]
        command += ["--dir", asked.dir, "--results", f"{home}/results"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(ended.stderr)
    _print(json.loads(ended.stdout))


def _print(data: dict[str, Any]) -> None:
    phases = data["phases"]
    windows: dict[str, list[dict[str, Any]]] = {}
    for phase in phases:
        if phase.get("beside"):
            windows.setdefault(phase["beside"]["window"], []).append(phase)
    print(f"{'window':20} {'due/s':>8} {'ended/s':>8} {'share':>7} {'latest start':>13} {'p50':>9} {'p99':>9}")
    for name, found in windows.items():
        due = sum(phase["beside"]["due_count"] for phase in found)
        ended = sum(phase["beside"]["ended_count"] for phase in found)
        seconds = sum(phase["beside"]["seconds"] for phase in found)
        late_ms = max(phase["beside"]["late_ns_max"] for phase in found) / 1e6
        tails = [phase["per_action"][0]["latency_ns"] for phase in found]
        p50, p99 = (statistics.median(tail[key] for tail in tails) / 1e6 for key in ("p50", "p99"))
        rates = f"{due / seconds:8.1f} {ended / seconds:8.1f} {ended / due:7.2%}"
        print(f"{name:20} {rates} {late_ms:10.2f} ms {p50:6.2f} ms {p99:6.2f} ms")
    quiet = {phase["round"]: phase["seconds"] for phase in phases if phase["phase"] == "quiet save"}
    loaded = {phase["round"]: phase["seconds"] for phase in phases if phase["phase"] == "save"}
    pairs = [loaded[number] / quiet[number] for number in sorted(quiet) if number in loaded]
    print(f"save with the load ÷ without: {statistics.median(pairs):.3f} (median of {len(pairs)} pairs)")


if __name__ == "__main__":
    main()
