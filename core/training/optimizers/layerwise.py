"""What the two LAMBs share: averages of gradients, and the norms that scale the step of each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from edgefront.core.training.optimizers.norms import local, norms
from edgefront.core.training.optimizers.parts import Parts, by_part


class Layerwise(torch.optim.Optimizer):
    """Adam's two averages of each parameter; subclasses make a step of them (`_step_group`).

    Parameters and averages may be FSDP's shards. `state_dict` has, for each parameter, `step`, `exp_avg` and
    `exp_avg_sq`, as torch's own optimisers do. The `parts` of a parameter are scaled as if each were one.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        parts: Parts | None,
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
        gradients = local([parameter.grad for parameter in parameters])
        if divisor is not None:
            gradients = torch._foreach_div(gradients, divisor)
        first = local([state["exp_avg"] for state in states])
        second = local([state["exp_avg_sq"] for state in states])
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        return first, second, int(states[0]["step"])

    def _by_part(
        self, weights: list[Tensor], updates: list[Tensor], parameters: list[Tensor]
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Views of the updates of all parts, and the norms, [parts], of their weights and of these."""
        weight_parts, owners = by_part(weights, parameters, self._parts)
        update_parts, _ = by_part(updates, parameters, self._parts)
        return update_parts, norms(weight_parts, owners), norms(update_parts, owners)
