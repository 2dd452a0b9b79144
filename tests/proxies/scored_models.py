"""Models of every kind, small enough for definitions that try each weight in turn."""

from __future__ import annotations

from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.training.proxies.registry import ProxySettings

SMALL = ProxySettings(rows=3, length=4)
_PAIR: list[dict[str, Any]] = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 24}]


def model(**changes: Any) -> Architecture:
    description: dict[str, Any] = {
        "d_model": 4,
        "positions": {"kind": "learned", "length": 8},
        "embedding": {"vocab_size": 23},
        "blocks": _PAIR,
    }
    return Architecture.parse({**description, **changes})


RELATIVE = {"positions": {"kind": "relative"}, "norm": "post", "activation": "relu"}
ADAPTIVE = {"embedding": {"vocab_size": 23, "cutoffs": [9], "div": 2}}

MODELS = {
    "gpt": model(),
    "deeper": model(blocks=[*_PAIR, {"kind": "identity"}, *_PAIR]),
    "transformer-xl": model(**RELATIVE, **ADAPTIVE),
    "srupp": model(positions={"kind": "none"}, blocks=[{"kind": "srupp", "d_attn": 4}, {"kind": "sru"}], **ADAPTIVE),
    "decoder": model(
        positions={"kind": "rotary"},
        norm_kind="rms",
        activation="silu",
        blocks=[
            {"kind": "short_conv"},
            {"kind": "attention", "n_head": 2, "n_kv_head": 1, "qk_norm": True, "bias": "none"},
            {"kind": "feed_forward", "d_inner": 24, "gated": True, "bias": False},
        ],
    ),
    "encoder": model(
        causal=False,
        norm="post",
        embedding={"vocab_size": 23, "segments": 2, "norm": True},
        output={"kind": "pooled"},
    ),
    "translation": model(
        source={
            "d_model": 4,
            "causal": False,
            "positions": {"kind": "learned", "length": 8},
            "embedding": {"vocab_size": 19},
            "blocks": _PAIR,
            "output": {"kind": "none"},
        },
        blocks=[_PAIR[0], {"kind": "attention", "n_head": 2, "attends": "source"}, _PAIR[1]],
    ),
}
