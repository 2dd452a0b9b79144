"""torch's layers without their default initialisation, which takes most of the time of building a model.

`core.nn.weights` gives the parameters their values, by seed or from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def drop(x: Tensor, rate: float) -> Tensor:
    """Dropout at this rate; `x` itself where it is 0."""
    return F.dropout(x, rate) if rate else x


class Linear(nn.Linear):
    """y = x·Wᵀ + b; `weight` (out, in) and `bias` (out,) are uninitialised."""

    def reset_parameters(self) -> None:
        pass

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Only the outputs `start` to `stop` - 1: [..., in] → [..., stop - start]."""
        if stop - start == self.out_features:  # the gradient of a slice is a copy of the whole
            return self(x)
        return F.linear(x, self.weight[start:stop], None if self.bias is None else self.bias[start:stop])


class LayerNorm(nn.LayerNorm):
    """Layer norm over the last axis, epsilon 1e-5; `weight` and `bias` are uninitialised."""

    def reset_parameters(self) -> None:
        pass


class RmsNorm(nn.RMSNorm):
    """RMS norm over the last axis; `weight` is uninitialised."""

    def reset_parameters(self) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        """Computes in the type of the weight, as autocast does for layer norms but not for this one."""
        normed: Tensor = super().forward(x.to(self.weight.dtype))
        return normed


def make_norm(architecture: Architecture, width: int) -> nn.Module:
    """The architecture's kind of norm over `width` features, with its epsilon."""
    kind = RmsNorm if architecture.norm_kind == "rms" else LayerNorm
    norm: nn.Module = kind(width, float(architecture.norm_eps))
    return norm


class Residual(nn.Module):
    """y = x + f(norm(x)) under norm pre, norm(x + f(x)) under post, x + norm(f(x)) under branch, and under both
    x + after_norm(f(norm(x))); the update is multiplied by the residual multiplier. Subclasses compute f.

    `has_norm`: False where f reads another block's normed input.
    """

    def __init__(self, architecture: Architecture, has_norm: bool = True) -> None:
        super().__init__()
        self.norm_position = architecture.norm
        self.multiplier = float(architecture.residual_multiplier)
        self.norm = make_norm(architecture, architecture.d_model) if has_norm else None
        self.after_norm = make_norm(architecture, architecture.d_model) if self.norm_position == "both" else None

    def normed(self, x: Tensor) -> Tensor:
        """The input of f."""
        return self.norm(x) if self.norm_position in ("pre", "both") and self.norm is not None else x

    def added(self, x: Tensor, update: Tensor) -> Tensor:
        """The output of the block, given `update`, the output of f."""
        norm = {"branch": self.norm, "both": self.after_norm}.get(self.norm_position)
        if norm is not None:
            update = norm(update)
        if self.multiplier != 1:
            update = update * self.multiplier
        total = x + update
        return self.norm(total) if self.norm_position == "post" and self.norm is not None else total
