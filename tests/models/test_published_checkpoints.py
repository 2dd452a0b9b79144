"""Our named models are the published checkpoints: every parameter of transformers' model of that configuration fits.

The models are built without memory (torch's meta device); the configurations are those that the checkpoints carry.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from foreign_models import transformers
from loaders import from_bert, from_distilbert, from_gpt2, from_opt

from edgefront.core.graph.parameters import parameters
from edgefront.core.spaces.models import named_model

GPT2, OPT = ("GPT2Config", "GPT2LMHeadModel", from_gpt2), ("OPTConfig", "OPTForCausalLM", from_opt)
DISTILBERT = {"sinusoidal_pos_embds": False}
BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}


def _opt(layers: int, width: int, heads: int, **others: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads, "ffn_dim": 4 * width}
    return {"vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": width, **sizes, **others}


# Ours: (configuration class, model class, loader), the checkpoint's settings where they are not the class's own.
CHECKPOINTS: dict[str, tuple[tuple[str, str, Any], dict[str, Any]]] = {
    "distilgpt2": (GPT2, {"n_layer": 6}),
    "gpt2-small": (GPT2, {}),
    "gpt2-medium": (GPT2, {"n_layer": 24, "n_embd": 1024, "n_head": 16}),
    "gpt2-large": (GPT2, {"n_layer": 36, "n_embd": 1280, "n_head": 20}),
    "gpt2-xl": (GPT2, {"n_layer": 48, "n_embd": 1600, "n_head": 25}),
    "opt-125m": (OPT, _opt(12, 768, 12)),
    "opt-350m": (OPT, _opt(24, 1024, 16, word_embed_proj_dim=512, do_layer_norm_before=False)),
    "opt-1.3b": (OPT, _opt(24, 2048, 32)),
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
    epsilon = {"GPT2Config": "layer_norm_epsilon", "BertConfig": "layer_norm_eps"}.get(configuration)
    if epsilon is not None:  # fixed in OPT (1e-5) and in DistilBERT (1e-12)
        assert float(ours.norm_eps) == getattr(config, epsilon)
    else:
        assert float(ours.norm_eps) == (1e-5 if configuration == "OPTConfig" else 1e-12)
    activation = getattr(config, "activation_function", None) or getattr(config, "hidden_act", None)
    activation = activation or config.activation
    assert {"gelu_new": "gelu_tanh"}.get(activation, activation) == ours.activation
    heads = {block.n_head for block in ours.blocks if block.kind == "attention"}
    assert heads == {config.num_attention_heads}
