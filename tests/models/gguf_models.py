"""Small models of every family of GGUF files."""

from __future__ import annotations

from typing import Any

from edgefront.core.architectures.architecture import Architecture

CONV = {"kind": "short_conv"}


def attention(n_head: int = 4, n_kv_head: int = 2, **fields: Any) -> dict[str, Any]:
    return {"kind": "attention", "n_head": n_head, "n_kv_head": n_kv_head, "d_head": 16, "bias": "none", **fields}


def normed(**fields: Any) -> dict[str, Any]:
    """An attention with norms of queries and keys."""
    return attention(**fields, qk_norm=True)


def inner(d_inner: int = 96, **fields: Any) -> dict[str, Any]:
    return {"kind": "feed_forward", "d_inner": d_inner, "gated": True, "bias": False, **fields}


def stack(*blocks: dict[str, Any], theta: int = 10_000, scaling: Any = None, **fields: Any) -> Architecture:
    return Architecture.parse(
        {
            "d_model": 64,
            "positions": {"kind": "rotary", "theta": theta, "scaling": scaling},
            "norm_kind": "rms",
            "activation": "silu",
            "embedding": {"vocab_size": 331},
            "blocks": list(blocks),
            **fields,
        }
    )


def partly(attending: dict[str, Any], fed: dict[str, Any], activation: str, **output: Any) -> Architecture:
    """Layer norms, positions that turn a part of each head, and an output of its own."""
    layer = [attention(**attending), {"kind": "feed_forward", "d_inner": 96, **fed}]
    positions, output = {"kind": "rotary", "percent": 50}, {"kind": "tokens", "tied": False, **output}
    return stack(*layer * 3, positions=positions, norm_kind="layer", activation=activation, output=output)


def gpt2(**fields: Any) -> Architecture:
    """Positions that are learned, layer norms and biases."""
    layer = [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 160}]
    description = {"d_model": 64, "positions": {"kind": "learned", "length": 48}, "embedding": {"vocab_size": 331}}
    return Architecture.parse({**description, "blocks": layer * 3, **fields})


UNGROUPED = {"n_kv_head": 4, "bias": "all"}
MULTIPLIED: dict[str, Any] = {
    "embedding": {"vocab_size": 331, "multiplier": 12},
    "residual_multiplier": "0.22",
    "output": {"logits_scaling": 8},
}
GEMMA: dict[str, Any] = {
    "theta": 1_000_000,
    "norm": "both",
    "activation": "gelu_tanh",
    "embedding": {"vocab_size": 331, "scaled": True},
}
STACKS = {
    "gpt2": gpt2(),
    "gpt2 untied": gpt2(output={"tied": False}),
    "llama": stack(*[attention(), inner()] * 3),
    "llama of one head of keys, untied": stack(*[attention(n_kv_head=1), inner()] * 2, output={"tied": False}),
    "llama with biases": stack(*[attention(bias="all"), inner(bias=True)] * 2, theta=500_000),
    "llama of wide heads": stack(*[attention(d_head=32, bias="qkv"), inner()] * 2, norm_eps="1e-6"),
    "llama stretched": stack(*[attention(), inner()] * 2, scaling={"factor": 8, "length": 16}),
    "deci": stack(attention(), inner(), attention(2, 1), inner(160), attention(8, 8), inner(32)),
    "deci without an attention": stack(attention(), inner(), inner(160), attention(2, 2), inner(32)),
    "deci without a feed_forward": stack(attention(), attention(2, 2), inner(32), {"kind": "identity"}, attention()),
    "deci that begins with a feed_forward": stack(inner(), attention(), inner(160), attention(2, 1), inner(32)),
    "deci stretched": stack(attention(), inner(32), attention(), inner(), scaling={"factor": 8, "length": 16}),
    "qwen2": stack(*[attention(bias="qkv"), inner()] * 2, theta=1_000_000, norm_eps="1e-6"),
    "qwen3": stack(*[normed(d_head=32), inner()] * 2),
    "smollm3": stack(*[*[attention(), inner()] * 3, attention(rope=False), inner()] * 2, theta=2_000_000),
    "olmo2": stack(*[attention(qk_norm="whole"), inner()] * 2, norm="branch", output={"tied": False}),
    "granite": stack(*[attention(scale="0.11"), inner()] * 2, **MULTIPLIED),
    "granite of some multipliers, untied": stack(
        *[attention(n_head=8), inner()] * 2, residual_multiplier="0.5", output={"tied": False}
    ),
    "gemma3": stack(
        *[*[normed(d_head=32, window=8, theta=10_000), inner()] * 5, normed(d_head=32), inner()],
        *[normed(d_head=32, window=8, theta=10_000), inner()] * 2,
        **GEMMA,
    ),
    "gptneox": partly(UNGROUPED, {"parallel": "own_norm"}, "gelu_tanh"),
    "gptneox in turns": partly(UNGROUPED, {}, "gelu"),
    "stablelm": partly({"bias": "qkv"}, {"gated": True, "bias": False}, "silu"),
    "stablelm in parallel": partly({}, {"gated": True, "bias": False, "parallel": "shared_norm"}, "silu"),
    "phi2": partly({"bias": "all"}, {"parallel": "shared_norm"}, "gelu_tanh", bias=True),
    "lfm2": stack(CONV, inner(), normed(), inner(), CONV, inner(), normed(n_kv_head=1), inner(), norm_eps="1e-6"),
    "lfm2 with a window": stack(CONV, inner(), normed(window=8), inner(), CONV, inner(), theta=1_000_000),
    "lfm2 of kernel 4": stack(normed(), inner(), {**CONV, "kernel": 4}, inner(), output={"tied": False}),
}
