"""The part of a space around a model: the model and its neighbours are in it, or the fields are named that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.neighbourhood import AUTO, space_around
from edgefront.core.common.errors import ArchitectureError, SpaceError

FOUND = {
    "gpt2-small": "llama",
    "opt-125m": "llama",
    "mobilellm-125m": "llama",
    "smollm2-135m": "llama",
    "qwen2.5-0.5b": "llama",
    "qwen3-0.6b": "llama",
    "llama-3.2-1b": "llama",
    "lfm2-350m": "lfm",
}


@pytest.mark.parametrize(("name", "space"), FOUND.items())
def test_the_model_and_its_neighbours_are_in_the_space(name: str, space: str) -> None:
    model = named_model(name).architecture
    around = space_around(model.canonical, AUTO)
    assert around.name == space
    assert around.contains(model)
    assert around.baselines() == around.baselines([1, 2]) == (model,)
    rng = np.random.default_rng(0)
    drawn = [around.architecture(around.sample(rng)) for _ in range(60)]
    assert all(around.contains(architecture) for architecture in drawn)
    assert all(
        architecture.positions == model.positions and architecture.embedding == model.embedding
        for architecture in drawn
    )
    widths = {architecture.d_model for architecture in drawn}
    assert model.d_model in widths
    assert min(widths) >= model.d_model / 2
    assert max(widths) <= 1.5 * model.d_model
    # Near ones too: most of their blocks are the model's.
    own = model.canonical["blocks"]
    others = [architecture.canonical["blocks"] for architecture in drawn if architecture.d_model == model.d_model]
    shared = [sum(a == b for a, b in zip(blocks, own, strict=False)) / len(own) for blocks in others]
    assert max(shared) > 0.8


def test_a_narrowing_keeps_the_nearest_to_the_model() -> None:
    model = named_model("smollm2-135m").architecture
    narrowed = space_around(model, "llama").narrow({"n_layer": {"max": 20}, "n_head": [3, 6], "n_kv_head": [1, 3]})
    assert narrowed.seed is not None
    assert not narrowed.contains(model)
    nearest = narrowed.architecture(narrowed.seed)
    assert (len(nearest.blocks), nearest.blocks[0].n_head) == (40, 6)  # type: ignore[union-attr]
    assert narrowed.baselines() == (model,)


def test_the_neighbours_have_the_context_of_the_model() -> None:
    model = Architecture.parse({**named_model("smollm2-135m").architecture.canonical, "context_length": 8192})
    around = space_around(model, AUTO)
    assert around.contains(model)
    rng = np.random.default_rng(0)
    drawn = [around.architecture(around.sample(rng)) for _ in range(20)]
    assert {architecture.context_length for architecture in drawn} == {8192}


def with_blocks(model: Architecture, changes: dict[int, dict[str, Any]]) -> dict[str, Any]:
    blocks = [{**block, **changes.get(index, {})} for index, block in enumerate(model.canonical["blocks"])]
    return {**model.canonical, "blocks": blocks}


def test_what_keeps_a_model_out_is_named_field_by_field() -> None:
    smol = named_model("smollm2-135m").architecture
    strange = with_blocks(smol, {2: {"d_head": 32}, 5: {"gated": False}, 8: {"qk_norm": True}, 11: {"kind": "srupp"}})
    strange["blocks"][11] = {"kind": "srupp", "d_attn": 64}
    with pytest.raises(SpaceError) as refused:
        space_around(strange, "llama")
    assert refused.value.field == "model"
    fields = [error["field"] for error in refused.value.extra["errors"]]
    assert fields == ["model.blocks.11.kind", "model.blocks.8.qk_norm", "model.blocks.2.d_head", "model.blocks.5.gated"]
    assert "blocks.2.d_head 32: the space has one value in all layers, but blocks.0 has 64" in refused.value.detail


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("bert-base", "causal"),
        ("transformer-xl-base", "positions.kind"),
        ("srupp-base", "blocks.0.kind"),
    ],
)
def test_models_of_other_kinds_are_refused(name: str, field: str) -> None:
    with pytest.raises(SpaceError) as refused:
        space_around(named_model(name).architecture, AUTO)
    assert refused.value.extra["errors"][0]["field"] == f"model.{field}"


def test_a_space_that_cannot_have_the_model_names_the_one_that_has() -> None:
    with pytest.raises(SpaceError, match="the space lfm has it"):
        space_around(named_model("lfm2-350m").architecture, "llama")
    with pytest.raises(SpaceError, match="llama or lfm can"):
        space_around(named_model("gpt2-small").architecture, "lts-gpt2")
    with pytest.raises(ArchitectureError) as wrong:
        space_around({"d_model": 8}, AUTO)
    assert wrong.value.field.startswith("model.")


def test_heads_around_a_model_have_even_widths() -> None:
    """Rotary positions turn pairs: of 8 and 12 heads, 8 do not go with 72 units."""
    attention = {"kind": "attention", "n_head": 12, "n_kv_head": 4, "qk_norm": True, "bias": "none"}
    feed_forward = {"kind": "feed_forward", "d_inner": 256, "gated": True, "bias": False}
    blocks = [{"kind": "short_conv"}, feed_forward, attention, feed_forward]
    around = space_around(
        {
            "d_model": 72,
            "positions": {"kind": "rotary"},
            "norm_kind": "rms",
            "embedding": {"vocab_size": 512},
            "blocks": blocks,
        },
        "lfm",
    )
    narrowed = around.narrow({"d_model": 72, "n_head": [8, 12]})
    assert narrowed.gene("n_head").values == (12,)
    narrowed.architecture(narrowed.sample(np.random.default_rng(0)))


@pytest.mark.parametrize("output", ["tied", "untied"])
def test_parts_have_the_output_of_the_model(output: str) -> None:
    canonical = named_model("smollm2-135m").architecture.canonical
    parts = space_around({**canonical, "output": {"tied": output == "tied"}}, AUTO, parts=True)
    assert parts.gene("output").options == (output,)
    with pytest.raises(SpaceError) as refused:
        parts.narrow({"output": "untied" if output == "tied" else "tied"})
    assert refused.value.field == "output"


def test_parts_of_a_model_whose_embedding_is_scaled_are_as_wide() -> None:
    canonical = named_model("smollm2-135m").architecture.canonical
    scaled = {**canonical, "embedding": {**canonical["embedding"], "scaled": True}}
    assert space_around(scaled, AUTO, parts=True).gene("d_model").values == (576,)
    assert len(space_around(canonical, AUTO, parts=True).gene("d_model").values) > 1
