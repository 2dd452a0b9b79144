"""A recipe's optimiser for a model, with its parameters in groups by weight decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from edgefront.core.errors import InvalidInput
from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Optimizer
from edgefront.core.training.optimizers.lamb import Lamb
from edgefront.core.training.optimizers.nvlamb import NvLamb
from edgefront.core.training.optimizers.parts import cluster_parts, projection_parts

_FUSED = ("cpu", "cuda")
"""Where torch has one kernel for all of Adam."""
_VECTORS = ("bias", "u", "v")
"""Last parts of names of parameters that are no matrices, whatever their shape: Transformer-XL's u and v are biases."""


def make_optimizer(model: LanguageModel, settings: Optimizer) -> torch.optim.Optimizer:
    """The optimiser of all parameters of `model` that require gradients, at the recipe's highest learning rate.

    Two groups: the parameters that decay, and the others. Adam's decay is added to the gradient, that of the others is
    decoupled (Loshchilov & Hutter 2019). Raises `InvalidInput` for settings that the optimiser cannot take.
    """
    for index, beta in enumerate(settings.betas):
        if not beta < 1:
            field = f"optimizer.betas.{index}"
            raise InvalidInput(f"{field} must be below 1, not {beta}", field=field, value=beta, allowed="0 to below 1")
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    decaying = [parameter for name, parameter in named if settings.decays == "all" or is_matrix(name, parameter)]
    known = {id(parameter) for parameter in decaying}
    others = [parameter for _, parameter in named if id(parameter) not in known]
    groups = [
        {"params": parameters, "weight_decay": decay}
        for parameters, decay in ((decaying, settings.weight_decay), (others, 0.0))
        if parameters
    ]
    return _MAKERS[settings.name](model, groups, lr=settings.lr, betas=settings.betas, eps=settings.eps)


def is_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Whether it is the weight of a linear layer or an embedding: not a bias, norm, or gate vector."""
    owner, _, last = name.rpartition(".")
    return parameter.ndim >= 2 and last not in _VECTORS and not owner.endswith("recurrence")


def _adam(model: LanguageModel, groups: Any, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, fused=_can_fuse(model), **settings)


def _adamw(model: LanguageModel, groups: Any, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, fused=_can_fuse(model), **settings)


def _radam(_: LanguageModel, groups: Any, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.RAdam(groups, decoupled_weight_decay=True, **settings)


def _lamb(model: LanguageModel, groups: Any, **settings: Any) -> torch.optim.Optimizer:
    return Lamb(groups, parts=cluster_parts(model), **settings)


def _nvlamb(model: LanguageModel, groups: Any, **settings: Any) -> torch.optim.Optimizer:
    return NvLamb(groups, parts=projection_parts(model), **settings)


def _can_fuse(model: LanguageModel) -> bool:
    return all(parameter.device.type in _FUSED for parameter in model.parameters() if parameter.requires_grad)


_MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "radam": _radam,
    "lamb": _lamb,
    "nvlamb": _nvlamb,
}
