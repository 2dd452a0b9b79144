"""Attention blocks against the equations, one query and one key at a time, and what masks must not change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from descriptions import descriptions
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from passes import in_torch, inputs, lively_model, masks
from tiny_models import lively_weights

from edgefront.core.nn.blocks.attention import shifted
from edgefront.core.nn.context import Context
from edgefront.core.nn.state import State
from edgefront.core.spaces.architecture import Architecture

Array = NDArray[np.float64]
D_MODEL = 6


def one_attention(
    n_head: int = 2, d_head: int = 3, positions: Mapping[str, Any] | None = None, **changes: Any
) -> Architecture:
    description = {
        "d_model": D_MODEL,
        "positions": positions or {"kind": "relative"},
        "embedding": {"vocab_size": 13},
        "blocks": [{"kind": "attention", "n_head": n_head, "d_head": d_head}],
    }
    return Architecture.parse({**description, **changes})


def norm(model: Architecture, weights: Mapping[str, Array], x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + float(model.norm_eps))
    return centred / spread * weights["blocks.0.norm.weight"] + weights["blocks.0.norm.bias"]


def sinusoid(distance: int) -> Array:
    """All sines, then all cosines, as in the paper's code."""
    angles = [distance / 10000 ** (2 * i / D_MODEL) for i in range(D_MODEL // 2)]
    return np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])


def naive_block(
    model: Architecture, weights: Mapping[str, Array], x: Array, memory: Array, window: int | None
) -> Array:
    """One row of a batch: x [sequence, d_model] after `memory` [past, d_model], by Dai et al. 2019, §3.3.

    A_{ij} = q_i·k_j + q_i·r_{i-j} + u·k_j + v·r_{i-j} for j ≤ i; without relative positions q_i·k_j alone.
    """
    block, d_head, positions = model.blocks[0], model.d_head(model.blocks[0]), model.positions
    relative, width = positions.kind == "relative", block.n_head * d_head
    both = np.concatenate((memory, x))
    read = norm(model, weights, both) if model.norm == "pre" else both
    qkv = read @ weights["blocks.0.qkv.weight"].T + weights.get("blocks.0.qkv.bias", 0.0)
    of_heads = np.zeros((len(x), width))
    for head in range(block.n_head):
        part = slice(head * d_head, (head + 1) * d_head)
        q, k, v = (qkv[:, start * width :][:, part] for start in range(3))
        for row in range(len(x)):
            i = len(memory) + row
            scores = []
            seen = range(0 if window is None else max(0, i + 1 - window), i + 1)
            for j in seen:
                score = q[i] @ k[j]
                if relative:
                    owner = "positions" if positions.shared else "blocks.0"
                    u_head, v_head = weights[f"{owner}.u"][head], weights[f"{owner}.v"][head]
                    distance = i - j if positions.clamp is None else min(i - j, positions.clamp)
                    r = (weights["blocks.0.relative.weight"] @ sinusoid(distance))[part]
                    score += q[i] @ r + u_head @ k[j] + v_head @ r
                scores.append(score / math.sqrt(d_head))
            chances = np.exp(np.array(scores) - max(scores))
            of_heads[row, part] = sum(p * v[j] for p, j in zip(chances / chances.sum(), seen, strict=True))
    update = of_heads @ weights["blocks.0.out.weight"].T + weights.get("blocks.0.out.bias", 0.0)
    return x + update if model.norm == "pre" else norm(model, weights, x + update)


@given(
    model=st.builds(
        one_attention,
        n_head=st.sampled_from([1, 3]),
        d_head=st.sampled_from([1, 4]),
        positions=st.fixed_dictionaries(
            {"kind": st.just("relative"), "shared": st.booleans(), "clamp": st.sampled_from([None, 1, 3, 50])}
        )
        | st.just({"kind": "none"}),
        norm=st.sampled_from(["pre", "post"]),
        norm_eps=st.sampled_from(["1e-5", "1e-2"]),
    ),
    sequence=st.integers(1, 7),  # fewer than d_head and more: the two ways to the scores of distances
    past=st.integers(0, 6),
    window=st.none() | st.integers(1, 14),
)
@settings(max_examples=100)
@pytest.mark.parametrize("form", ["memory", None])
def test_the_block_is_the_equations(
    form: Any, model: Architecture, sequence: int, past: int, window: int | None
) -> None:
    past = past if form else 0
    weights = lively_weights(model, 3, "float64")
    twin = lively_model(model, 3)
    x, memory = np.random.default_rng(1).normal(size=(2, sequence, D_MODEL)), np.zeros((2, past, D_MODEL))
    memory += np.random.default_rng(2).normal(size=memory.shape)
    state = None
    if form:
        state = State.empty(model, form, 2, torch.empty(0, dtype=torch.float64))
        state["blocks.0.memory"] = torch.from_numpy(memory)
    context = Context(model, sequence, state=state, window=window, positions=twin.positions)
    with torch.inference_mode():
        outputs = twin.blocks[0](torch.from_numpy(x), "blocks.0", context).numpy()
    for row in range(2):
        expected = naive_block(model, weights, x[row], memory[row], window)
        np.testing.assert_allclose(outputs[row], expected, rtol=1e-10, atol=1e-10)


