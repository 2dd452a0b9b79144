"""What a training begins with: the distributions of the papers' code; and what follows from a model's shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.optimizers import make_optimizer, set_learning_rate
from edgefront.core.training.parametrisation import Scheme, initialise
from edgefront.core.training.recipes.catalogue import recipe
from edgefront.core.training.recipes.recipe import Optimizer, Parametrisation

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


BASE = Parametrisation(base_width=32, base_blocks=2, embedding_lr=3.0)
WIDE_PAIR = ({"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 512})
DEEP: dict[str, Any] = {
    "d_model": 128,
    "embedding": {"vocab_size": 600},
    "positions": {"kind": "learned", "length": 200},
    "blocks": [*WIDE_PAIR * 4, {"kind": "identity"}],
}
LFM: dict[str, Any] = {
    "d_model": 64,
    "embedding": {"vocab_size": 600},
    "positions": {"kind": "rotary"},
    "norm_kind": "rms",
    "activation": "silu",
    "blocks": [
        {"kind": "short_conv", "kernel": 4, "bias": True},
        {"kind": "feed_forward", "d_inner": 96, "gated": True, "bias": False},
        {"kind": "attention", "n_head": 2, "n_kv_head": 1, "d_head": 16, "qk_norm": True, "bias": "none"},
    ],
    "output": {"tied": False},
}
NARROW: dict[str, Any] = {
    "d_model": 64,
    "embedding": {"vocab_size": 900, "d_embed": 48, "cutoffs": [300, 600], "div": 2},
    "positions": {"kind": "learned", "length": 200},
    "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 128}],
}
POST: dict[str, Any] = {**DEEP, "d_model": 64, "norm": "post"}


def of(described: dict[str, Any], base: Parametrisation = BASE) -> dict[str, tuple[float, float]]:
    """Of each parameter the deviation of its first values (of what is constant, the value), and its rate over `lr`."""
    model = initialise(LanguageModel(Architecture.parse(described)), "completep", 0, base)
    optimizer = make_optimizer(model, Optimizer(lr=0.5, weight_decay=0.1), base)
    rates = {id(parameter): group["lr"] / 0.5 for group in optimizer.param_groups for parameter in group["params"]}
    return {
        name: (float(value.detach().std() or value.detach().flatten()[0]), rates[id(value)])
        for name, value in model.named_parameters()
    }


def nearly(scale: float, rate: float) -> Any:
    return pytest.approx((scale, rate), rel=0.05)


def test_of_each_kind_of_parameter_first_values_and_rate() -> None:
    """Width 4 times the base's, 8 blocks for its 2: µP's table 3 and CompleteP's table 1."""
    found = of(DEEP)
    assert found["embedding.tables.0"] == nearly(32**-0.5, 3)
    assert found["positions.weight"] == nearly(32**-0.5, 3)
    assert found["blocks.0.qkv.weight"] == nearly(128**-0.5, 1 / 4)
    assert found["blocks.0.out.weight"] == nearly(0, 1 / 4 / 4)
    assert found["blocks.1.up.weight"] == nearly(128**-0.5, 1 / 4)
    assert found["blocks.1.down.weight"] == nearly(0, 1 / 16 / 4)
    assert found["blocks.0.qkv.bias"] == found["blocks.1.up.bias"] == nearly(0, 1)
    assert found["blocks.0.out.bias"] == found["blocks.1.down.bias"] == nearly(0, 1 / 4)
    assert found["blocks.0.norm.weight"] == nearly(1, 1)
    assert found["final_norm.weight"] == nearly(1 / 4, 1 / 4)
    assert found["final_norm.bias"] == nearly(0, 1 / 4)


def test_of_a_convolution_grouped_heads_and_an_output_of_its_own() -> None:
    found = of(LFM)
    assert found["embedding.tables.0"] == nearly(32**-0.5, 3)
    assert found["output.tables.0"] == nearly(math.sqrt(32) / 64, 1 / 2)
    assert found["final_norm.weight"] == nearly(1, 1)  # the output's own table has the factor
    assert found["blocks.0.up.weight"] == nearly(64**-0.5, 1 / 2)
    assert found["blocks.0.conv.weight"] == nearly(4**-0.5 / math.sqrt(3), 1)
    assert found["blocks.0.out.weight"] == nearly(0, 1 / 2 / 1.5)
    assert found["blocks.1.down.weight"] == nearly(0, 32 / 96 / 1.5)
    assert found["blocks.2.out.weight"] == nearly(0, 32 / 32 / 1.5)  # two heads of 16
    assert found["blocks.2.q_norm.weight"] == nearly(1, 1)


