"""Laws as JSON, those that come with the product, and which of them is about a model."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.predictor import Origin
from edgefront.core.quality.scaling_law import ScalingLaw, own_trainings
from edgefront.core.quality.shipped import NAMES, family, find_law, law_for, law_named, shipped_laws
from edgefront.core.quality.stored import from_json, summary, to_json, to_text
from edgefront.core.quality.table_fit import fit_table
from edgefront.core.services.quality.expected import label_of, perplexities
from edgefront.core.training.proxies.score import law_about
from edgefront.core.training.proxies.trained import TrainedModels

OF_TABLES = NAMES[-3:]
"""The laws of one table each: GPT-2 and Transformer-XL on WikiText-103, GPT-2 on OpenWebText."""


def test_shipped_laws_predict_what_they_did_when_they_were_made(gpt2: TrainedModels, txl: TrainedModels) -> None:
    """The numbers of another machine."""
    for name, table, expected in (
        ("lts-gpt2-wikitext103", gpt2, GPT2),
        ("lts-transformer-xl-wikitext103", txl, TXL),
        ("hwgpt-gpt2-openwebtext", gpt2, HWGPT),
    ):
        found = law_named(name).predict(table.shapes.take(slice(3)))
        np.testing.assert_allclose(np.column_stack([found.perplexity, found.low, found.high]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "txl"])
def test_shipped_laws_are_what_their_tables_teach(name: str, request: pytest.FixtureRequest) -> None:
    table: TrainedModels = request.getfixturevalue(name)
    shipped = law_named({"gpt2": OF_TABLES[0], "txl": OF_TABLES[1]}[name])
    again = fit_table(table.shapes, table.log_perplexity, shipped.origin)
    one, two = shipped.predict(table.shapes), again.predict(table.shapes)
    np.testing.assert_allclose(two.log_perplexity, one.log_perplexity, atol=1e-3)  # how far a fit may differ by BLAS


def test_every_shipped_law_describes_its_table() -> None:
    for name in OF_TABLES:
        text = (files("edgefront.core.quality") / "laws" / f"{name}.json").read_text(encoding="utf-8")
        assert to_text(law_named(name)) == text
    for law in shipped_laws().values():
        origin = law.origin
        assert all((origin.title, origin.data, origin.split, origin.tokens, origin.trained, origin.source))
        assert origin.licence in ("MIT", "Apache-2.0")


LABELS = {
    "own-data-gpt2": "ratio, own data",
    "own-data-transformer-xl": "ratio, own data",
    "own-data-llama": "ratio, own data, 30B tokens",
    "llama-dolma-cooled": "Dolma, 30B tokens, finished schedule",
    "llama-dolma": "Dolma, 30B tokens, constant learning rate",
    "llama-dolma-other-recipe": "ratio, Dolma, 30B tokens, another recipe",
    "lts-gpt2-wikitext103": "WikiText-103, 40,000 steps",
    "lts-transformer-xl-wikitext103": "WikiText-103, 40,000 steps",
    "hwgpt-gpt2-openwebtext": "OpenWebText, weights of a supernet",
}


def test_a_label_says_what_a_prediction_is_of() -> None:
    assert {name: law_named(name).label for name in NAMES} == LABELS
    assert all(len(label.split()) <= 7 for label in LABELS.values())


def test_a_stored_prediction_says_what_it_is_of() -> None:
    model = [named_model("smollm2-135m").architecture]
    law = law_named("llama-dolma-cooled").at_tokens(1e10)
    (stored,) = perplexities(law, model)
    assert label_of(stored) == law.label == "Dolma, 10B tokens, finished schedule"
    assert label_of({"latency_ms": 1.0}) == label_of(None) == ""


def test_laws_by_family() -> None:
    named = ("lts-gpt2", "lts-opt", "lts-transformer-xl", "par-32", "hybrid", "llama", "lfm")
    laws = {name: law_for(space(name)) for name in named}
    assert {name: law.origin.name for name, law in laws.items() if law} == {
        "lts-gpt2": NAMES[0],
        "lts-opt": NAMES[0],
        "lts-transformer-xl": NAMES[1],
        "par-32": NAMES[1],
        "hybrid": NAMES[1],
        "llama": NAMES[2],
        "lfm": NAMES[2],
    }
    assert law_for(space("bert")) is law_for(space("srupp")) is None
    assert family(named_model("gpt2-small").architecture) == "gpt2"
    assert family(named_model("bert-base").architecture) is None
    olmo2 = named_model("allenai/OLMo-2-0425-1B").architecture
    assert family(olmo2) is None
    with pytest.raises(InvalidInput, match="no scaling law covers models with norm branch"):
        law_about(olmo2)
    granite = named_model("ibm-granite/granite-4.0-350m").architecture
    with pytest.raises(InvalidInput, match="no scaling law covers models with residual_multiplier"):
        law_about(granite)


def refined_law() -> ScalingLaw:
    """After three points of two learning curves."""
    law = law_named("own-data-llama")
    assert isinstance(law, ScalingLaw)
    shapes = Shapes.of([named_model(name).architecture for name in ("smollm2-135m", "smollm2-135m", "smollm2-360m")])
    own = own_trainings(law, shapes, np.log([1e10, 2e10, 2e10]), [3.2, 3.1, 2.9], ["a", "a", "b"])
    return law.refined(own, Origin("mine", "Mine", family="llama"))


@pytest.mark.parametrize("name", [*NAMES[:-3], "refined"])
def test_a_stored_shared_law_predicts_the_same(name: str) -> None:
    law = refined_law() if name == "refined" else law_named(name)
    value = to_json(law)
    assert value["version"] == 2
    again = from_json(to_text(law))
    assert to_json(again) == value
    assert (again.origin, again.relative_to, again.models) == (law.origin, law.relative_to, law.models)
    shapes = Shapes.of([named_model(model).architecture for model in ("smollm2-360m", "gpt2-small")])
    one, two = law.predict(shapes), again.predict(shapes)
    np.testing.assert_allclose(two.perplexity, one.perplexity, rtol=1e-9)
    np.testing.assert_allclose(two.high, one.high, rtol=1e-9)
    assert summary(again) == summary(law)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"study": "other"}, "law.study"),
        ({"table": "other"}, "table"),
        ({"train_tokens": 0}, "law.train_tokens"),
        ({"train_tokens": "10 B"}, "law.train_tokens"),
        ({"known": None}, "law.known"),
        ({"more": 1}, "law.more"),
        ({"reference": "no-such-model"}, "reference"),
        ({"own": {"training": [0]}}, "law.own.tokens"),
        ({"own": {"tokens": [1e10, 2e10]}}, "own"),
        ({"own": {"tokens": [1e10, -1.0, 2e10]}}, "law.own.tokens.1"),
        ({"own": {"features": [[1.0, 2.0]] * 3}}, "own"),
    ],
)
def test_wrong_shared_laws_name_the_field(change: dict[str, Any], field: str) -> None:
    value = to_json(refined_law())
    own = change.get("own")
    if own is not None:
        kept = {} if field == "law.own.tokens" else value["own"]
        change = {"own": {**kept, **own}}
    with pytest.raises(InvalidInput) as caught:
        from_json(json.dumps({**value, **change}))
    assert caught.value.field == field


@pytest.mark.parametrize("tokens", [0.0, -1.0, 1e30, float("nan")])
def test_a_law_is_not_asked_for_impossible_tokens(tokens: float) -> None:
    with pytest.raises(InvalidInput, match="train_tokens must be a number from 1 to 1e18"):
        law_named("llama-dolma").at_tokens(tokens)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kernel": {"amplitude": -1}}, "law.kernel.amplitude"),
        ({"models": [[1.0, 2.0]] * 6}, "models.0"),
        ({"columns": ["log_perplexity"]}, "columns"),
        ({"version": 4}, "law.version"),
        ({"more": 1}, "law.more"),
        ({"models": []}, "law.models"),
    ],
)
def test_wrong_laws_name_the_field(change: dict[str, object], field: str) -> None:
    value = to_json(law_named(OF_TABLES[0]))
    kernel = change.get("kernel")
    change = {"kernel": {**value["kernel"], **kernel}} if isinstance(kernel, dict) else change
    with pytest.raises(InvalidInput) as caught:
        from_json(json.dumps({**value, **change}))
    assert caught.value.field.endswith(field)


def test_laws_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there are own-data-gpt2"):
        find_law("lts-gpt3")
    with pytest.raises(InvalidInput, match="not JSON"):
        from_json("{")
    path = tmp_path / "missing.json"
    with pytest.raises(InvalidInput, match=r"missing\.json"):
        find_law(str(path))


GPT2 = [
    [45.16697756, 44.35025272, 45.99874268],
    [27.08726956, 26.61459082, 27.56834313],
    [27.38728708, 26.88956356, 27.89422341],
]
TXL = [
    [60.40118034, 59.6268521, 61.18556419],
    [39.732549, 39.21937124, 40.25244159],
    [41.69472111, 41.16956924, 42.22657173],
]
HWGPT = [
    [51.70670273, 34.14764454, 78.29480315],
    [33.31476138, 24.73943708, 44.86251331],
    [33.31057253, 26.12828227, 42.46717143],
]
