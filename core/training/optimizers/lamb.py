"""LAMB in the two forms that the papers' models were trained with: Adam's averages, and a step scaled by norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from edgefront.core.training.optimizers.parts import Parts, by_part, norms

LARGEST_WEIGHT_NORM = 10.0
LARGEST_GRADIENT_NORM = 1.0


class Layerwise(torch.optim.Optimizer):
    """Adam's two averages of each parameter; subclasses make a step of them (`_step_group`).

    `state_dict` has, for each parameter, `step`, `exp_avg` and
    `exp_avg_sq`, as torch's own optimisers do. The `parts` of a parameter are scaled as if each were one.
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
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._parts = parts or {}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for all parameters that have a gradient; returns what `closure` does, which makes gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            divisor = self._divisor()
            for group in self.param_groups:
                parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
                if parameters:
                    self._step_group(group, parameters, divisor)
        return loss

    def _divisor(self) -> Tensor | None:
        """What all gradients are divided by."""
        return None

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None) -> None:
        raise NotImplementedError

    def _averages(
        self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor], int]:
        """m and v with this step's gradients in them, and which step it is, from 1."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        torch._foreach_add_([state["step"] for state in states], 1)
        gradients = [parameter.grad for parameter in parameters]
        if divisor is not None:
            gradients = torch._foreach_div(gradients, divisor)
        first = [state["exp_avg"] for state in states]
        second = [state["exp_avg_sq"] for state in states]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        return first, second, int(states[0]["step"])

    def _by_part(
        self, weights: list[Tensor], updates: list[Tensor], parameters: list[Tensor]
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Views of the updates of all parts, and the norms, [parts], of their weights and of these."""
        update_parts = by_part(updates, parameters, self._parts)
        return update_parts, norms(by_part(weights, parameters, self._parts)), norms(update_parts)


class Lamb(Layerwise):
    """LAMB as in NVIDIA's Transformer-XL, which PAR and LTS trained with (You et al. 2020, third version).

    For each tensor w with gradient g, or each of its `parts`, without bias correction:

        m = β₁·m + (1 - β₁)·g        u = m/(√v + ε) + λ·w
        v = β₂·v + (1 - β₂)·g²       w = w - lr·(min(‖w‖, 10)/(‖u‖ + ε))·u

    where the ratio of norms is 1 if either is 0.
    """

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None) -> None:
        first, second, _ = self._averages(group, parameters, divisor)
        weights = [parameter.detach() for parameter in parameters]
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


class NvLamb(Layerwise):
    """NVLAMB, which NVIDIA's BERT and PAR's were trained with (Sreenivas et al. 2019; apex's fused_lamb).

    For each tensor w, or each of its `parts`, with g its gradient divided by max(1, ‖all gradients‖):

        m = β₁·m + (1 - β₁)·g        u = (m/(1 - β₁ᵗ))/(√(v/(1 - β₂ᵗ)) + ε) + λ·w
        v = β₂·v + (1 - β₂)·g²       w = w - lr·(‖w‖/‖u‖)·u

    The ratio of norms is 1 if either is 0, and for groups without weight decay (λ = 0: biases and norms).
    """

    def _divisor(self) -> Tensor | None:
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        return (norms(gradients).norm() / LARGEST_GRADIENT_NORM).clamp(min=1) if gradients else None

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None) -> None:
        first, second, step = self._averages(group, parameters, divisor)
        weights = [parameter.detach() for parameter in parameters]
        beta1, beta2 = group["betas"]
        roots = torch._foreach_div(second, 1 - beta2**step)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(first, 1 - beta1**step)
        torch._foreach_div_(updates, roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
            update_parts, weight_norms, update_norms = self._by_part(weights, updates, parameters)
            ratios = torch.where((weight_norms == 0) | (update_norms == 0), 1.0, weight_norms / update_norms)
            torch._foreach_mul_(update_parts, list(ratios.unbind()))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])
