"""A model whose costs are known."""

from __future__ import annotations

from typing import Any

from edgefront.core.architectures.architecture import Architecture


def example(**changes: Any) -> Architecture:
    """A small adaptive model with 64 positions."""
    value = {
        "d_model": 32,
        "positions": {"kind": "learned", "length": 64, "offset": 2},
        "embedding": {"vocab_size": 200, "d_embed": 16, "cutoffs": [40, 90], "div": 2},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 50}],
    }
    return Architecture.parse({**value, **changes})
