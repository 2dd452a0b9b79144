"""Small models of every kind of block, and a protocol of every mode."""

from __future__ import annotations

from typing import Any

from edgefront.core.architectures.architecture import Architecture

WORDS: dict[str, Any] = {"vocab_size": 211}
ATTENTION, FEED_FORWARD = {"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 128}
ENCODER: dict[str, Any] = {
    "d_model": 64,
    "causal": False,
    "positions": {"kind": "learned", "length": 128},
    "embedding": {**WORDS, "segments": 2, "norm": True},
    "blocks": [ATTENTION, FEED_FORWARD],
}
PARTS: dict[str, dict[str, Any]] = {
    "gpt": {"positions": {"kind": "learned", "length": 128}, "blocks": [ATTENTION, FEED_FORWARD]},
    "transformer-xl": {
        "positions": {"kind": "relative", "clamp": 20},
        "norm": "post",
        "embedding": {**WORDS, "cutoffs": [50, 100], "div": 2},
        "blocks": [ATTENTION, FEED_FORWARD, {"kind": "identity"}, FEED_FORWARD],
    },
    "sru": {"positions": {"kind": "none"}, "blocks": [{"kind": "sru"}, {"kind": "sru", "d_proj": 16}]},
    "srupp": {
        "positions": {"kind": "none"},
        "blocks": [{"kind": "srupp", "d_attn": 16, "attends": "none"}, {"kind": "srupp", "d_attn": 16}],
    },
    "hybrid": {
        "positions": {"kind": "sinusoidal"},
        "blocks": [{"kind": "srupp", "d_attn": 16, "n_head": 2}, ATTENTION, {"kind": "sru"}, FEED_FORWARD],
    },
    "translation": {
        "positions": {"kind": "sinusoidal"},
        "blocks": [{"kind": "srupp", "d_attn": 16, "attends": "both"}, {**ATTENTION, "attends": "source"}],
        "source": {**ENCODER, "embedding": {"vocab_size": 97}, "output": {"kind": "none"}},
    },
    "bert": {**ENCODER, "output": {"kind": "masked_tokens"}},
}
MODELS = {name: Architecture.parse({"d_model": 64, "embedding": WORDS, **parts}) for name, parts in PARTS.items()}
MODES: dict[str, dict[str, Any]] = {
    "forward": {"sequence_length": 24},
    "segment": {"sequence_length": 12, "memory_length": 20},
    "prefill": {"mode": "prefill", "sequence_length": 24},
    "decode": {"mode": "decode", "memory_length": 30},
}
