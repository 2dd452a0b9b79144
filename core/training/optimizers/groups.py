"""A recipe's optimiser for a model, with its parameters in groups by weight decay and learning rate."""

from __future__ import annotations

from typing import Any

import torch

from edgefront.core.errors import InvalidInput
from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Optimizer, Parametrisation
from edgefront.core.training.optimizers.lamb import Lamb, NvLamb
from edgefront.core.training.optimizers.parts import cluster_parts, projection_parts
from edgefront.core.training.parameter import parameters_of
from edgefront.core.training.parametrisation import Rules

_FUSED = ("cpu", "cuda")
"""Where torch has one kernel for all of Adam."""
_RATE = "rate"
"""Of a group: its learning rate over the recipe's. Groups without it take the recipe's."""


def make_optimizer(
    model: LanguageModel, settings: Optimizer, parametrisation: Parametrisation | None = None
) -> torch.optim.Optimizer:
    """The optimiser of all parameters of `model` that require gradients, at the recipe's highest learning rate.

    Two groups: the parameters that decay, and the others. Adam's decay is added to the gradient, that of the others is
    decoupled (Loshchilov & Hutter 2019). With a parametrisation there are more, one for each learning rate and decay
    (`core.training.parametrisation`). Raises `InvalidInput` for settings that the optimiser cannot take.
    """
    for index, beta in enumerate(settings.betas):
        if not beta < 1:
            field = f"optimizer.betas.{index}"
            raise InvalidInput(f"{field} must be below 1, not {beta}", field=field, value=beta, allowed="0 to below 1")
    rules = None if parametrisation is None else Rules(model.architecture, parametrisation)
    members: dict[tuple[bool, float], list[torch.Tensor]] = {}
    for _, parameter, tensor in parameters_of(model):
        if tensor.requires_grad:
            decays = settings.decays == "all" or parameter.is_matrix
            rate = 1.0 if rules is None else rules(parameter).rate
            members.setdefault((decays, rate), []).append(tensor)
    groups = []
    for (decays, rate), tensors in sorted(members.items(), key=lambda item: item[0], reverse=True):
        decay = settings.weight_decay / rate if decays else 0.0  # lr·decay, what a step takes away, is everyone's
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
    """Sets the rate of the next step: `lr`, times what a group's parametrisation says."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get(_RATE, 1.0)
