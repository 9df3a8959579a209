"""OpenMetrics text: read back by Prometheus' own parsers, the strict one and the older one."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from prometheus_client.parser import text_string_to_metric_families as older

from ckptstorm.record.openmetrics import Gauge, text

GAUGES = (
    Gauge("x_seconds", "seconds", 'A "time"\nof two lines \\.', (({"host": 'a"b\\c\nd'}, 1.5), ({}, 2e-9))),
    Gauge("empty", "", "Nothing.", ()),
    Gauge("limits", "", "Odd values.", (({"at": "1"}, math.inf), ({"at": "2"}, -math.inf), ({"at": "3"}, 1e300))),
)


@pytest.mark.parametrize("parser", [strict, older])
def test_it_is_read_back(parser):
    """Names, units, labels with quotes, backslashes and line breaks, and every digit."""
    families = {family.name: family for family in parser(text(GAUGES))}
    assert set(families) == {"ckptstorm_x_seconds", "ckptstorm_limits"}
    first, second = families["ckptstorm_x_seconds"].samples
    assert first.labels == {"host": 'a"b\\c\nd'} and first.value == 1.5
    assert second.value == 2e-9
    assert [each.value for each in families["ckptstorm_limits"].samples] == [math.inf, -math.inf, 1e300]


def test_it_ends_with_the_end_mark():
    """Without which a strict reader refuses it as cut off; and has no time stamps, which a collector refuses."""
    made = text(GAUGES)
    assert made.endswith("\n# EOF\n")
    assert text(()) == "# EOF\n"
    assert all(sample.timestamp is None for family in strict(made) for sample in family.samples)


def test_bytes_that_are_no_text_stay_readable():
    """A directory's name may hold them."""
    made = text((Gauge("x", "", "h", (({"name": "\udcff"}, 1.0),)),))
    made.encode("utf-8")
    list(strict(made))
