"""The same weights give the same logits as Hugging Face transformers' decoders with rotary positions.

In torch and in ONNX Runtime, in one pass and token by token from a cache.

transformers computes RMS norms and rotations in float32 whatever the model's type, so that float64 cannot agree further
than 1e-6; `test_decoder_parts` holds the same blocks to their equations in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from foreign_models import (
    Model,
    backward_differences,
    difference,
    logit_differences,
    randomised,
    transformers,
    twin_of,
)
from loaders import by_name, from_lfm2, from_llama
from passes import in_onnx, onnx_pieces
from tiny_models import onnx_session, random_tokens

from edgefront.core.cost.parameters import count
from edgefront.core.errors import InvalidInput
from edgefront.core.graph.build import build
from edgefront.core.graph.options import GraphOptions
from edgefront.core.graph.parameters import parameters
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import named_model, named_models

LAYERS, HEADS, KV_HEADS, WIDTH, INNER, VOCABULARY, LENGTH = 3, 4, 2, 48, 80, 211, 40
SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": LENGTH,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
}


def _architecture(attention: dict[str, Any], **changes: Any) -> Architecture:
    attention = {"kind": "attention", "n_head": HEADS, "n_kv_head": KV_HEADS, "bias": "none", **attention}
    fed = {"kind": "feed_forward", "d_inner": INNER, "gated": True, "bias": False}
    description = {
        "d_model": WIDTH,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "norm_eps": "1e-6",
        "activation": "silu",
        "embedding": {"vocab_size": VOCABULARY},
        "blocks": [attention, fed] * LAYERS,
    }
    return Architecture.parse({**description, **changes})


def llama(biased: bool = False) -> Model:
    """With Llama 3.1's stretched positions, of which all cases occur."""
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}
    config = transformers.LlamaConfig(
        **SHARED, tie_word_embeddings=False, rms_norm_eps=1e-5, attention_bias=biased, mlp_bias=biased,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, **scaling},
    )  # fmt: skip
    ours = _architecture(
        {"bias": "all" if biased else "none"},
        positions={"kind": "rotary", "theta": 500, "scaling": {"factor": 8, "length": 256}},
        norm_eps="1e-5",
        output={"kind": "tokens", "tied": False},
    )
    if biased:
        blocks = [{**block, "bias": True} if "d_inner" in block else block for block in ours.canonical["blocks"]]
        ours = Architecture.parse({**ours.canonical, "blocks": blocks})
    return transformers.LlamaForCausalLM(config), ours, from_llama


def mobilellm() -> Model:
    """Each layer twice with the same weights. transformers has no such type: a Llama whose layers have one another's
    parameters, each with keys and values of its own."""
    sizes = {**SHARED, "num_hidden_layers": 2 * LAYERS}
    config = transformers.LlamaConfig(**sizes, rms_norm_eps=1e-6, tie_word_embeddings=True)
    theirs = transformers.LlamaForCausalLM(config)
    for first, second in zip(theirs.model.layers[::2], theirs.model.layers[1::2], strict=True):
        for module, again in zip(first.modules(), second.modules(), strict=True):
            again._parameters = module._parameters
    attention, fed = _architecture({}).canonical["blocks"][:2]
    blocks = [attention, fed, {**attention, "shares": 2}, {**fed, "shares": 2}] * LAYERS

    def rename(state: Any, architecture: Architecture) -> Any:
        layers = {f"layers.{2 * layer}.": f"layers.{layer}." for layer in range(LAYERS)}
        named = {}
        for name, value in state.items():
            layer = ".".join(name.split(".")[1:3]) + "."
            if layer in layers or not layer.startswith("layers."):
                named[name.replace(layer, layers.get(layer, layer))] = value
        return by_name("mobilellm")(named, architecture)

    return theirs, _architecture({}, blocks=blocks), rename


def qwen2(window: int | None = None) -> Model:
    """Tied; biases of queries, keys and values alone. With a window in the layers after the first."""
    config = transformers.Qwen2Config(
        **SHARED, tie_word_embeddings=True, rms_norm_eps=1e-6, use_sliding_window=window is not None,
        sliding_window=window, max_window_layers=1,
    )  # fmt: skip
    ours = _architecture({"bias": "qkv"})
    if window is not None:
        attention, fed = ours.canonical["blocks"][:2]
        blocks = [attention, fed, *[{**attention, "window": window}, fed] * (LAYERS - 1)]
        ours = Architecture.parse({**ours.canonical, "blocks": blocks})
    return transformers.Qwen2ForCausalLM(config), ours, from_llama


