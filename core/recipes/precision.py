"""The number formats in which a pass computes."""

from __future__ import annotations

import torch

from edgefront.core.recipes.recipe import Precision


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Passes in this precision within it; weights, and the losses of tokens, stay float32."""
    half = torch.float16 if precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, half, enabled=precision != "float32")