def test_where_the_forward_pass_multiplies_the_embedding_the_tables_are_smaller() -> None:
    found, times = of(NARROW), math.sqrt(64)
    for table in range(3):
        assert found[f"embedding.tables.{table}"] == nearly(32**-0.5 / times, 3 / times)
        assert found[f"embedding.projections.{table}"] == nearly((48 // 2**table) ** -0.5, 32 / (48 // 2**table))
    assert found["output.cluster_weight"][1] == pytest.approx(3 / times)
    assert found["positions.weight"] == nearly(32**-0.5, 3)
    assert found["final_norm.weight"] == nearly(times / 2, times / 2)


def test_under_norm_post_depth_changes_nothing_and_the_last_block_s_norm_is_before_the_output() -> None:
    found = of(POST)
    assert found["blocks.0.out.weight"] == nearly(0, 1 / 2)
    assert found["blocks.0.norm.weight"] == nearly(1, 1)
    assert found["blocks.7.norm.weight"] == nearly(1 / 2, 1 / 2)


@pytest.mark.parametrize(("place", "gain"), [("branch", "norm"), ("both", "after_norm")])
def test_where_updates_are_normed_the_gain_of_that_norm_falls_with_the_depth(place: str, gain: str) -> None:
    found = of({**DEEP, "norm": place})
    assert found["blocks.0.out.weight"] == nearly(128**-0.5, 1 / 4)
    assert found[f"blocks.0.{gain}.weight"] == nearly(1 / 4, 1 / 4)
    assert found["final_norm.weight"] == nearly(1 / 4, 1 / 4)
    if place == "both":
        assert found["blocks.0.norm.weight"] == nearly(1, 1)


def test_multipliers_of_the_forward_pass_are_taken_out_of_values_and_rates() -> None:
    plain, tied = of({**DEEP, "output": {"tied": False}}), of(DEEP)
    given = {"residual_multiplier": "0.25", "embedding": {**DEEP["embedding"], "multiplier": 8}}
    multiplied = of({**DEEP, **given, "output": {"tied": False, "logits_scaling": 2}})
    for name, times in (("embedding.tables.0", 1 / 8), ("output.tables.0", 2), ("blocks.0.out.weight", 4)):
        assert multiplied[name] == nearly(*(times * part for part in plain[name]))
    value = of({**DEEP, **given, "output": {"logits_scaling": 2}})["final_norm.weight"]
    assert value == nearly(*(16 * part for part in tied["final_norm.weight"]))


def test_at_the_base_s_shape_every_rate_but_the_embedding_s_and_wide_inputs_is_the_recipe_s() -> None:
    base = Parametrisation(base_width=128, base_blocks=8, embedding_lr=1.0)
    rates = {name: rate for name, (_, rate) in of(DEEP, base).items()}
    others = {name for name, rate in rates.items() if rate != 1}
    assert others == {f"blocks.{block}.down.weight" for block in (1, 3, 5, 7)}


def test_a_step_takes_the_same_share_of_every_weight() -> None:
    model = initialise(LanguageModel(Architecture.parse(LFM)), "completep", 0, BASE)
    optimizer = make_optimizer(model, Optimizer(lr=0.01, weight_decay=0.1), BASE)
    set_learning_rate(optimizer, 0.004)
    shares = {round(group["lr"] * group["weight_decay"], 12) for group in optimizer.param_groups}
    assert shares == {0.0, 0.0004}
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    matrices = {name for name, parameter in model.named_parameters() if id(parameter) in decaying}
    assert "blocks.0.up.weight" in matrices
    assert not any("norm" in name or "bias" in name for name in matrices)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_activations_neither_grow_nor_shrink_with_the_width_as_the_model_learns(kind: str) -> None:
    """The coordinate check of µP (Yang et al. 2022, §D.1): what a few steps change does not depend on the width."""
    modern = recipe("modern")
    by_width = [after_steps(kind, width, modern.parametrisation, modern.optimizer.lr) for width in (64, 512)]
    for name, narrow in by_width[0].items():
        assert 0.5 < by_width[1][name] / narrow < 2, name
    # Without it the same rate moves wide models much farther.
    plain = [after_steps(kind, width, None, modern.optimizer.lr)["logits"] for width in (64, 512)]
    assert plain[1] / plain[0] > 2.5


def after_steps(kind: str, width: int, parametrisation: Parametrisation | None, lr: float) -> dict[str, float]:
    """Root mean squares of the residual stream and the logits after four steps on the same tokens."""
    gated = kind == "llama"
    layer = [
        {"kind": "attention", "n_head": width // 32, "bias": "none"},
        {"kind": "feed_forward", "d_inner": 2 * width, "gated": gated, "bias": False},
    ]
    described = {
        "d_model": width,
        "embedding": {"vocab_size": 64},
        "positions": {"kind": "rotary"} if gated else {"kind": "learned", "length": 32},
        "norm_kind": "rms" if gated else "layer",
        "blocks": layer * 2,
    }
    model = LanguageModel(Architecture.parse(described))
    initialise(model, "gpt2" if parametrisation is None else "completep", 0, parametrisation)
    optimizer = make_optimizer(model, Optimizer(lr=lr, betas=(0.9, 0.95)), parametrisation)
    tokens = torch.randint(64, (4, 33), generator=torch.Generator().manual_seed(1))
    seen: dict[str, float] = {}
    for index, block in enumerate(model.blocks):

        def note(_: object, __: object, output: torch.Tensor, name: str = f"block {index}") -> None:
            seen[name] = float(output.detach().square().mean().sqrt())

        block.register_forward_hook(note)
    for _ in range(4):
        optimizer.zero_grad()
        model.token_losses(model(tokens[:, :-1], "none"), tokens[:, 1:]).mean().backward()
        optimizer.step()
    with torch.no_grad():
        logits = model(tokens[:, :-1])
    return seen | {"logits": float(logits.square().mean().sqrt())}