def qwen3() -> Model:
    """Heads of a width of their own, with norms of queries and keys."""
    config = transformers.Qwen3Config(
        **SHARED, head_dim=20, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    )  # fmt: skip
    ours = _architecture({"qk_norm": True, "d_head": 20}, positions={"kind": "rotary", "theta": 1_000_000})
    return transformers.Qwen3ForCausalLM(config), ours, from_llama


def lfm2(kernel: int = 3, biased: bool = False) -> Model:
    """Convolution, attention, convolution."""
    config = transformers.Lfm2Config(
        **SHARED, norm_eps=1e-5, conv_L_cache=kernel, conv_bias=biased, block_auto_adjust_ff_dim=False,
        layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=True,
    )  # fmt: skip
    ours = _architecture({"qk_norm": True}, positions={"kind": "rotary", "theta": 1_000_000}, norm_eps="1e-5")
    attention, fed = ours.canonical["blocks"][:2]
    conv = {"kind": "short_conv", "kernel": kernel, "bias": biased}
    blocks = [conv, fed, attention, fed, conv, fed]
    return transformers.Lfm2ForCausalLM(config), Architecture.parse({**ours.canonical, "blocks": blocks}), from_lfm2


def layer_normed(kind: str, attention: dict[str, Any], fed: dict[str, Any], **changes: Any) -> Model:
    """GPT-NeoX (Pythia), StableLM or Phi: a part of each head turns, and blocks may be in parallel."""
    percent, output = changes.pop("percent"), changes.pop("output", {"kind": "tokens", "tied": False})
    given = {**SHARED, **changes, "tie_word_embeddings": False}
    if kind == "GPTNeoX":
        del given["num_key_value_heads"]
    config = getattr(transformers, f"{kind}Config")(**given)
    ours = Architecture.parse(
        {
            "d_model": WIDTH,
            "positions": {"kind": "rotary", "percent": percent},
            "activation": {"GPTNeoX": "gelu", "StableLm": "silu", "Phi": "gelu_tanh"}[kind],
            "embedding": {"vocab_size": VOCABULARY},
            "blocks": [
                {"kind": "attention", "n_head": HEADS, **attention},
                {"kind": "feed_forward", "d_inner": INNER, **fed},
            ]
            * LAYERS,
            "output": output,
        }
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config), ours, by_name(config.model_type)


def gpt_neox(parallel: bool = True, biased: bool = True) -> Model:
    attention = {"bias": "all" if biased else "none"}
    fed = {"parallel": "own_norm" if parallel else None}
    changes = {"use_parallel_residual": parallel, "attention_bias": biased, "rotary_pct": 0.5}
    return layer_normed("GPTNeoX", attention, fed, percent=50, **changes)


def stablelm(parallel: bool = False) -> Model:
    attention = {"n_kv_head": KV_HEADS, "bias": "qkv" if parallel else "none"}
    fed = {"gated": True, "bias": False, "parallel": "shared_norm" if parallel else None}
    changes = {"use_parallel_residual": parallel, "use_qkv_bias": parallel, "partial_rotary_factor": 0.34}
    return layer_normed("StableLm", attention, fed, percent=34, **changes)


def phi() -> Model:
    attention, fed = {"n_kv_head": KV_HEADS, "bias": "all"}, {"parallel": "shared_norm"}
    output = {"kind": "tokens", "tied": False, "bias": True}
    return layer_normed("Phi", attention, fed, percent=50, output=output)


def smollm3(window: int | None = None) -> Model:
    """The second layer has no positions; with a window there, as its configuration derives."""
    config = transformers.SmolLM3Config(
        **SHARED, tie_word_embeddings=True, no_rope_layer_interval=2, use_sliding_window=window is not None,
        sliding_window=window,
    )  # fmt: skip
    ours = _architecture({}, positions={"kind": "rotary", "theta": 2_000_000})
    attention, fed = ours.canonical["blocks"][:2]
    blocks = [attention, fed, {**attention, "rope": False, "window": window}, fed, attention, fed]
    return transformers.SmolLM3ForCausalLM(config), Architecture.parse({**ours.canonical, "blocks": blocks}), from_llama


