"""Numbers as OpenMetrics text, which Prometheus, its node exporter's textfile collector and many others read.

Only gauges, without time stamps: then the text means the same to a reader of the older Prometheus format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Every metric of ours begins so.
PREFIX = "ckptstorm_"


@dataclass(frozen=True, slots=True)
class Gauge:
    """One metric.

    Attributes:
        name: without the prefix; ends in its unit when it has one.
        unit: "seconds", "bytes", "ratio" or "".
        help: one sentence.
        samples: (labels, value) each.
    """

    name: str
    unit: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def text(gauges: Iterable[Gauge]) -> str:
    """The exposition, with its end mark."""
    lines = [line for gauge in gauges if gauge.samples for line in _lines(gauge)]
    return "\n".join([*lines, "# EOF", ""])


def _lines(gauge: Gauge) -> list[str]:
    name = PREFIX + gauge.name
    assert not gauge.unit or name.endswith(f"_{gauge.unit}"), name
    unit = [f"# UNIT {name} {gauge.unit}"] if gauge.unit else []
    samples = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in gauge.samples]
    return [f"# TYPE {name} gauge", *unit, f"# HELP {name} {_escaped(gauge.help)}", *samples]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    printable = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return printable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else f"{value:.15g}"
