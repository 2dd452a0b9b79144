"""Creates optimisers with parameter groups by weight decay and learning rate, and computes learning rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.parametrisation import CompleteP, parameters_of
from edgefront.core.training.recipes.recipe import Optimizer, Parametrisation, Schedule

_FUSED = ("cpu", "cuda")
"""Types of devices for which torch has a fused Adam."""
_RATE = "rate"
"""Key, in a parameter group, of the factor on the recipe's learning rate. The factor is 1 without the key."""


def make_optimizer(
    model: LanguageModel, settings: Optimizer, parametrisation: Parametrisation | None = None
) -> torch.optim.Optimizer:
    """Creates the optimiser of all trainable parameters of `model`, at the recipe's highest learning rate.

    Parameters are grouped by weight decay and, with a parametrisation (`core.training.parametrisation`), by learning
    rate. Adam adds weight decay to the gradient; the other optimisers decouple it (Loshchilov & Hutter 2019).
    """
    rules = None if parametrisation is None else CompleteP(model.architecture, parametrisation)
    members: dict[tuple[bool, float], list[torch.Tensor]] = {}
    for _, parameter, tensor in parameters_of(model):
        if tensor.requires_grad:
            decays = settings.decays == "all" or parameter.is_matrix
            rate = 1.0 if rules is None else rules(parameter).rate
            members.setdefault((decays, rate), []).append(tensor)
    groups = []
    for (decays, rate), tensors in sorted(members.items(), key=lambda item: item[0], reverse=True):
        decay = settings.weight_decay / rate if decays else 0.0  # lr·decay is equal for all groups
        group: dict[str, Any] = {"params": tensors, "weight_decay": decay}
        groups.append(group if rules is None else group | {_RATE: rate, "lr": settings.lr * rate})
    shared: dict[str, Any] = {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps}
    match settings.name:
        case "radam":
            return torch.optim.RAdam(groups, decoupled_weight_decay=True, **shared)
        case "lamb":
            return Lamb(groups, parts=cluster_parts(model), **shared)
        case "nvlamb":
            return NvLamb(groups, parts=projection_parts(model), **shared)
    can_fuse = all(tensor.device.type in _FUSED for tensors in members.values() for tensor in tensors)
    adam = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return adam(groups, fused=can_fuse, **shared)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of the next step: `lr` times the factor of each parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get(_RATE, 1.0)


LARGEST_WEIGHT_NORM = 10.0
LARGEST_GRADIENT_NORM = 1.0


class Layerwise(torch.optim.Optimizer):
    """Base class of layerwise optimisers: keeps Adam's two averages; subclasses compute the step (`_step_group`).

    `state_dict` has `step`, `exp_avg` and `exp_avg_sq` for each parameter, like torch's optimisers. A parameter may
    have `parts`, ranges of rows that are scaled separately.
    """

    def __init__(self, params: Iterable[Any], *, parts: Parts | None = None, **defaults: Any) -> None:
        super().__init__(params, {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0, **defaults})
        self._parts = parts or {}

    def step(self, closure: None = None) -> None:
        """Updates all parameters that have a gradient."""
        with torch.no_grad():
            divisor = self._divisor()
            for group in self.param_groups:
                parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
                if parameters:
                    self._step_group(group, parameters, divisor)

    def _divisor(self) -> Tensor | None:
        """Number by which all gradients are divided; None: 1."""
        return None

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None) -> None:
        raise NotImplementedError

    def _averages(
        self, group: dict[str, Any], parameters: list[Tensor], divisor: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor], int]:
        """Updates the averages with this step's gradients. Returns m, v and the step's number, counted from 1."""
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
        """Returns views of the updates of all parts, and the norms of weights and of updates, [parts] each."""
        weight_parts, update_parts = (
            [
                part
                for value, owner in zip(values, parameters, strict=True)
                for part in (value.split(list(self._parts[owner])) if owner in self._parts else [value])
            ]
            for values in (weights, updates)
        )
        return update_parts, norms(weight_parts), norms(update_parts)


class Lamb(Layerwise):
    """LAMB (You et al. 2020, third version) as in NVIDIA's Transformer-XL, which the papers PAR and LTS use.

    For each parameter (or part of a parameter) w with gradient g, without bias correction:

        m = β₁·m + (1 - β₁)·g        u = m/(√v + ε) + λ·w
        v = β₂·v + (1 - β₂)·g²       w = w - lr·(min(‖w‖, 10)/(‖u‖ + ε))·u

    The ratio of norms is 1 if either norm is 0.
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
    """NVLAMB, used for NVIDIA's and PAR's BERT (Sreenivas et al. 2019; apex's fused_lamb).

    For each parameter (or part of a parameter) w, where g is the gradient of w divided by max(1, ‖all gradients‖):

        m = β₁·m + (1 - β₁)·g        u = (m/(1 - β₁ᵗ))/(√(v/(1 - β₂ᵗ)) + ε) + λ·w
        v = β₂·v + (1 - β₂)·g²       w = w - lr·(‖w‖/‖u‖)·u

    The ratio of norms is 1 if a norm is 0, and for groups without weight decay (λ = 0: biases and norms).
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


Parts = Mapping[Tensor, Sequence[int]]
"""Number of rows of each part, in order, for each parameter with parts."""


def cluster_parts(model: LanguageModel) -> Parts:
    """Returns the sizes of the output bias's parts: the clusters, as NVIDIA's code has separate biases if `div` > 1."""
    if model.output.bias is None or model.architecture.embedding.div == 1:
        return {}
    return {model.output.bias: [cluster.size for cluster in model.architecture.clusters]}


def projection_parts(model: LanguageModel) -> Parts:
    """Returns sizes of the parts of each `qkv`: queries, keys, values (separate linear layers in NVIDIA's BERT)."""
    return {
        parameter: (block.width, *[(parameter.shape[0] - block.width) // 2] * 2)
        for block in model.modules()
        if isinstance(block, AttentionBlock)
        for parameter in block.qkv.parameters()
    }


def norms(values: Sequence[Tensor]) -> Tensor:
    """Computes the 2-norm of each of the n tensors, [n]."""
    return torch.stack(torch._foreach_norm(list(values)))


def learning_rate(schedule: Schedule, lr: float, step: int, steps: int) -> float:
    """Learning rate of step `step`, counted from 0, in a training of `steps` steps whose highest rate is `lr`.

    Warm-up gives lr·(step + 1)/warmup, so that the final step of the warm-up has `lr`. A decay would reach `min_lr` at
    step `steps`, one after the final step. The schedule `cosine_whole` is the closed form of SRU++'s recursion

        lr(t) = lr(t - 1)·(1 + cos πt/T)/(1 + cos π(t - 1)/T),

    which starts at the final step of the warm-up. The schedule `power` counts steps from 1, like NVIDIA's BERT: decay
    begins at the final step of the warm-up, and the final step has `min_lr`.
    """
    if step < schedule.warmup - (schedule.decay == "power"):
        return lr * (step + 1) / schedule.warmup
    warmup, share = schedule.warmup, 1.0  # share of the difference between `lr` and `min_lr`
    if schedule.decay == "cosine":
        share = (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
    elif schedule.decay == "cosine_whole":
        first = max(warmup - 1, 0)
        share = (1 + math.cos(math.pi * step / steps)) / (1 + math.cos(math.pi * first / steps))
    elif schedule.decay == "power":
        share = float((1 - (step + 1) / steps) ** schedule.power)
    elif schedule.decay == "inverse_sqrt":
        share = math.sqrt(max(warmup, 1) / (step + 1))
    return schedule.min_lr + (lr - schedule.min_lr) * share