def olmo2(biased: bool = False) -> Model:
    """Norms of what attention and feed-forward add, and of the queries and keys of all heads together."""
    config = transformers.Olmo2Config(**SHARED, rms_norm_eps=1e-6, attention_bias=biased)
    attention = {"bias": "all" if biased else "none", "qk_norm": "whole"}
    ours = _architecture(attention, norm="branch", output={"kind": "tokens", "tied": False})
    return transformers.Olmo2ForCausalLM(config), ours, by_name("olmo2")


def granite(biased: bool = False) -> Model:
    """Multipliers of embedding, scores, residual branches and logits."""
    config = transformers.GraniteConfig(
        **SHARED, rms_norm_eps=1e-6, attention_bias=biased, mlp_bias=biased, tie_word_embeddings=not biased,
        embedding_multiplier=12, attention_multiplier=0.11, residual_multiplier=0.22, logits_scaling=8.0,
    )  # fmt: skip
    ours = _architecture(
        {"bias": "all" if biased else "none", "scale": "0.11"},
        embedding={"vocab_size": VOCABULARY, "multiplier": 12},
        residual_multiplier="0.22",
        output={"kind": "tokens", "tied": not biased, "logits_scaling": 8},
    )
    if biased:
        blocks = [{**block, "bias": True} if "d_inner" in block else block for block in ours.canonical["blocks"]]
        ours = Architecture.parse({**ours.canonical, "blocks": blocks})
    return transformers.GraniteForCausalLM(config), ours, by_name("granite")


def gemma3(plain: bool = False) -> Model:
    """Two local layers, with a window and a rotary base of their own, and a global one between them."""
    config = transformers.Gemma3TextConfig(
        **SHARED, head_dim=20, rms_norm_eps=1e-6, query_pre_attn_scalar=20 if plain else 24, sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], tie_word_embeddings=not plain,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0 if plain else 100.0},
        },
    )  # fmt: skip
    attention = {"qk_norm": True, "d_head": 20, "scale": None if plain else repr(24**-0.5)}
    ours = _architecture(
        attention,
        positions={"kind": "rotary", "theta": 500},
        norm="both",
        activation="gelu_tanh",
        embedding={"vocab_size": VOCABULARY, "scaled": True},
        output={"kind": "tokens", "tied": not plain},
    )
    full, fed = ours.canonical["blocks"][:2]
    local = {**full, "window": 5, **({} if plain else {"theta": 100})}
    blocks = [local, fed, full, fed, local, fed]
    return (
        transformers.Gemma3ForCausalLM(config),
        Architecture.parse({**ours.canonical, "blocks": blocks}),
        by_name("gemma3_text"),
    )


def bloom(heads: int = HEADS, tied: bool = True) -> Model:
    """Biases of distances, a norm of the embedding, and queries, keys and values of one head after the other."""
    config = transformers.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=heads, layer_norm_epsilon=1e-5,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=tied,
    )  # fmt: skip
    ours = _architecture(
        {},
        positions={"kind": "alibi"},
        norm_kind="layer",
        norm_eps="1e-5",
        activation="gelu_tanh",
        embedding={"vocab_size": VOCABULARY, "norm": True},
        blocks=[{"kind": "attention", "n_head": heads}, {"kind": "feed_forward", "d_inner": 4 * WIDTH}] * LAYERS,
        output={"kind": "tokens", "tied": tied},
    )
    return transformers.BloomForCausalLM(config), ours, by_name("bloom")


MODELS = {
    "bloom": bloom,
    "bloom of twelve heads, untied": lambda: bloom(12, tied=False),
    "llama": llama,
    "llama with biases": lambda: llama(biased=True),
    "mobilellm that shares layers": mobilellm,
    "qwen2": qwen2,
    "qwen2 with windows": lambda: qwen2(window=5),
    "qwen3": qwen3,
    "smollm3": smollm3,
    "smollm3 with a window": lambda: smollm3(window=5),
    "olmo2": olmo2,
    "olmo2 with biases": lambda: olmo2(biased=True),
    "gemma3": gemma3,
    "gemma3 of one rotary base, untied": lambda: gemma3(plain=True),
    "granite": granite,
    "granite with biases": lambda: granite(biased=True),
    "gpt_neox": gpt_neox,
    "gpt_neox without biases, in turns": lambda: gpt_neox(parallel=False, biased=False),
    "stablelm": stablelm,
    "stablelm in parallel": lambda: stablelm(parallel=True),
    "phi": phi,
    "lfm2": lfm2,
    "lfm2 with biases and longer convolutions": lambda: lfm2(kernel=4, biased=True),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-6), ("float32", 1e-5)])
