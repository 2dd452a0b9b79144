"""LAMB as in NVIDIA's Transformer-XL, which PAR and LTS trained with (You et al. 2020, third version)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from edgefront.core.training.optimizers.layerwise import Layerwise
from edgefront.core.training.optimizers.norms import local
from edgefront.core.training.optimizers.parts import Parts

LARGEST_WEIGHT_NORM = 10.0


class Lamb(Layerwise):
    """For each tensor w with gradient g, or each of its `parts`, without bias correction:

        m = β₁·m + (1 - β₁)·g        u = m/(√v + ε) + λ·w
        v = β₂·v + (1 - β₂)·g²       w = w - lr·(min(‖w‖, 10)/(‖u‖ + ε))·u

    where the ratio of norms is 1 if either is 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        parts: Parts | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, parts)

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None) -> None:
        first, second, _ = self._averages(group, parameters, divisor)
        weights = local(parameters)
        roots = torch._foreach_sqrt(second)
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(first, roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        update_parts, weight_norms, update_norms = self._by_part(weights, updates, parameters)
        weight_norms.clamp_(max=LARGEST_WEIGHT_NORM)
        ratios = weight_norms / (update_norms + group["eps"])
        ratios = torch.where((weight_norms == 0) | (update_norms == 0), 1.0, ratios)
        torch._foreach_mul_(update_parts, list((-group["lr"] * ratios).unbind()))
        torch._foreach_add_(weights, updates)
