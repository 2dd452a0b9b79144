"""`cuts.safetensors` beside a model's weights: the study of its cuts.

Its tensors are the importance of channels and units (`core.training.pruning.importance`); its metadata has the quality
law of the model's parts (`core.quality.cut_law`) and the SHA-256 of the weights that it is about. Reading the law and
checking the tensors needs no torch: the service does it with files that it does not trust.
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
from edgefront.core.quality.cut_law import CutLaw
from edgefront.core.quality.stored import from_json
from edgefront.core.training.evaluation.package import CUTS

FORMAT = "edgefront-cuts"
ENERGY = "energy."
"""Prefix of the names of tensors with the energies that a norm reads."""
NORMS = ("norm", "after_norm", "final_norm")
"""Last names of the norms over the channels."""
MAX_LAW_CHARACTERS = 16 << 20
"""Longest law as text; one of 1,000 combinations of 60 blocks has about 3.5 million."""


def read_law(folder: Path) -> CutLaw | None:
    """The law of the study beside a model's weights; None where there is none. `InvalidInput` where it is damaged."""
    path = folder / CUTS
    return law_in(path)[0] if path.is_file() else None


def law_in(path: Path) -> tuple[CutLaw, str]:
    """The law of a study, and the SHA-256 of the weights that it is about.

    `InvalidInput` where the file is damaged: the law, or the importance of a unit, which has another shape or is no
    finite number of at least 0.
    """
    try:
        with safe_open(path, framework="np") as file:
            about = dict(file.metadata() or {})
            if about.get("format") != FORMAT or not {"law", "weights"} <= about.keys():
                raise wrong(path, "is no study of cuts")
            length = len(about["law"])
            if length > MAX_LAW_CHARACTERS:
                raise wrong(path, f"has a law of {length:,} characters, and at most {MAX_LAW_CHARACTERS:,} may be")
            law = from_json(about["law"])
            if not isinstance(law, CutLaw):
                raise wrong(path, f"has the law {law.origin.name}, which is not about cuts")
            _check_importance(path, file, law.parent)
    except (SafetensorError, OSError) as error:
        raise wrong(path, f"cannot be read: {error}") from None
    return law, about["weights"]


def _check_importance(path: Path, file: Any, parent: Architecture) -> None:
    names = set(file.keys())
    for name, count in _importance(parent):
        if name not in names:
            raise wrong(path, f"lacks {name}")
        about = file.get_slice(name)
        if about.get_dtype() != "F32" or about.get_shape() != [count]:
            raise wrong(path, f"has {name} as {about.get_dtype()} {about.get_shape()}, not F32 [{count}]")
        values = file.get_tensor(name)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise wrong(path, f"holds numbers in {name} that are not finite, or below 0")


def _importance(parent: Architecture) -> Iterator[tuple[str, int]]:
    """Names and lengths of the tensors of a study."""
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
        if what == "weight" and norm.rpartition(".")[2] in NORMS:
            yield f"{ENERGY}{norm}", parent.d_model


def wrong(path: Path, what: str) -> InvalidInput:
    """What the file is not."""
    return InvalidInput(
        f"{path.name} {what}", field="cuts", value=path.name, allowed="a file that edgefront inherit study wrote"
    )