def test_logits_are_theirs(name: str, dtype: str, within: float) -> None:
    assert max(logit_differences(MODELS[name](), dtype, LENGTH)) < within


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_gives_the_same_logits_as_theirs(name: str) -> None:
    theirs, ours, rename = MODELS[name]()
    theirs = randomised(theirs, "float32")
    twin = twin_of(theirs, ours, rename)
    arrays = {key: value.numpy() for key, value in rename(theirs.state_dict(), ours).items()}
    prefill, decode = (
        onnx_session(build(ours, GraphOptions(mode=mode), weights=arrays)) for mode in ("prefill", "decode")
    )
    tokens, cuts = random_tokens(ours, 2, 12), [7, 8, 9, 10, 11]
    expected, cache = [], transformers.DynamicCache(config=theirs.config)
    state, pieces = twin.start(2), []
    with torch.inference_mode():
        for start, stop in zip([0, *cuts], [*cuts, 12], strict=True):
            piece = torch.from_numpy(tokens[:, start:stop])
            expected.append(theirs(piece, past_key_values=cache, use_cache=True).logits)
            scores, state = twin.step(piece, state)
            pieces.append(scores)
    logits = torch.cat(expected, 1).numpy()
    assert difference(torch.cat(pieces, 1).numpy(), logits) < 1e-5
    first, left = in_onnx(prefill, {"tokens": tokens[:, :7]})
    rest = onnx_pieces(decode, {"tokens": tokens}, left, cuts[1:], at=7)
    assert difference(np.concatenate((first, rest), 1), logits) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_theirs(name: str) -> None:
    # Their norms are in float32 whatever the weights are, in which the order of a sum tells.
    assert max(backward_differences(MODELS[name]()).values()) < 5e-6


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_theirs(name: str) -> None:
    theirs, ours, _ = MODELS[name]()
    assert sum(spec.size for spec in parameters(ours)) == theirs.num_parameters()


def _sizes(vocabulary: int, width: int, inner: int, layers: int, heads: int, kv_heads: int, **more: Any) -> Any:
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "mobilellm-125m": ("Llama", _sizes(32_000, 576, 1536, 30, 9, 3, tie_word_embeddings=True)),
    "smollm2-135m": ("Llama", _sizes(49_152, 576, 1536, 30, 9, 3, tie_word_embeddings=True)),
    "smollm2-360m": ("Llama", _sizes(49_152, 960, 2560, 32, 15, 5, tie_word_embeddings=True)),
    "lfm2-350m": (
        "Lfm2",
        _sizes(65_536, 1024, 6656, 16, 16, 8, block_ff_dim=6656, full_attn_idxs=[2, 5, 8, 10, 12, 14]),
    ),
    "qwen2.5-0.5b": ("Qwen2", _sizes(151_936, 896, 4864, 24, 14, 2, tie_word_embeddings=True)),
    "qwen3-0.6b": ("Qwen3", _sizes(151_936, 1024, 3072, 28, 16, 8, tie_word_embeddings=True, head_dim=128)),
    "tinyllama-1.1b": ("Llama", _sizes(32_000, 2048, 5632, 22, 32, 4, tie_word_embeddings=False)),
    "llama-3.2-1b": ("Llama", _sizes(128_256, 2048, 8192, 16, 32, 8, tie_word_embeddings=True)),
}
"""Named models → their class and the sizes in their published config.json."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_named_decoders_are_as_large_as_transformers_makes_them(name: str) -> None:
    kind, sizes = CONFIGURATIONS[name]
    with torch.device("meta"):
        theirs = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes))
    counted = count(named_model(name).architecture)
    assert counted.total == theirs.num_parameters()
    outside = sum(module.weight.numel() for module in {theirs.get_input_embeddings(), theirs.get_output_embeddings()})
    tied = theirs.get_input_embeddings().weight is theirs.get_output_embeddings().weight
    assert counted.embedding == (outside // 2 if tied else outside)


def test_every_named_decoder_is_checked() -> None:
    rotary = {name for name, model in named_models().items() if model.architecture.positions.kind == "rotary"}
    assert rotary == set(CONFIGURATIONS)


def test_layers_of_another_order_are_refused() -> None:
    theirs, ours, rename = lfm2()
    shuffled = ours.model_copy(update={"blocks": (*ours.blocks[1:], ours.blocks[0])})
    with pytest.raises(InvalidInput, match="Attention, ShortConv and a feed-forward block"):
        rename(theirs.state_dict(), shuffled)
