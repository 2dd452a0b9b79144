"""The recurrence as its equations say it, step after step, with autograd's own gradients: what all is held to."""

from __future__ import annotations

import torch
from torch import Tensor


def naive(u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """h and the last cell, of float64 arguments."""
    outputs = []
    for t in range(x.shape[1]):
        candidate, forget, reset = u[:, t].unbind(1)
        f = 1 / (1 + torch.exp(-(forget + v[0] * cell + b[0])))
        r = 1 / (1 + torch.exp(-(reset + v[1] * cell + b[1])))
        cell = f * cell + (1 - f) * candidate
        outputs.append(x[:, t] + (cell - x[:, t]) * (1 if mask is None else mask) * r)
    return torch.stack(outputs, 1), cell


def naive_gradients(inputs: list[Tensor | None], grad_h: Tensor, grad_last: Tensor) -> list[Tensor]:
    """The gradients of u, x, v, b and cell for these of h and the last cell."""
    *leaves, mask = [None if tensor is None else tensor.detach().double() for tensor in inputs]
    given = [leaf.requires_grad_() for leaf in leaves if leaf is not None]
    h, last = naive(*given, mask)  # type: ignore[call-arg]
    gradients = torch.autograd.grad([h, last], given, [grad_h.double(), grad_last.double()], allow_unused=True)
    return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(given, gradients, strict=True)]


def some_inputs(
    batch: int, sequence: int, width: int, *, seed: int = 0, dtype: torch.dtype = torch.float64, masked: bool = True
) -> list[Tensor | None]:
    """u, x, v, b, cell and mask."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)

    mask = (torch.rand(batch, width, generator=rng) > 0.2).to(dtype) / 0.8 if masked else None
    row = normal(2, width), normal(2, width)
    return [2 * normal(batch, sequence, 3, width), normal(batch, sequence, width), *row, normal(batch, width), mask]
