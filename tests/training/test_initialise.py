"""What a training begins with: the distributions of the papers' code, and the same numbers in whatever order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.training.initialise import Scheme, initialise

PAIR = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 128}]
SRU = [{"kind": "srupp", "d_attn": 32}, {"kind": "sru", "d_proj": 32}, {"kind": "sru"}]
GPT2 = {"embedding": {"vocab_size": 500}, "blocks": [*PAIR, *PAIR, {"kind": "identity"}], "output": {"bias": True}}
TRANSFORMER_XL = {
    "positions": {"kind": "relative"},
    "norm": "post",
    "embedding": {"vocab_size": 900, "cutoffs": [300, 600], "div": 2},
    "blocks": PAIR,
}
SRUPP = {
    "positions": {"kind": "none"},
    "embedding": {"vocab_size": 900, "cutoffs": [300, 600], "div": 2},
    "blocks": SRU,
    "output": {"tied": False},
}
BERT = {
    "causal": False,
    "norm": "post",
    "embedding": {"vocab_size": 500, "segments": 2, "norm": True},
    "blocks": PAIR,
    "output": {"kind": "masked_tokens"},
}
TRANSLATION = {
    "norm": "post",
    "embedding": {"vocab_size": 500, "d_embed": 32},
    "blocks": [*PAIR, {"kind": "attention", "n_head": 2, "attends": "source"}],
    "source": {
        "d_model": 64,
        "causal": False,
        "embedding": {"vocab_size": 400},
        "blocks": SRU,
        "output": {"kind": "none"},
    },
}
DECODER = {
    "positions": {"kind": "rotary"},
    "norm_kind": "rms",
    "embedding": {"vocab_size": 500},
    "blocks": [
        {"kind": "short_conv", "kernel": 4, "bias": True},
        {"kind": "attention", "n_head": 2, "n_kv_head": 1, "qk_norm": True},
        {"kind": "feed_forward", "d_inner": 96, "gated": True, "bias": False},
    ],
}
SCHEMES: tuple[Scheme, ...] = ("gpt2", "transformer_xl", "transformer_xl_large", "srupp", "bert", "translation")


def first_values(
    description: Mapping[str, Any], scheme: Scheme, seed: int = 0, dropout: float = 0.0
) -> dict[str, Tensor]:
    model = LanguageModel(Architecture.parse({"d_model": 64, **description}))
    model.dropout = Dropout(hidden=dropout)
    return {name: tensor.detach() for name, tensor in initialise(model, scheme, seed).named_parameters()}


def is_normal(values: Tensor, deviation: float, mean: float = 0.0) -> None:
    """By mean, deviation and fourth moment, within what chance allows."""
    n = values.numel()
    assert abs(values.mean() - mean) < 5 * deviation / math.sqrt(n)
    assert abs(values.std() / deviation - 1) < 5 / math.sqrt(2 * n)
    if n > 1000:
        assert abs(((values - mean) / deviation).pow(4).mean() - 3) < 5 * math.sqrt(96 / n)
        assert values.abs().max() > 2.5 * deviation


def is_uniform(values: Tensor, limit: float, mean: float = 0.0) -> None:
    n, spread = values.numel(), values - mean
    assert spread.abs().max() <= limit * (1 + 1e-6)
    assert spread.abs().max() > limit * (1 - 20 / n)
    assert abs(spread.mean()) < 5 * limit / math.sqrt(3 * n)
    assert abs(spread.square().mean() / (limit**2 / 3) - 1) < 5 * math.sqrt(0.8 / n)


def xavier(values: Tensor) -> float:
    return math.sqrt(6 / sum(values.shape))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("description", [GPT2, TRANSFORMER_XL, SRUPP, BERT, TRANSLATION, DECODER], ids=lambda _: "")
def test_constants_of_every_scheme(scheme: Scheme, description: Mapping[str, Any]) -> None:
    for name, values in first_values(description, scheme).items():
        if name.endswith("recurrence.bias"):
            assert torch.equal(values[0], torch.zeros(64))
            assert torch.equal(values[1], torch.full((64,), -2.0))
        elif name.endswith("recurrence.weight"):
            is_uniform(values, 1.0)
        elif name.endswith("conv.weight"):
            is_uniform(values, 0.5)
        elif name.endswith(("bias", "alpha")):
            assert not values.any(), name
        elif name.endswith("norm.weight"):
            drawn = {"transformer_xl": 0.02, "transformer_xl_large": 0.005}.get(scheme)
            of_srupp = ".norm" in name and values.shape == (32,)
            if drawn and not of_srupp:
                is_normal(values, drawn, 1.0)
            else:
                assert torch.equal(values, torch.ones_like(values)), name
        assert values.isfinite().all()


@pytest.mark.parametrize(("scheme", "deviation"), [("gpt2", 0.02), ("opt", 0.006)])
def test_gpt2(scheme: Scheme, deviation: float) -> None:
    for name, values in first_values(GPT2, scheme).items():
        if name.endswith((".out.weight", ".down.weight")):
            is_normal(values, deviation / math.sqrt(4))  # four residual blocks: the identity is none
        elif values.ndim == 2:
            is_normal(values, deviation)


def test_projections_of_gpt2_are_archai_s() -> None:
    """proj_init_std of its GPT-2 with an adaptive embedding; the matrices and the clusters' rows are as the others."""
    adaptive = {**GPT2, "embedding": TRANSFORMER_XL["embedding"]}
    for name, values in first_values(adaptive, "gpt2").items():
        if ".projections." in name:
            is_normal(values, 0.01)
        elif ".tables." in name or name == "output.cluster_weight":
            is_normal(values, 0.02)


