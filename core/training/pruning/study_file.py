"""Reads and checks `cuts.safetensors`, the pruning study beside a model's weights.

The tensors are the importance of channels and units (`core.training.pruning.importance`); the metadata has the scaling
law of the submodels (`core.quality.pruning_predictor`) and the SHA-256 of the weights. This module does not import
torch, because the service checks files from users.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.stored import from_json
from edgefront.core.training.evaluation.package import CUTS

FORMAT = "edgefront-cuts"
ENERGY = "energy."
"""Prefix of the names of tensors that contain a norm's input energies."""
_NORMS = ("norm", "after_norm", "final_norm")
MAX_LAW_CHARACTERS = 16 << 20
"""Maximum length of a scaling law as text. 1,000 combinations of 60 blocks need about 3.5 million characters."""


def read_cut_law(folder: Path) -> PruningPredictor | None:
    """Reads the scaling law of a folder's pruning study; None without a study. Raises `InvalidInput` if damaged."""
    path = folder / CUTS
    return read_study_file(path)[0] if path.is_file() else None


def read_study_file(path: Path) -> tuple[PruningPredictor, str]:
    """Reads the scaling law of a pruning study, and the SHA-256 of the weights that were studied.

    Raises `InvalidInput` for an invalid scaling law, and for importance of wrong shape, negative or not finite.
    """
    try:
        with safe_open(path, framework="np") as file:
            metadata = dict(file.metadata() or {})
            if metadata.get("format") != FORMAT or not {"law", "weights"} <= metadata.keys():
                raise damaged_study(path, "is not a pruning study")
            length = len(metadata["law"])
            if length > MAX_LAW_CHARACTERS:
                raise damaged_study(
                    path, f"has a scaling law of {length:,} characters; the maximum is {MAX_LAW_CHARACTERS:,}"
                )
            law = from_json(metadata["law"])
            if not isinstance(law, PruningPredictor):
                raise damaged_study(path, f"has the scaling law {law.origin.name}, which does not predict pruning")
            _check_importance(path, file, law.parent)
    except (SafetensorError, OSError) as error:
        raise damaged_study(path, f"cannot be read: {error}") from None
    return law, metadata["weights"]


def _check_importance(path: Path, file: Any, parent: Architecture) -> None:
    names = set(file.keys())
    for name, count in _importance_lengths(parent):
        if name not in names:
            raise damaged_study(path, f"lacks {name}")
        stored = file.get_slice(name)
        if stored.get_dtype() != "F32" or stored.get_shape() != [count]:
            raise damaged_study(path, f"has {name} as {stored.get_dtype()} {stored.get_shape()}, not F32 [{count}]")
        values = file.get_tensor(name)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise damaged_study(path, f"holds numbers in {name} that are not finite, or below 0")


def _importance_lengths(parent: Architecture) -> Iterator[tuple[str, int]]:
    """Yields the name and the length of each tensor of a pruning study."""
    yield "channels", parent.d_model
    for index, block in enumerate(parent.blocks):
        if isinstance(block, Attention):
            count = block.n_head
        elif isinstance(block, FeedForward):
            count = block.d_inner
        else:
            count = parent.d_model if isinstance(block, ShortConv) else 0
        yield f"blocks.{index}", count
    for spec in parameters(parent):
        norm, _, what = spec.name.rpartition(".")
        if what == "weight" and norm.rpartition(".")[2] in _NORMS:
            yield f"{ENERGY}{norm}", parent.d_model


def damaged_study(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path.name} {what}", field="cuts", value=path.name, allowed="a file that edgefront inherit study wrote"
    )
