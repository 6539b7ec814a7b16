from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, generate_latest

from openclaw_rl.proxy.metrics.metrics import Histogram

BOUNDS = (0.001, 0.01, 0.1, 1.0)


def test_it_says_what_the_library_would_say() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("gap_seconds", "Between two events", BOUNDS, registry=own)
    reference = prometheus_client.Histogram("gap_seconds", "Between two events", registry=theirs, buckets=BOUNDS)
    for value in (0.0, 0.001, 0.0011, 0.5, 1.0, 7.0, 0.5):
        histogram.observe(value)
        reference.observe(value)
    expected = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(own).decode().splitlines() == expected
