"""Parts of today's decoders against their equations, one token at a time in numpy: grouped queries, rotary positions,
windows, norms of queries and keys, RMS norms, gates, short convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from passes import in_torch, inputs, lively_model, torch_pieces
from tiny_models import lively_weights

from edgefront.core.graph.positions import rotary_frequencies
from edgefront.core.graph.state import state_specs
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.embeddings_and_head import RotaryPositions

Array = NDArray[Any]
Weights = Mapping[str, Array]
SEQUENCE = 7


def decoder(**changes: Any) -> Architecture:
    description = {
        "d_model": 12,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "norm_eps": "1e-3",
        "activation": "silu",
        "embedding": {"vocab_size": 17},
        "blocks": [
            {
                "kind": "attention",
                "n_head": 6,
                "d_head": 4,
                "n_kv_head": 2,
                "qk_norm": True,
                "bias": "qkv",
                "window": 3,
            },
            {"kind": "feed_forward", "d_inner": 10, "gated": True, "bias": False},
            {"kind": "attention", "n_head": 3, "bias": "none"},
        ],
    }
    return Architecture.parse({**description, **changes})


def hidden_states(tokens: Array, w: Weights, model: Architecture) -> Array:
    """[n, d_model] after the last block, for models without final norm."""
    x = w["embedding.tables.0"][tokens] * float(model.embedding.multiplier)
    beside = x, x
    for index, block in enumerate(model.blocks):
        layer = {
            name.removeprefix(f"blocks.{index}."): value
            for name, value in w.items()
            if name.startswith(f"blocks.{index}.")
        }
        source = x
        if getattr(block, "parallel", None) is not None:
            source, *_ = beside
        if getattr(block, "parallel", None) == "shared_norm":
            _, read = beside
        else:
            read = normed(source, layer, "norm", model) if model.norm in ("pre", "both") else source
        beside = x, read
        change = {"attention": attention, "feed_forward": fed, "short_conv": convolved}[block.kind](
            read, layer, block, model
        )
        if model.norm in ("branch", "both"):
            change = normed(change, layer, "norm" if model.norm == "branch" else "after_norm", model)
        change = change * float(model.residual_multiplier)
        x = normed(x + change, layer, "norm", model) if model.norm == "post" else x + change
    return x


def normed(x: Array, layer: Weights, name: str, model: Architecture, kind: str | None = None) -> Array:
    eps = float(model.norm_eps)
    is_rms = (kind or model.norm_kind) == "rms"
    centred = x if is_rms else x - x.mean(-1, keepdims=True)
    scaled: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * layer[f"{name}.weight"]
    return scaled if is_rms else scaled + layer[f"{name}.bias"]


def attention(read: Array, layer: Weights, block: Any, model: Architecture) -> Array:
    size = model.d_head(block)
    queries, keys = block.n_head * size, (block.n_kv_head or block.n_head) * size
    qkv = read @ layer["qkv.weight"].T + layer.get("qkv.bias", 0.0)
    out = np.zeros((len(read), queries))
    if block.qk_norm == "whole":
        qkv = qkv.copy()
        for name, part in (("q_norm", slice(queries)), ("k_norm", slice(queries, queries + keys))):
            qkv[:, part] = normed(qkv[:, part], layer, name, model, "rms")
    for head in range(block.n_head):
        shared = head * keys // queries
        q = qkv[:, head * size : (head + 1) * size]
        k = qkv[:, queries + shared * size : queries + (shared + 1) * size]
        v = qkv[:, queries + keys + shared * size : queries + keys + (shared + 1) * size]
        if block.qk_norm is True:
            q, k = normed(q, layer, "q_norm", model, "rms"), normed(k, layer, "k_norm", model, "rms")
        for i in range(len(read)):
            first = 0 if block.window is None else max(0, i + 1 - block.window)
            seen = range(first, i + 1)
            scores = np.array([turned(q[i], i, model, block) @ turned(k[j], j, model, block) for j in seen]) * (
                1 / math.sqrt(size) if block.scale is None else float(block.scale)
            )
            if model.positions.kind == "alibi":
                scores -= slope(head, block.n_head) * (i - np.array(seen))
            share = np.exp(scores - scores.max())
            out[i, head * size : (head + 1) * size] = (share / share.sum()) @ v[first : i + 1]
    outputs: Array = out @ layer["out.weight"].T + layer.get("out.bias", 0.0)
    return outputs


def slope(head: int, heads: int) -> float:
    """Of ALiBi: 2^(-8/n), 2^(-16/n), …; beyond the largest power of two, of the odd steps of twice as many heads."""
    power = 2 ** int(math.log2(heads))
    step = head + 1 if head < power else head - power + 0.5
    return 2.0 ** (-8 * step / power)


def turned(x: Array, place: int, model: Architecture, block: Any) -> Array:
    """Pairs of features as complex numbers, times exp(i·place·frequency)."""
    positions = model.positions
    if not isinstance(positions, RotaryPositions) or not block.rope:
        return x
    width = len(x) * positions.percent // 100
    half = width // 2
    theta = float(positions.theta if block.theta is None else block.theta)
    angles = np.array([place * theta ** (-2 * i / width) for i in range(half)])
    rotated = (x[:half] + 1j * x[half:width]) * np.exp(1j * angles)
    return np.concatenate([rotated.real, rotated.imag, x[width:]])


def fed(read: Array, layer: Weights, block: Any, model: Architecture) -> Array:
    inner = read @ layer["up.weight"].T + layer.get("up.bias", 0.0)
    half = block.d_inner
    inner = active(inner[:, :half], model) * inner[:, half:] if block.gated else active(inner, model)
    outputs: Array = inner @ layer["down.weight"].T + layer.get("down.bias", 0.0)
    return outputs


def convolved(read: Array, layer: Weights, block: Any, model: Architecture) -> Array:
    gate_in, gate_out, passed = np.split(read @ layer["up.weight"].T + layer.get("up.bias", 0.0), 3, axis=1)
    inputs, mixed = gate_in * passed, np.zeros_like(passed)
    for t in range(len(read)):
        for back in range(min(block.kernel, t + 1)):
            mixed[t] += layer["conv.weight"][block.kernel - 1 - back] * inputs[t - back]
    outputs: Array = (gate_out * (mixed + layer.get("conv.bias", 0.0))) @ layer["out.weight"].T
    return outputs + layer.get("out.bias", 0.0)


def active(x: Array, model: Architecture) -> Array:
    if model.activation == "silu":
        activated: Array = x / (1 + np.exp(-x))
        return activated
    if model.activation == "gelu":
        return np.vectorize(lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2)(x)
    return np.maximum(x, 0)


BLOCKS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "kind": st.just("attention"),
                "n_head": st.sampled_from([2, 4, 6]),
                "d_head": st.sampled_from([4, 8]),
                "n_kv_head": st.sampled_from([None, 1, 2]),
                "window": st.sampled_from([None, 2, 3, 20]),
                "qk_norm": st.sampled_from([False, True, "whole"]),
                "theta": st.sampled_from([None, 20]),
                "scale": st.sampled_from([None, None, "0.3"]),
                "bias": st.sampled_from(["all", "qkv", "none"]),
            }
        ),
        st.fixed_dictionaries(
            {"kind": st.just("feed_forward"), "d_inner": st.just(5), "gated": st.booleans(), "bias": st.booleans()}
        ),
        st.fixed_dictionaries(
            {"kind": st.just("short_conv"), "kernel": st.sampled_from([2, 3, 9]), "bias": st.booleans()}
        ),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def decoders(draw: st.DrawFn) -> Architecture:
    """Of any blocks; a feed_forward after an attention may be parallel to it."""
    norm, blocks = draw(st.sampled_from(["pre", "post", "branch", "both"])), draw(BLOCKS)
    positions = draw(
        st.sampled_from(
            [{"kind": "rotary", "theta": 50}, {"kind": "rotary", "percent": 50}, {"kind": "none"}, {"kind": "alibi"}]
        )
    )
    for block in blocks:
        if positions["kind"] == "rotary" and block["kind"] == "attention":
            block["rope"] = draw(st.sampled_from([True, True, False]))
        if positions["kind"] != "rotary" or not block.get("rope"):
            block.pop("theta", None)
    for before, block in pairwise(blocks):
        if norm in ("pre", "both") and (before["kind"], block["kind"]) == ("attention", "feed_forward"):
            block["parallel"] = draw(st.sampled_from([None, "own_norm", "shared_norm"]))
    return draw(
        st.builds(
            decoder,
            positions=st.just(positions),
            norm=st.just(norm),
            norm_kind=st.sampled_from(["rms", "layer"]),
            activation=st.sampled_from(["silu", "gelu", "relu"]),
            blocks=st.just(blocks),
            final_norm=st.just(False),
            residual_multiplier=st.sampled_from([1, "0.22"]),
            embedding=st.sampled_from([{"vocab_size": 17}, {"vocab_size": 17, "multiplier": 12}]),
        )
    )


@given(decoders())
@settings(max_examples=40)
def test_a_decoder_is_its_equations(model: Architecture) -> None:
    given, weights = inputs(model, 1, SEQUENCE), lively_weights(model, 1, "float64")
    outputs = in_torch(lively_model(model), given, logits="none")
    expected = hidden_states(given["tokens"][0], weights, model)
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-10, atol=1e-10)


def test_frequencies_are_stretched_as_by_llama() -> None:
    """The formula of Llama 3.1 by wavelengths, as transformers has it, over a width where all its cases occur."""
    positions = RotaryPositions.model_validate({"theta": 500_000, "scaling": {"factor": 32, "length": 8192}})
    plain = rotary_frequencies(RotaryPositions(theta=500_000), 64)
    cases = set()
    for frequency, was in zip(rotary_frequencies(positions, 64), plain, strict=True):
        wave = 2 * math.pi / was
        smooth = (8192 / wave - 1) / (4 - 1)
        case = "long" if wave > 8192 / 1 else "short" if wave < 8192 / 4 else "between"
        expected = {"long": was / 32, "short": was, "between": (1 - smooth) * was / 32 + smooth * was}[case]
        assert frequency == pytest.approx(expected, rel=1e-12)
        cases.add(case)
    assert cases == {"long", "short", "between"}


@pytest.mark.parametrize("form", ["cache", "memory"])
def test_a_window_bounds_what_is_kept(form: Any) -> None:
    model = decoder()
    twin, given = lively_model(model), inputs(model, 2, SEQUENCE)
    expected = in_torch(twin, given)
    for cuts in ([1, 2, 3, 4, 5, 6], [5], []):
        np.testing.assert_allclose(torch_pieces(twin, given, form, cuts), expected, rtol=1e-10, atol=1e-10)
    sizes = {spec.name: spec.sizes(2, 1000) for spec in state_specs(model, form)}
    if form == "memory":
        assert sizes == {"blocks.0.memory": (2, 2, 12), "blocks.2.memory": (2, 1000, 12)}
    else:
        assert sizes == {
            "position": (),
            **{f"blocks.0.{part}": (2, 2, 2, 4) for part in ("keys", "values")},
            **{f"blocks.2.{part}": (2, 3, 1000, 4) for part in ("keys", "values")},
        }


@pytest.mark.parametrize("form", ["cache", "memory"])
def test_a_convolution_keeps_its_last_inputs(form: Any) -> None:
    model = decoder(blocks=[{"kind": "short_conv", "kernel": 4}, {"kind": "short_conv", "kernel": 2, "bias": True}])
    assert [(spec.name, spec.sizes(2, 1000)) for spec in state_specs(model, form)] == [
        ("blocks.0.inputs", (2, 3, 12)),
        ("blocks.1.inputs", (2, 1, 12)),
    ]
    twin, given = lively_model(model), inputs(model, 2, SEQUENCE)
    expected = in_torch(twin, given)
    for cuts in ([1, 2, 3, 4, 5, 6], [5], []):
        np.testing.assert_allclose(torch_pieces(twin, given, form, cuts), expected, rtol=1e-10, atol=1e-10)
