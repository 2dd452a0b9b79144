"""Small models that translate."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load

SELF = {"kind": "attention", "n_head": 2}
SOURCE = {"kind": "attention", "n_head": 2, "attends": "source"}
F = {"kind": "feed_forward", "d_inner": 24}
END, BEGIN = 0, 1


def translator(kind: str = "attention", vocabulary: int = 6, spread: float = 0.5, **changes: Any) -> LanguageModel:
    """A transformer, or SRU++ whose attention sees source and past; its source has 9 tokens."""
    positions = {"kind": "sinusoidal"} if kind == "attention" else {"kind": "none"}
    encoder = [SELF, F] if kind == "attention" else [{"kind": "srupp", "d_attn": 8}]
    blocks = [SELF, SOURCE, F] if kind == "attention" else [{"kind": "srupp", "d_attn": 8, "attends": "both"}] * 2
    source = {"d_model": 16, "causal": False, "positions": positions, "blocks": encoder}
    source |= {"embedding": {"vocab_size": 9}, "output": {"kind": "none"}}
    description = {"d_model": 16, "positions": positions, "blocks": blocks, "embedding": {"vocab_size": vocabulary}}
    architecture = Architecture.parse({**description, "source": source, **changes})
    rng = np.random.default_rng(4)
    weights = {
        spec.name: torch.tensor(rng.normal(spec.fill == "ones", spread, spec.shape), dtype=torch.float32)
        for spec in parameters(architecture)
    }
    return load(LanguageModel(architecture), weights).eval()
