"""NVLAMB, which NVIDIA's BERT and PAR's were trained with (Sreenivas et al. 2019; apex's fused_lamb)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from edgefront.core.training.optimizers.layerwise import Layerwise
from edgefront.core.training.optimizers.norms import local, norms
from edgefront.core.training.optimizers.parts import Parts

LARGEST_GRADIENT_NORM = 1.0


class NvLamb(Layerwise):
    """For each tensor w, or each of its `parts`, with g its gradient divided by max(1, ‖all gradients‖):

        m = β₁·m + (1 - β₁)·g        u = (m/(1 - β₁ᵗ))/(√(v/(1 - β₂ᵗ)) + ε) + λ·w
        v = β₂·v + (1 - β₂)·g²       w = w - lr·(‖w‖/‖u‖)·u

    The ratio of norms is 1 if either is 0, and for groups without weight decay (λ = 0: biases and norms) unless
    `always_scaled`, which is what apex calls `use_nvlamb`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        always_scaled: bool = False,
        parts: Parts | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, parts)
        self.always_scaled = always_scaled

    def _divisor(self) -> Tensor | None:
        owners = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not owners:
            return None
        whole = norms(local([owner.grad for owner in owners]), owners).norm()
        return (whole / LARGEST_GRADIENT_NORM).clamp(min=1)

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None) -> None:
        first, second, step = self._averages(group, parameters, divisor)
        weights = local(parameters)
        beta1, beta2 = group["betas"]
        roots = torch._foreach_div(second, 1 - beta2**step)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(first, 1 - beta1**step)
        torch._foreach_div_(updates, roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        if group["weight_decay"] or self.always_scaled:
            update_parts, weight_norms, update_norms = self._by_part(weights, updates, parameters)
            ratios = torch.where((weight_norms == 0) | (update_norms == 0), 1.0, weight_norms / update_norms)
            torch._foreach_mul_(update_parts, list(ratios.unbind()))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])
