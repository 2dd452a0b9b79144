"""Wrong descriptions and wrong narrowings over REST: one problem document each, which names the field."""

from __future__ import annotations

import json
from typing import Any

from running_api import Service, problem

RIGHT: dict[str, Any] = {
    "d_model": 64,
    "embedding": {"vocab_size": 100},
    "blocks": [{"kind": "attention", "n_head": 4}],
}
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"blocks": [{"kind": "attention", "n_head": 5}]}, "blocks.0.n_head"),
    ({"version": "9" * 9000}, "version"),
    ({"blocks": {"pattern": f"(sf)x{'9' * 5000}", "s": RIGHT["blocks"][0]}}, "blocks.pattern"),
    ({"blocks": {"pattern": "(sf)x2" * 40 + "q" + "(sf)x2" * 40, "s": RIGHT["blocks"][0]}}, "blocks.pattern"),
)
"""A change of a right description, and the field that is named."""
NARROWINGS: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("hybrid", {"kind": ["mamba", "attention"]}, "kind", "attention, feed_forward, srupp, identity"),
    ("par-32", {"kind": ["feed_forward"]}, "min_attention_percent", "none attends to other tokens"),
    ("par-32", {"n_block": "9" * 9000}, "n_block", "2 to 32"),
)
"""Space, narrowing, the gene that is named, and words of the error."""


def test_a_wrong_description_is_named_by_field(service: Service) -> None:
    client = service.client()
    for change, field in WRONG:
        document = problem(client.post("/v1/catalogue/describe", json=RIGHT | change), 422)
        assert (document["kind"], document["field"]) == ("invalid-architecture", field)
        assert len(json.dumps(document)) < 5000, field


def test_a_wrong_narrowing_is_named_by_gene(service: Service) -> None:
    service.enrol("board", "simulated board")
    client = service.client()
    for space, narrow, gene, words in NARROWINGS:
        request = {"targets": [{"device_class": "simulated board"}], "space": {"name": space, "narrow": narrow}}
        document = problem(client.post("/v1/jobs", json=request), 422)
        assert (document["kind"], document["field"]) == ("invalid-space", f"space.narrow.{gene}"), (space, narrow)
        assert words in document["detail"], (space, narrow)
        assert document["allowed"], (space, narrow)
        assert len(json.dumps(document)) < 5000


def test_a_value_that_is_listed_over_and_over_is_not_kept(service: Service) -> None:
    service.enrol("board", "simulated board")
    client = service.client()
    space = {"name": "lts-gpt2", "narrow": {"n_head": [4] * 100_000}}
    request = {"targets": [{"device_class": "simulated board"}], "space": space}
    document = problem(client.post("/v1/jobs", json=request), 422)
    assert (document["kind"], document["field"], document["value"]) == ("invalid-space", "space.narrow.n_head", 4)
    assert client.get("/v1/jobs").json()["items"] == []
