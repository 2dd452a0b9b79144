"""What a predicted perplexity is of, in about six words."""

from __future__ import annotations

from edgefront.core.quality.predictor import Origin
from edgefront.core.quality.shipped import NAMES, law_named
from edgefront.core.quality.stored import from_json, to_text
from edgefront.core.services.quality.expected import label_of, perplexities
from edgefront.core.spaces.models import named_model

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


def test_every_law_that_comes_along_has_one() -> None:
    assert {name: law_named(name).label for name in NAMES} == LABELS
    assert all(len(label.split()) <= 7 for label in LABELS.values())


def test_a_law_keeps_it_where_it_is_stored() -> None:
    law = law_named("lts-gpt2-wikitext103")
    assert from_json(to_text(law)).label == law.label
    assert Origin("mine", "Mine").how == ""


def test_a_stored_prediction_says_what_it_is_of() -> None:
    model = [named_model("smollm2-135m").architecture]
    law = law_named("llama-dolma-cooled").at_tokens(1e10)
    (stored,) = perplexities(law, model)
    assert label_of(stored) == law.label == "Dolma, 10B tokens, finished schedule"
    assert label_of({"latency_ms": 1.0}) == label_of(None) == ""
