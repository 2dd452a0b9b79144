"""State: what a model carries from one pass to the next gives the same numbers as one pass over everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from descriptions import LENGTH, descriptions
from hybrids import ENCODER, EVERY_BLOCK, READERS, hybrid
from hypothesis import given
from hypothesis import strategies as st
from passes import cuts, in_torch, inputs, lively_model, torch_pieces

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.state import state_specs
from edgefront.core.nn.model import LanguageModel

SEQUENCE = 9


@given(descriptions(causal=True, over_vocabulary=True), cuts(SEQUENCE), st.sampled_from(["cache", "memory"]), st.data())
def test_any_pieces_are_the_full_pass(model: Architecture, places: list[int], form: Any, data: st.DataObject) -> None:
    window = data.draw(st.none() | st.integers(1, SEQUENCE + 1)) if model.source is None else None
    twin, given = lively_model(model), inputs(model, 2, SEQUENCE, segments=False)
    expected = in_torch(twin, given, window=window)
    scores = torch_pieces(twin, given, form, places, window=window)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)


@given(descriptions(causal=True, source=False, over_vocabulary=True), st.integers(1, 5))
@pytest.mark.parametrize("form", ["cache", "memory"])
def test_a_state_cut_to_the_window_is_the_window(form: Any, model: Architecture, window: int) -> None:
    twin, given = lively_model(model), inputs(model, 2, SEQUENCE, segments=False)
    expected = in_torch(twin, given, window=window)
    state, tokens = twin.init_cache(2, form), torch.from_numpy(given["tokens"])
    for place in range(SEQUENCE):
        with torch.inference_mode():
            scores, state = twin(tokens[:, place : place + 1], cache=state)
        state = state.keep(window - 1)
        np.testing.assert_allclose(scores[:, 0].numpy(), expected[:, place], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("positions", ["learned", "relative", "sinusoidal", "none"])
@pytest.mark.parametrize("form", ["cache", "memory"])
def test_a_step_leaves_the_state_before_it_alone(positions: str, form: Any) -> None:
    model = hybrid(positions={"kind": positions})
    twin, tokens = lively_model(model), torch.arange(6).reshape(2, 3)
    _, state = twin(tokens, cache=twin.init_cache(2, form))
    before = {name: value.clone() for name, value in state.items()}
    first, after = twin(tokens, cache=state)
    second, _ = twin(tokens, cache=state)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert all(torch.equal(state[name], value) for name, value in before.items())
    assert all(
        not torch.equal(after[name], value) for name, value in before.items() if value.shape == after[name].shape
    )


@pytest.mark.parametrize("source", [False, True])
@pytest.mark.parametrize("form", ["cache", "memory"])
def test_entries_are_those_that_are_declared(form: Any, source: bool) -> None:
    model = hybrid(blocks=READERS, source=ENCODER) if source else hybrid()
    twin = lively_model(model)
    given = {"source": torch.zeros((3, 7), dtype=torch.int64)} if source else {}
    _, state = twin(torch.zeros((3, 5), dtype=torch.int64), cache=twin.init_cache(3, form), **given)
    sizes = {"batch": 3, "past": 5, "context": 12, "source": 7}
    for held, lengths in (
        (twin.init_cache(3, form), {"batch": 3, "past": 0, "context": 0, "source": 0}),
        (state, sizes),
    ):
        assert set(held) == {spec.name for spec in state_specs(model, form)}
        for spec in state_specs(model, form):
            assert held[spec.name].shape == tuple(lengths.get(axis, axis) for axis in spec.axes), spec.name
            assert held[spec.name].dtype == (torch.int64 if spec.integer else torch.float64)


def test_the_whole_source_is_kept() -> None:
    twin = lively_model(hybrid(blocks=READERS, source=ENCODER))
    zeros = torch.zeros((1, 7), dtype=torch.int64)
    _, state = twin(zeros[:, :5], cache=twin.init_cache(1), source=zeros)
    kept = state.keep(2)
    assert {name: value.shape[2] for name, value in kept.items() if name.endswith("keys")} == {
        "blocks.0.keys": 7,
        "blocks.1.keys": 12,
        "blocks.2.keys": 2,
    }


@pytest.mark.parametrize("positions", ["learned", "relative"])
@pytest.mark.parametrize("form", ["cache", "memory"])
def test_gradients_stop_at_a_detached_state(positions: str, form: Any) -> None:
    twin = lively_model(hybrid(positions={"kind": positions}, output={"kind": "none"}))
    earlier, later = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])

    def gradient(*, detached: bool) -> torch.Tensor:
        twin.zero_grad()
        _, state = twin(earlier, cache=twin.init_cache(1, form))
        hidden, _ = twin(later, cache=state.detach() if detached else state)
        hidden.square().sum().backward()
        sums: torch.Tensor = twin.embedding.tables[0].grad.abs().sum(1)
        return sums

    through, stopped = gradient(detached=False), gradient(detached=True)
    assert through[1:6].min() > 1e-6
    assert stopped[1:4].max() == 0
    assert stopped[4:6].min() > 1e-6


def test_memory_is_projected_with_gradients_though_it_is_detached() -> None:
    # Dai et al. 2019, §3.2: the hidden states are fixed, but keys and values of them are made anew.
    twin = lively_model(hybrid(blocks=EVERY_BLOCK[:1], positions={"kind": "relative"}))
    gradients = {}
    for form in ("memory", "cache"):
        twin.zero_grad()
        _, state = twin(torch.tensor([[1, 2, 3]]), cache=twin.init_cache(1, form))
        hidden, _ = twin(torch.tensor([[4]]), "none", cache=state.detach())
        hidden.square().sum().backward()
        gradients[form] = twin.blocks[0].qkv.weight.grad.clone()
    keys = slice(8, 16)
    assert (gradients["memory"] - gradients["cache"])[keys].abs().max() > 1e-4


def test_training_over_segments_works_after_inference() -> None:
    # Tables that an inference made must be of use to a training.
    twin = lively_model(hybrid(positions={"kind": "relative"}))
    tokens = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        twin(tokens)
    twin(tokens).square().sum().backward()
    assert twin.blocks[0].relative.weight.grad.abs().max() > 0


def test_a_bidirectional_model_has_no_state() -> None:
    twin = lively_model(hybrid(causal=False))
    state = lively_model(hybrid()).init_cache(1)
    for attempt in (lambda: twin.init_cache(1), lambda: twin(torch.zeros((1, 1), dtype=torch.int64), cache=state)):
        with pytest.raises(InvalidInput, match="needs a causal model") as raised:
            attempt()
        assert raised.value.field == "mode"


def test_the_past_counts_among_the_positions() -> None:
    twin = LanguageModel(hybrid()).requires_grad_(False)
    for parameter in twin.parameters():
        parameter.zero_()
    _, state = twin(torch.zeros((1, LENGTH - 1), dtype=torch.int64), cache=twin.init_cache(1))
    _, state = twin(torch.zeros((1, 1), dtype=torch.int64), cache=state)
    with pytest.raises(
        InvalidInput, match=f"1 tokens after {LENGTH} earlier tokens is longer than the model's {LENGTH}"
    ):
        twin(torch.zeros((1, 1), dtype=torch.int64), cache=state)


def test_a_window_that_makes_no_sense_is_refused() -> None:
    """By the rule of the graphs (`test_modes_agree`)."""
    with pytest.raises(InvalidInput, match="a window needs a causal model without a source") as raised:
        lively_model(hybrid(causal=False))(torch.zeros((1, 3), dtype=torch.int64), window=3)
    assert raised.value.field == "window"
