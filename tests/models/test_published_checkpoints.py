"""Our named encoders are the published checkpoints: every parameter of transformers' model of that configuration fits.

The models are built without memory (torch's meta device); the configurations are those that the checkpoints carry.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from foreign_models import transformers
from loaders import from_bert, from_distilbert

from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.parameters import parameters

DISTILBERT = {"sinusoidal_pos_embds": False}
BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


# Ours: (configuration class, model class, loader), the checkpoint's settings where they are not the class's own.
CHECKPOINTS: dict[str, tuple[tuple[str, str, Any], dict[str, Any]]] = {
    "bert-base": (("BertConfig", "BertModel", from_bert), {}),
    "bert-large": (("BertConfig", "BertModel", from_bert), BERT_LARGE),
    "bert-base-squad": (("BertConfig", "BertForQuestionAnswering", from_bert), {}),
    "bert-base-mlm": (("BertConfig", "BertForMaskedLM", from_bert), {}),
    "distilbert": (("DistilBertConfig", "DistilBertModel", from_distilbert), DISTILBERT),
    "distilbert-squad": (("DistilBertConfig", "DistilBertForQuestionAnswering", from_distilbert), DISTILBERT),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_parameter_fits(name: str) -> None:
    (configuration, model, rename), settings = CHECKPOINTS[name]
    config = getattr(transformers, configuration)(**settings)
    with torch.device("meta"):
        theirs = getattr(transformers, model)(config)
    theirs.tie_weights()
    ours = named_model(name).architecture
    renamed = rename(dict(theirs.named_parameters(remove_duplicate=False)), ours)
    assert {key: tuple(value.shape) for key, value in renamed.items()} == {
        spec.name: spec.shape for spec in parameters(ours)
    }
    assert sum(spec.size for spec in parameters(ours)) == theirs.num_parameters()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_settings_without_a_parameter_agree_too(name: str) -> None:
    (configuration, _, _), settings = CHECKPOINTS[name]
    config = getattr(transformers, configuration)(**settings)
    ours = named_model(name).architecture
    assert float(ours.norm_eps) == getattr(config, "layer_norm_eps", 1e-12)  # which is fixed in DistilBERT
    assert getattr(config, "hidden_act", None) or config.activation == ours.activation
    heads = {block.n_head for block in ours.blocks if block.kind == "attention"}
    assert heads == {config.num_attention_heads}
