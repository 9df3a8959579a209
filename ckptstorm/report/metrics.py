"""A finished record as OpenMetrics gauges: for whoever keeps storms in Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ckptstorm.clock import NS_PER_S
from ckptstorm.record.openmetrics import Gauge, text
from ckptstorm.record.record import StormRecord
from ckptstorm.record.settings import engine_name
from ckptstorm.record.settings import text as setting
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.verdict import verdict

Number = Callable[[PhaseSummary], float]
Labelled = tuple[dict[str, str], PhaseSummary]
#: Metric, unit, meaning, and where it is taken from; one sample a phase and round.
_OF_PHASES: tuple[tuple[str, str, str, Number], ...] = (
    ("phase_seconds", "seconds", "Last rank durable minus first rank's release.", lambda s: s.seconds),
    ("phase_committed_seconds", "seconds", "The same until the commit.", lambda s: s.committed_seconds),
    ("phase_first_done_seconds", "seconds", "The fastest rank.", lambda s: s.first_done_s),
    ("phase_median_done_seconds", "seconds", "The median rank.", lambda s: s.median_done_s),
    ("phase_moved_bytes", "bytes", "Bytes moved by data ops of all ranks.", lambda s: s.bytes),
    ("phase_bytes_per_second", "", "Bytes over the phase's time.", lambda s: s.bytes_per_s),
    ("phase_iops", "", "Data ops per second.", lambda s: s.iops),
    ("phase_iops_over_4k", "", "Data ops of more than 4096 bytes per second.", lambda s: s.iops_over_4k),
    ("phase_errors", "", "Ops that failed.", lambda s: s.error_count),
    ("phase_straggler_ratio", "ratio", "Slowest rank over median rank.", lambda s: s.straggler_ratio),
)
_QUANTILES = (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99"), ("0.999", "p999"), ("1", "max"))


def openmetrics(record: StormRecord) -> str:
    """The exposition of one record."""
    summaries = summarize(record)
    labelled = _labelled(record, summaries)
    judged = verdict(record)
    storm = {"storm_id": record.storm_id}
    about = storm | {
        "layout": setting(record.job, "layout", "name"),
        "engine": engine_name(record),
        "ranks": str(len(record.node_of_rank)),
        "nodes": str(len(record.nodes)),
        "ended": record.ended,
    }
    gauges = [
        Gauge("storm_info", "", "What was asked, and how it ended.", ((about, 1.0),)),
        Gauge("storm_valid", "", "1 when the numbers may be believed.", ((storm, float(judged.valid)),)),
        Gauge("storm_met", "", "1 when every limit held.", ((storm, float(judged.met)),)),
        Gauge("storm_exit_code", "", "What the process ended with.", ((storm, float(judged.exit_code)),)),
        *(
            Gauge(name, unit, meaning, tuple((labels, float(of(each))) for labels, each in labelled))
            for name, unit, meaning, of in _OF_PHASES
        ),
        _latency(labelled),
    ]
    return text(gauges)


def _labelled(record: StormRecord, summaries: tuple[PhaseSummary, ...]) -> list[Labelled]:
    """Each phase with its labels; what a round has several times (clean up) is numbered, for no two may be alike."""
    seen: Counter[tuple[str, ...]] = Counter()
    found: list[Labelled] = []
    for each in summaries:
        labels = {"storm_id": record.storm_id, "phase": each.phase.word, "round": str(each.round)}
        labels |= {"name": each.name} if each.name else {}
        seen[tuple(labels.values())] += 1
        part = seen[tuple(labels.values())]
        found.append((labels | ({"part": str(part)} if part > 1 else {}), each))
    return found


def _latency(labelled: list[Labelled]) -> Gauge:
    samples = tuple(
        (
            labels | {"op": kind, "size_class": size, "quantile": quantile},
            float(getattr(found, name)) / NS_PER_S,
        )
        for labels, each in labelled
        for kind, classes in each.latency_ns.items()
        for size, found in classes.items()
        for quantile, name in _QUANTILES
    )
    return Gauge("op_latency_seconds", "seconds", "Latency of ops by kind and size; quantile 1 is exact.", samples)
