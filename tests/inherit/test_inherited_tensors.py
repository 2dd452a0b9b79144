"""A part of a model inherits exactly the part of its tensors that it is."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from inherited_models import PARENTS, child_of, cut_table, cutter, importance, parent, tokens, weights_of
from packages import DESCRIPTIONS

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.common.errors import InvalidInput
from edgefront.core.nn.blocks import ShortConvBlock
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.quality.pruning_table import PruningTable, cannot_be_cut
from edgefront.core.training.pruning.submodel import explicit_blocks, narrow_block, random_submodel, submodel

NAMES = sorted(PARENTS)


def _changed(name: str, **zeroed: list[int]) -> LanguageModel:
    """The parent with rows of some tensors set to 0: {tensor: indices of the last axis}."""
    model: LanguageModel = copy.deepcopy(parent(name))
    with torch.no_grad():
        for tensor, places in zeroed.items():
            model.get_parameter(tensor.replace("__", "."))[..., places] = 0
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_child_with_nothing_cut_is_the_parent(name: str) -> None:
    model = parent(name)
    child = child_of(model, model.architecture, cut_table(name))
    torch.testing.assert_close(child(tokens()), model(tokens()), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_inner_units_that_give_nothing_can_go(name: str) -> None:
    silent = [1, 2, 5, 7, 11, 20, 21, 23]
    model = _changed(name, blocks__1__down__weight=silent)
    blocks = list(explicit_blocks(model.architecture))
    blocks[1] = blocks[1].model_copy(update={"d_inner": 24 - len(silent)})
    child = child_of(model, submodel(model.architecture, blocks, 16), PruningTable.trivial(model.architecture))
    torch.testing.assert_close(child(tokens()), model(tokens()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen", "gpt2", "lfm"])
def test_heads_that_give_nothing_can_go(name: str) -> None:
    """With grouped queries the group of key and value heads goes with its heads."""
    of = parent(name).architecture
    index = next(i for i, block in enumerate(of.blocks) if isinstance(block, Attention))
    block = explicit_blocks(of)[index]
    assert isinstance(block, Attention)
    d_head, each = of.d_head(block), block.n_head // block.kv_heads
    silent = list(range(d_head * each)) if each > 1 else [*range(d_head), *range(2 * d_head, 3 * d_head)]
    model = _changed(name, **{f"blocks__{index}__out__weight": silent})
    blocks = list(explicit_blocks(of))
    blocks[index] = block.model_copy(update={"n_head": 2, "n_kv_head": 2 // each})
    child = child_of(model, submodel(of, blocks, 16), PruningTable.trivial(of))
    torch.testing.assert_close(child(tokens()), model(tokens()), rtol=0, atol=1e-5)


def test_one_head_of_each_group_can_go() -> None:
    of = parent("llama").architecture
    model = _changed("llama", blocks__2__out__weight=[*range(4), *range(12, 16)])
    blocks = list(explicit_blocks(of))
    blocks[2] = blocks[2].model_copy(update={"n_head": 2})
    child = child_of(model, submodel(of, blocks, 16), PruningTable.trivial(of))
    torch.testing.assert_close(child(tokens()), model(tokens()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen", "lfm"])
def test_channels_that_are_zero_can_go(name: str) -> None:
    """A root mean square over fewer channels is another: the gains make up for it."""
    silent = [0, 3, 4, 9]
    of = Architecture.parse({**parent(name).architecture.canonical, "norm_eps": "1e-9"})
    model = load(LanguageModel(of), {key: value.clone() for key, value in weights_of(parent(name)).items()}).eval()
    with torch.no_grad():
        model.embedding.tables[0][:, silent] = 0
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("out.weight", "down.weight")):
                parameter[silent] = 0
        for block in model.blocks:
            if isinstance(block, ShortConvBlock):
                block.out.weight[:, [1, 2, 7, 8]] = 0
    child = child_of(model, submodel(of, explicit_blocks(of), 12), PruningTable.trivial(of))
    torch.testing.assert_close(child(tokens()), model(tokens()), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "silent"), [("llama", 2), ("llama", 3), ("gpt2", 1), ("lfm", 4)])
def test_the_block_that_adds_nothing_is_the_one_that_goes(name: str, silent: int) -> None:
    model = copy.deepcopy(parent(name))
    block = model.blocks[silent]
    with torch.no_grad():
        for layer in (getattr(block, "out", None), getattr(block, "down", None)):
            for parameter in () if layer is None else layer.parameters():
                parameter.zero_()
    table = cutter(model).table()
    assert table.blocks[silent].dropped == pytest.approx(0, abs=1e-6)
    of = model.architecture
    kept = [block for index, block in enumerate(explicit_blocks(of)) if index != silent]
    child = child_of(model, submodel(of, kept, 16), table)
    torch.testing.assert_close(child(tokens()), model(tokens()), rtol=0, atol=1e-5)
    assert (table.align_one(child.architecture).blocks[0] != silent).all()


def test_an_output_of_its_own_begins_as_the_embedding() -> None:
    tied = parent("qwen")
    apart = Architecture.parse({**tied.architecture.canonical, "output": {"tied": False}})
    child = child_of(tied, apart, cut_table("qwen"))
    torch.testing.assert_close(child(tokens()), tied(tokens()), rtol=0, atol=1e-6)


def test_a_smaller_vocabulary_has_the_first_tokens_and_shorter_positions_the_first_ones() -> None:
    model = parent("gpt2")
    value = model.architecture.canonical
    smaller = Architecture.parse(
        {**value, "embedding": {"vocab_size": 100}, "positions": {"kind": "learned", "length": 25}}
    )
    child, text = child_of(model, smaller, cut_table("gpt2")), tokens() % 100
    torch.testing.assert_close(child(text), model(text)[..., :100], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_random_part_inherits_finite_logits(name: str) -> None:
    model, rng = parent(name), np.random.default_rng(5)
    table, of = cut_table(name), importance(model)
    for _ in range(20):
        child = child_of(model, random_submodel(model.architecture, rng), table, of)
        assert child(tokens()).isfinite().all()


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"d_model": 32}, "d_model"),
    ("llama", {"norm_eps": "1e-6"}, "norm_eps"),
    ("llama", {"activation": "gelu"}, "activation"),
    ("llama", {"positions": {"kind": "rotary", "theta": 500}}, "positions.theta"),
    ("llama", {"output": {"kind": "tokens"}}, "output.tied"),
    ("llama", {"output": {"tied": False, "bias": True}}, "output.bias"),
    ("llama", {"output": {"tied": False, "logits_scaling": 2}}, "output.logits_scaling"),
    ("llama", {"embedding": {"vocab_size": 200, "norm": True}}, "embedding.norm"),
    ("llama", {"embedding": {"vocab_size": 200, "multiplier": 2}}, "embedding.scaled"),
    ("qwen", {"final_norm": False}, "final_norm"),
    ("llama", {"embedding": {"vocab_size": 300}}, "embedding.vocab_size"),
    ("gpt2", {"positions": {"kind": "learned", "length": 64}}, "positions.length"),
]


@pytest.mark.parametrize(("name", "changes", "field"), WRONG)
def test_what_is_no_part_is_refused_by_its_field(name: str, changes: dict[str, Any], field: str) -> None:
    child = Architecture.parse({**parent(name).architecture.canonical, **changes})
    with pytest.raises(InvalidInput, match="no part of its parent") as refused:
        child_of(parent(name), child, cut_table(name))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        (0, {"n_head": 8, "n_kv_head": 2}),  # more heads
        (0, {"n_head": 4, "n_kv_head": 1}),  # more heads for each key/value head
        (0, {"d_head": 2}),
        (1, {"d_inner": 25}),
        (1, {"gated": False}),
        (1, {"bias": True}),
        (0, {"window": 8}),
        (0, {"qk_norm": True}),
        (0, {"rope": False}),
    ],
)
def test_a_block_that_is_no_part_is_refused_by_its_number(index: int, changes: dict[str, Any]) -> None:
    of = parent("llama").architecture
    blocks = [block.model_dump(mode="json", exclude_none=True) for block in explicit_blocks(of)]
    blocks[index] |= changes
    child = Architecture.parse({**of.canonical, "blocks": blocks})
    with pytest.raises(InvalidInput, match=rf"blocks\.{index}"):
        child_of(parent("llama"), child, cut_table("llama"))


def test_too_many_blocks_and_another_order_are_refused() -> None:
    of = parent("llama").architecture
    blocks = list(explicit_blocks(of))
    for wrong in ([*blocks, blocks[0]], [blocks[1], *blocks[1:]]):
        with pytest.raises(InvalidInput, match="in the same order"):
            child_of(parent("llama"), submodel(of, wrong, 16), cut_table("llama"))


def test_narrowing_keeps_as_many_heads_to_a_key_value_head() -> None:
    block = Attention(n_head=9, n_kv_head=3)
    assert narrow_block(block, 0.7) == Attention(n_head=6, n_kv_head=2)
    assert narrow_block(Attention(n_head=4, n_kv_head=1), 0.5) == Attention(n_head=2, n_kv_head=1)
    assert narrow_block(FeedForward(d_inner=1536), 0.5) == FeedForward(d_inner=768)


def test_layers_without_positions_are_never_parts_of_those_with_rotary_ones() -> None:
    canonical = parent("llama").architecture.canonical
    attention, fed = canonical["blocks"][:2]
    blocks = [attention, fed, {**attention, "rope": False}, fed, attention, fed]
    of = LanguageModel(Architecture.parse({**canonical, "blocks": blocks}))
    table, rng = PruningTable.trivial(of.architecture), np.random.default_rng(0)
    for _ in range(40):
        part = random_submodel(of.architecture, rng)
        for block, place in zip(part.blocks, table.align_part(part).blocks[0], strict=True):
            assert getattr(block, "rope", None) == getattr(of.architecture.blocks[place], "rope", None)


@pytest.mark.parametrize("changes", [{"theta": 5}, {"scale": "0.1"}, {"bias": "all"}, {"qk_norm": "whole"}])
def test_attention_that_no_width_tells_apart_is_said_before_anything_is_studied(changes: dict[str, Any]) -> None:
    canonical = parent("qwen").architecture.canonical
    attention, fed = canonical["blocks"][:2]
    of = Architecture.parse({**canonical, "blocks": [attention, fed, {**attention, **changes}, fed]})
    assert "theta, scale, biases or norms" in (cannot_be_cut(of) or "")
    windowed = {**attention, **changes, "window": 6}
    assert cannot_be_cut(Architecture.parse({**canonical, "blocks": [attention, fed, windowed, fed]})) is None


@pytest.mark.parametrize(
    ("description", "words"),
    [
        (DESCRIPTIONS["srupp"], "blocks of srupp"),
        (DESCRIPTIONS["sru"], "blocks of sru"),
        (DESCRIPTIONS["transformer-xl"], "positions relative"),
        (DESCRIPTIONS["bert"], "output masked_tokens"),
        (DESCRIPTIONS["adaptive"], "an adaptive embedding"),
    ],
)
def test_models_that_cannot_be_cut_are_refused_by_their_part(description: dict[str, Any], words: str) -> None:
    ends = {"d_model": 16, "embedding": {"vocab_size": 256}}
    assert cannot_be_cut(Architecture.parse({**ends, **description})) == words


def test_a_narrower_model_is_no_part_of_one_whose_embedding_is_scaled_by_its_width() -> None:
    canonical = parent("llama").architecture.canonical
    of = Architecture.parse({**canonical, "embedding": {**canonical["embedding"], "scaled": True}})
    table = PruningTable.trivial(of)
    assert table.align_one(submodel(of, explicit_blocks(of)[2:], of.d_model)).is_part[0]
    narrower = submodel(of, explicit_blocks(of), of.d_model - 2)
    assert not table.align_one(narrower).is_part[0]
    with pytest.raises(InvalidInput, match="scaled by √d_model"):
        table.align_part(narrower)
