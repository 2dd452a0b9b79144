"""The values that a training begins with, as the papers' code draws them.

In every scheme biases are 0 and layer norms 1 and 0, but for Transformer-XL's norm weights; and SRU and SRU++ blocks
begin in every scheme as in branch 3.0.0-dev of their code, which trained the SRU++ paper's models: a hybrid of them
trains no better from values that were made for attention. The taps of a short convolution begin uniform to 1/√kernel in
every scheme, as torch draws a convolution's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Parametrisation, Scheme
from edgefront.core.spaces.block import Identity, Sru, Srupp
from edgefront.core.training.parametrisation import Parameter, Rules, parameters_of
from edgefront.core.validation import one_of

RESET_BIAS = -2.0
"""SRU's reset gate begins nearly shut, so that the highway carries most of the input."""


@dataclass(frozen=True)
class Draw:
    """Independent numbers: normal with this deviation, or uniform to this far on both sides of the centre."""

    kind: Literal["normal", "uniform"]
    spread: float
    centre: float = 0.0

    def values(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """float32 on the CPU."""
        if not self.spread:
            return torch.full(shape, self.centre)
        if self.kind == "normal":
            return torch.randn(shape, generator=generator).mul_(self.spread).add_(self.centre)
        return torch.rand(shape, generator=generator).mul_(2 * self.spread).add_(self.centre - self.spread)


def initialise(
    model: LanguageModel, scheme: Scheme, seed: int, parametrisation: Parametrisation | None = None
) -> LanguageModel:
    """Initialises every parameter of `model`; returns the model.

    - gpt2: N(0, 0.02), projections N(0, 0.01); the last linear layers of the residual blocks N(0, 0.02/√(number of
      blocks)) (Radford et al. 2019; projections by archai, which trained LTS's models)
    - opt: the same with 0.006 for 0.02, projections too (Zhang et al. 2022, §2.2)
    - transformer_xl: N(0, 0.02), norm weights N(1, 0.02), projections N(0, 0.01); `_large` with 0.005 for 0.02 (NVIDIA)
    - srupp: Xavier's uniform distribution for every linear layer; embeddings uniform to √(3/d_model)
      (asappresearch/sru)
    - bert: N(0, 0.02) (Devlin et al. 2019, by NVIDIA's code)
    - translation: Xavier's for every linear layer; embeddings N(0, 1/√width) (asappresearch/imitkd)
    - completep: by the shape, as `core.training.parametrisation` says for each kind of parameter

    SRU++'s W^o is multiplied by √(1 - p), p being the rate of `model.dropout.hidden`, so set that before.

    Each parameter has a generator of its own, by seed and name: neither order nor device nor what else there is
    changes it. `parametrisation` is completep's, and its defaults if absent. Raises `InvalidInput` for an unknown
    scheme.
    """
    one_of("scheme", scheme, get_args(Scheme))
    rules = Rules(model.architecture, parametrisation or Parametrisation()) if scheme == "completep" else None
    with torch.no_grad():
        for name, parameter, tensor in parameters_of(model):
            own_seed = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
            generator = torch.Generator().manual_seed(own_seed)
            tensor.copy_(_first_value(parameter, scheme, rules, model.dropout.hidden, generator))
    return model


def _first_value(
    parameter: Parameter, scheme: Scheme, rules: Rules | None, hidden_dropout: float, generator: torch.Generator
) -> Tensor:
    shape, is_sru = parameter.shape, isinstance(parameter.block, Sru | Srupp)
    if parameter.owner.endswith("recurrence"):
        if parameter.last == "weight":
            return Draw("uniform", 1.0).values(shape, generator)
        return torch.tensor([[0.0], [RESET_BIAS]]).expand(shape)
    if parameter.is_taps:
        return Draw("uniform", shape[0] ** -0.5).values(shape, generator)
    if parameter.last in ("bias", "alpha", "cluster_bias"):
        return torch.zeros(shape)
    if parameter.is_norm:
        centre = 1.0 if rules is None else rules(parameter).scale
        return Draw("normal", 0.0 if is_sru else _NORM_DEVIATION.get(scheme, 0.0), centre).values(shape, generator)
    if is_sru:
        is_scaled = isinstance(parameter.block, Srupp) and parameter.name.endswith(".up.weight")
        share = 1 - hidden_dropout if is_scaled else 1.0
        return Draw("uniform", _xavier(parameter).spread * math.sqrt(share)).values(shape, generator)
    draw = _SCHEMES[scheme](parameter) if rules is None else Draw("normal", rules(parameter).scale)
    return draw.values(shape, generator)


def _xavier(parameter: Parameter) -> Draw:
    return Draw("uniform", math.sqrt(6 / (parameter.shape[0] + parameter.shape[1])))


def _by_depth(parameter: Parameter, deviation: float) -> Draw:
    if parameter.is_residual_output:
        blocks = sum(not isinstance(block, Identity) for block in parameter.architecture.blocks)
        return Draw("normal", deviation / math.sqrt(blocks))
    return Draw("normal", deviation)


def _xavier_but(parameter: Parameter, table: Draw) -> Draw:
    """Xavier's, but for tables of embeddings and the biases of relative attention."""
    if parameter.is_table:
        return table
    return Draw("normal", 0.02) if parameter.is_relative_bias else _xavier(parameter)


_SCHEMES: dict[str, Callable[[Parameter], Draw]] = {
    "gpt2": lambda of: Draw("normal", 0.01) if of.is_projection else _by_depth(of, 0.02),
    "opt": lambda of: _by_depth(of, 0.006),
    "transformer_xl": lambda of: Draw("normal", 0.01 if of.is_projection else 0.02),
    "transformer_xl_large": lambda of: Draw("normal", 0.01 if of.is_projection else 0.005),
    "srupp": lambda of: _xavier_but(of, Draw("uniform", math.sqrt(3 / of.architecture.d_model))),
    "bert": lambda _: Draw("normal", 0.02),
    "translation": lambda of: _xavier_but(of, Draw("normal", of.shape[-1] ** -0.5)),
}
_NORM_DEVIATION: dict[str, float] = {"transformer_xl": 0.02, "transformer_xl_large": 0.005}
