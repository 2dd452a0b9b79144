"""What a model's shape does to initial values and learning rates: one rate for all widths and depths."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.papers import recipe
from edgefront.core.recipes.recipe import Optimizer, Parametrisation
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.training.initialise import initialise
from edgefront.core.training.optimizers import make_optimizer, set_learning_rate

BASE = Parametrisation(base_width=32, base_blocks=2, embedding_lr=3.0)
PAIR = ({"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 512})
GPT2: dict[str, Any] = {
    "d_model": 128,
    "embedding": {"vocab_size": 600},
    "positions": {"kind": "learned", "length": 200},
    "blocks": [*PAIR * 4, {"kind": "identity"}],
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
POST: dict[str, Any] = {**GPT2, "d_model": 64, "norm": "post"}


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
    found = of(GPT2)
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
    found = of({**GPT2, "norm": place})
    assert found["blocks.0.out.weight"] == nearly(128**-0.5, 1 / 4)
    assert found[f"blocks.0.{gain}.weight"] == nearly(1 / 4, 1 / 4)
    assert found["final_norm.weight"] == nearly(1 / 4, 1 / 4)
    if place == "both":
        assert found["blocks.0.norm.weight"] == nearly(1, 1)


def test_multipliers_of_the_forward_pass_are_taken_out_of_values_and_rates() -> None:
    plain, tied = of({**GPT2, "output": {"tied": False}}), of(GPT2)
    given = {"residual_multiplier": "0.25", "embedding": {**GPT2["embedding"], "multiplier": 8}}
    multiplied = of({**GPT2, **given, "output": {"tied": False, "logits_scaling": 2}})
    for name, times in (("embedding.tables.0", 1 / 8), ("output.tables.0", 2), ("blocks.0.out.weight", 4)):
        assert multiplied[name] == nearly(*(times * part for part in plain[name]))
    value = of({**GPT2, **given, "output": {"logits_scaling": 2}})["final_norm.weight"]
    assert value == nearly(*(16 * part for part in tied["final_norm.weight"]))


def test_at_the_base_s_shape_every_rate_but_the_embedding_s_and_wide_inputs_is_the_recipe_s() -> None:
    base = Parametrisation(base_width=128, base_blocks=8, embedding_lr=1.0)
    rates = {name: rate for name, (_, rate) in of(GPT2, base).items()}
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
