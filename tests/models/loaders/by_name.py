"""The state dict of a model of transformers under our names, as its folder is imported (`core.graph.huggingface`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from edgefront.core.graph.huggingface import twins
from edgefront.core.spaces.architecture import Architecture
from loaders.foreign import Weights

HEADS = {"embed_out.weight": "lm_head.weight"}
"""Names in files which are others in the modules of transformers 5."""


def by_name(model_type: str) -> Callable[[Mapping[str, Tensor], Architecture], Weights]:
    """Renames the state dict of a model of this type; a tensor that is left over fails."""

    def rename(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
        left = dict(state)
        if architecture.output.tied:
            left.pop("lm_head.weight", None)
        parts: dict[str, list[Tensor]] = {}
        for twin in twins(architecture, model_type):
            theirs = left.pop(HEADS.get(twin.name, twin.name))
            parts.setdefault(twin.ours, []).append(torch.from_numpy(np.ascontiguousarray(twin.back(theirs.numpy()))))
        assert not left
        return {name: torch.cat(rows) for name, rows in parts.items()}

    return rename