def test_scores_of_distances_are_the_papers_relative_shift() -> None:
    """Dai et al. 2019, appendix B: pad by a column, fold, drop the first row; equal up to the diagonal."""
    sequence, keys = 4, 7
    by_distance = torch.randn(2, 3, sequence, keys + 1, generator=torch.Generator().manual_seed(0))
    rows = by_distance[..., 1:]  # of the distances keys - 1 … 0
    padded = torch.cat((torch.zeros(2, 3, sequence, 1), rows), 3)
    expected = padded.reshape(2, 3, keys + 1, sequence)[:, :, 1:].reshape(2, 3, sequence, keys)
    seen = torch.arange(keys) <= torch.arange(sequence).unsqueeze(1) + keys - sequence
    torch.testing.assert_close(shifted(by_distance)[..., seen], expected[..., seen], rtol=0, atol=0)


def test_gradients_reach_every_parameter_of_a_relative_attention() -> None:
    for shared in (True, False):
        twin = lively_model(one_attention(positions={"kind": "relative", "shared": shared}))
        for sequence in (2, 5):
            twin.zero_grad()
            twin(torch.arange(sequence)[None], "none").square().sum().backward()
            assert all(
                parameter.grad.abs().max() > 0
                for name, parameter in twin.named_parameters()
                if not name.startswith("output.")
            )


@given(descriptions(over_vocabulary=True, source=False), st.data())
@settings(max_examples=30)
def test_padding_changes_nothing_for_real_tokens(model: Architecture, data: st.DataObject) -> None:
    """A padded row gives its real tokens what a batch of them alone gives; only places count where they lie."""
    sequence, real = 7, data.draw(st.integers(1, 7))
    twin, given = lively_model(model), inputs(model, 2, sequence)
    mask = np.arange(sequence)[None] < np.array([[real], [sequence]])
    padded = in_torch(twin, {**given, "mask": mask})
    alone = in_torch(twin, {name: value[:1, :real] for name, value in given.items()})
    np.testing.assert_allclose(padded[:1, :real], alone, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(padded[1:], in_torch(twin, given)[1:], rtol=1e-9, atol=1e-9)


@given(descriptions(over_vocabulary=True), st.data())
@settings(max_examples=30)
def test_the_values_of_padded_tokens_do_not_matter(model: Architecture, data: st.DataObject) -> None:
    twin, given, others = lively_model(model), inputs(model, 3, 6), {}
    mask, changed = np.ones((3, 6), bool), dict(given)
    which = data.draw(st.sampled_from(["mask", "source_mask", "both"]) if model.source else st.just("mask"))
    if which != "source_mask":
        mask = others["mask"] = masks(data.draw, 3, 6)
        other = (given["tokens"] + 1) % model.embedding.vocab_size
        changed["tokens"] = np.where(mask, given["tokens"], other)
    if which != "mask":
        others["source_mask"] = masks(data.draw, 3, 5)
        other = (given["source_tokens"] + 1) % model.source.embedding.vocab_size
        changed["source_tokens"] = np.where(others["source_mask"], given["source_tokens"], other)
    first, second = in_torch(twin, {**given, **others}), in_torch(twin, {**changed, **others})
    assert np.isfinite(first[mask]).all()
    np.testing.assert_allclose(first[mask], second[mask], rtol=1e-9, atol=1e-9)


@given(descriptions(causal=True, source=True, over_vocabulary=True), st.data())
@settings(max_examples=40)
def test_a_padded_source_stays_masked_in_later_steps(model: Architecture, data: st.DataObject) -> None:
    twin, given = lively_model(model), inputs(model, 2, 6, segments=False)
    source_mask = masks(data.draw, 2, 5)
    expected = in_torch(twin, {**given, "source_mask": source_mask})
    mask, tokens = torch.from_numpy(source_mask), torch.from_numpy(given["tokens"])
    for form in ("cache", "memory"):
        with torch.inference_mode():
            source = torch.from_numpy(given["source_tokens"])
            first, state = twin.step(tokens[:, :4], twin.start(2, form), source=source, source_mask=mask)
            second, _ = twin.step(tokens[:, 4:], state, source_mask=mask)
        np.testing.assert_allclose(torch.cat((first, second), 1).numpy(), expected, rtol=1e-9, atol=1e-9)
