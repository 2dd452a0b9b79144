"""A model of every kind of block, with or without a source."""

from __future__ import annotations

from typing import Any

from descriptions import LENGTH

from edgefront.core.architectures.architecture import Architecture

EVERY_BLOCK = [
    {"kind": "attention", "n_head": 2},
    {"kind": "srupp", "d_attn": 6, "n_head": 2},
    {"kind": "feed_forward", "d_inner": 12},
    {"kind": "sru", "d_proj": 3},
    {"kind": "identity"},
    {"kind": "srupp", "d_attn": 4, "attends": "none"},
    {"kind": "short_conv"},
]
ENCODER = {
    "d_model": 8,
    "causal": False,
    "embedding": {"vocab_size": 19},
    "blocks": [{"kind": "attention", "n_head": 2}],
    "output": {"kind": "none"},
}
READERS = [
    {"kind": "attention", "n_head": 2, "attends": "source"},
    {"kind": "srupp", "d_attn": 4, "attends": "both"},
    {"kind": "attention", "n_head": 2},
]


def hybrid(**changes: Any) -> Architecture:
    description = {
        "d_model": 8,
        "positions": {"kind": "learned", "length": LENGTH},
        "embedding": {"vocab_size": 29},
        "blocks": EVERY_BLOCK,
    }
    return Architecture.parse({**description, **changes})
