"""Small supernets with weights in which no mistake goes unseen."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from edgefront.core.search.supernet_settings import SupernetSettings
from edgefront.core.training.supernet.supernet import Supernet

VOCABULARY = 23


def settings(**changes: Any) -> SupernetSettings:
    """Four layers of 16 features."""
    return SupernetSettings.parse({"layers": 4, "d_model": 16, "n_head": 2, "d_inner": 24, **changes})


def lively(supernet: Supernet, seed: int = 0) -> Supernet:
    """The supernet with weights of which none is one, zero or tiny."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in supernet.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.3
            parameter.copy_(noise + (1.0 if "norm.weight" in name else 0.0))
    return supernet


def one_hot(letters: str) -> torch.Tensor:
    """The mixture [layers, 3] that takes one block a layer."""
    return F.one_hot(torch.tensor(["sfi".index(letter) for letter in letters]), 3).float()


def tokens(rows: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))
