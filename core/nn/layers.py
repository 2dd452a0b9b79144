"""torch's layers without their default initialisation, which takes most of the time of building a model.

`core.nn.weights` sets the parameters, from a seed or a file.
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
    """Applies dropout at this rate; returns `x` itself if the rate is 0."""
    return F.dropout(x, rate) if rate else x


class Linear(nn.Linear):
    """Linear layer y = x·Wᵀ + b; `weight` (out, in) and `bias` (out,) are uninitialised."""

    def reset_parameters(self) -> None:
        pass

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Computes only the outputs `start` to `stop` - 1: [..., in] → [..., stop - start]."""
        if stop - start == self.out_features:  # without a slice, whose gradient copies the whole weight
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
        """Computes in the type of the weight. Under autocast torch does this for layer norms, but not for RMS norms."""
        normed: Tensor = super().forward(x.to(self.weight.dtype))
        return normed


def make_norm(architecture: Architecture, width: int) -> nn.Module:
    """Creates a norm of the architecture's kind over `width` features, with the architecture's epsilon."""
    kind = RmsNorm if architecture.norm_kind == "rms" else LayerNorm
    norm: nn.Module = kind(width, float(architecture.norm_eps))
    return norm


class Residual(nn.Module):
    """Block with a residual connection: y = x + f(norm(x)) under norm pre, norm(x + f(x)) under post.

    Under norm branch y = x + norm(f(x)), and under norm both y = x + after_norm(f(norm(x))). The update is multiplied
    by the residual multiplier. Subclasses compute f. `has_norm` is False if f reads another block's normed input.
    """

    def __init__(self, architecture: Architecture, has_norm: bool = True) -> None:
        super().__init__()
        self.norm_position = architecture.norm
        self.multiplier = float(architecture.residual_multiplier)
        self.norm = make_norm(architecture, architecture.d_model) if has_norm else None
        self.after_norm = make_norm(architecture, architecture.d_model) if self.norm_position == "both" else None

    def normed(self, x: Tensor) -> Tensor:
        """Input of f for the residual stream `x`, normed if the norm precedes f."""
        return self.norm(x) if self.norm_position in ("pre", "both") and self.norm is not None else x

    def added(self, x: Tensor, update: Tensor) -> Tensor:
        """Output of the block for the residual stream `x` and `update`, the output of f."""
        norm = {"branch": self.norm, "both": self.after_norm}.get(self.norm_position)
        if norm is not None:
            update = norm(update)
        if self.multiplier != 1:
            update = update * self.multiplier
        total = x + update
        return self.norm(total) if self.norm_position == "post" and self.norm is not None else total
