"""The catalogue over HTTP: named models with their costs, and the costs of any description."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from running_api import problem

from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.models import named_model, named_models
from edgefront.core.architectures.published import published_models


def test_every_named_model_with_its_costs(client: httpx.Client) -> None:
    """From closed formulas: a vocabulary of 793,471 costs no more time than one of 27."""
    listed = client.get("/v1/catalogue/models").json()
    assert [model["name"] for model in listed] == list(named_models())
    for model in listed:
        named = named_models()[model["name"]]
        assert model["architecture"] == named.architecture.canonical
        assert model["costs"] == costs(named.architecture).model_dump()
        assert model["source"] == named.source
    alone = client.get("/v1/catalogue/models/srupp-large-lm1b").json()
    assert alone in listed
    assert alone["costs"]["total_parameters"] == 465_318_339
    assert "par-base" in problem(client.get("/v1/catalogue/models/par-bas"), 404)["detail"]


def test_published_models_with_their_facts(client: httpx.Client) -> None:
    listed = client.get("/v1/catalogue/published").json()
    assert [model["id"] for model in listed["models"]] == list(published_models())
    tables = {table["id"] for table in listed["tables"]}
    assert {score["table"] for model in listed["models"] for score in model["scores"]} <= tables
    alone = client.get("/v1/catalogue/published/HuggingFaceTB/SmolLM2-135M").json()
    assert alone in listed["models"]
    assert alone["counted_parameters"] == 134_515_008
    assert alone["digest"] == named_model("HuggingFaceTB/SmolLM2-135M").architecture.digest
    hybrid = client.get("/v1/catalogue/published/nvidia/Nemotron-Flash-1B").json()
    assert "Mamba-2" in hybrid["not_expressible"]
    assert hybrid["digest"] is hybrid["counted_parameters"] is hybrid["licence"] is None
    missing = problem(client.get("/v1/catalogue/published/HuggingFaceTB/SmolLM2-136M"), 404)
    assert "HuggingFaceTB/SmolLM2-135M" in missing["detail"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("srupp-base-k5", {"mode": "decode", "memory_length": 3072, "logits": "last", "batch": 4}),
        ("bert-base-squad", {"sequence_length": 384, "weights": "int8"}),
    ],
)
def test_a_description_costs_what_the_formulas_say(client: httpx.Client, name: str, options: dict[str, Any]) -> None:
    architecture = named_model(name).architecture
    answer = client.post("/v1/catalogue/describe", json=architecture.canonical, params=options)
    assert answer.status_code == 200, answer.text
    assert answer.json() == costs(architecture, CostOptions(**options)).model_dump()


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("bert-base", {"mode": "decode"}, "mode"),
        ("par-base", {"mode": "train"}, "mode"),
        ("par-base", {"memory_length": -1}, "memory_length"),
        ("par-base", {"memory_lenght": 5}, "memory_lenght"),
    ],
)
def test_a_pass_that_cannot_be_is_refused_by_its_option(
    client: httpx.Client, name: str, options: dict[str, Any], field: str
) -> None:
    described = named_model(name).architecture.canonical
    document = problem(client.post("/v1/catalogue/describe", json=described, params=options), 422)
    assert document["field"] == field
    assert document["allowed"]
