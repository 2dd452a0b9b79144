"""The Grafana dashboard asks for metrics that the service has, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from running_api import Service
from simulated_agent import CLASS

DOCS = Path(__file__).parents[2] / "docs"
_ENDS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def test_the_dashboard_queries_what_is_exported(service: Service) -> None:
    agent = service.agent("board", CLASS)
    service.submit(service.client("user", "bob"))
    agent.post("/v1/leases", json={"wait_s": 0})
    text = service.client("user", "watch").get("/metrics").text
    families = list(text_string_to_metric_families(text))
    exported = {f"{family.name}{end}" for family in families for end in _ENDS[family.type]}
    labels = {name: set(sample.labels) for family in families for sample in family.samples for name in (sample.name,)}

    dashboard = json.loads((DOCS / "grafana.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(queries) > 15
    asked = set()
    for query in queries:
        names = set(re.findall(r"edgefront_[a-z_]+", query))
        assert names
        assert names <= exported, query
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        matched = set(re.findall(r"[{,]\s*([a-z_]+)=~?\"", query))
        for name in names & labels.keys():  # of those without a sample yet, the labels are not known
            assert grouped | matched <= labels[name], query
        asked |= names
    documented = set(re.findall(r"`(edgefront_[a-z_]+)[`{ ]", (DOCS / "monitoring.md").read_text()))
    own = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in families}
    assert documented == {name for name in own if not name.endswith("_created")}
    assert {re.sub("_bucket$", "", name) for name in asked} == documented
