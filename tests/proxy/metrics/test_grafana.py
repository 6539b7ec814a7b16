"""The dashboard for Grafana asks for metrics that there are, by labels that they have."""

from __future__ import annotations

import json
import re

from openclaw_rl.proxy.metrics.metrics import Metrics
from tests.processes import ROOT

DASHBOARD = ROOT / "docs" / "grafana" / "openclaw-rl.json"


def test_every_metric_of_the_dashboard_is_on_the_metrics_page() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"openclaw_rl_\w+", target["expr"])
    }
    families = set(re.findall(r"^# TYPE (\S+) (\w+)$", Metrics().render().decode(), re.MULTILINE))
    offered = {name if kind != "histogram" else f"{name}_bucket" for name, kind in families}
    assert len(panels) > 9 and asked <= offered, asked - offered
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