@pytest.mark.parametrize(("scheme", "deviation"), [("transformer_xl", 0.02), ("transformer_xl_large", 0.005)])
def test_transformer_xl(scheme: Scheme, deviation: float) -> None:
    values = first_values(TRANSFORMER_XL, scheme)
    assert {"positions.u", "positions.v", "output.projections.0", "output.cluster_weight"} <= values.keys()
    for name, tensor in values.items():
        if tensor.ndim == 2:
            is_normal(tensor, 0.01 if ".projections." in name else deviation)


@pytest.mark.parametrize("dropout", [0.0, 0.36])
def test_srupp(dropout: float) -> None:
    values = first_values(SRUPP, "srupp", dropout=dropout)
    for name, tensor in values.items():
        if ".tables." in name or name == "output.cluster_weight":
            is_uniform(tensor, math.sqrt(3 / 64))
        elif ".projections." in name or name in ("blocks.0.down.weight", "blocks.0.kv.weight"):
            is_uniform(tensor, xavier(tensor))
        elif name == "blocks.0.up.weight":
            is_uniform(tensor, xavier(tensor) * math.sqrt(1 - dropout))
    for name in ("blocks.1.down.weight", "blocks.1.up.weight", "blocks.2.up.weight"):  # SRU, as in sru 3.0.0-dev
        is_uniform(values[name], xavier(values[name]))


def test_bert() -> None:
    for tensor in first_values(BERT, "bert").values():
        if tensor.ndim == 2:
            is_normal(tensor, 0.02)


def test_translation() -> None:
    values = first_values(TRANSLATION, "translation")
    is_normal(values["embedding.tables.0"], 32**-0.5)
    is_normal(values["source.embedding.tables.0"], 64**-0.5)
    for name in ("embedding.projections.0", "blocks.0.qkv.weight", "blocks.2.out.weight", "source.blocks.0.up.weight"):
        is_uniform(values[name], xavier(values[name]))


def test_a_parameter_depends_on_seed_and_name_alone() -> None:
    short, long = dict(TRANSFORMER_XL), {**TRANSFORMER_XL, "blocks": [*PAIR, *PAIR]}
    torch.manual_seed(1)
    before = torch.get_rng_state()
    values, more = first_values(short, "transformer_xl"), first_values(long, "transformer_xl")
    assert torch.equal(before, torch.get_rng_state())
    for name, tensor in values.items():
        assert torch.equal(tensor, more[name]), name
    other = first_values(short, "transformer_xl", seed=1)
    for name, tensor in values.items():
        assert torch.equal(tensor, other[name]) == (not tensor.any()), name
    assert not torch.equal(more["blocks.0.qkv.weight"], more["blocks.2.qkv.weight"])


def test_in_any_type() -> None:
    description = Architecture.parse({"d_model": 64, **GPT2})
    wide = initialise(LanguageModel(description), "gpt2", 3)
    narrow = initialise(LanguageModel(description).bfloat16(), "gpt2", 3)
    for (_, a), (_, b) in zip(wide.named_parameters(), narrow.named_parameters(), strict=True):
        assert torch.equal(a.bfloat16(), b)


def test_an_unknown_scheme_is_named() -> None:
    model = LanguageModel(Architecture.parse({"d_model": 64, **GPT2}))
    with pytest.raises(InvalidInput, match="scheme must be one of gpt2, opt, transformer_xl") as caught:
        initialise(model, "xavier", 0)  # type: ignore[arg-type]
    assert caught.value.field == "scheme"
