"""`sru_recurrence`: checks its arguments, chooses an implementation, and defines its gradient for autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgefront.core.errors import InvalidInput
from edgefront.core.nn.recurrence import traced
from edgefront.core.nn.recurrence.backends import Backend, backend

_UNIFORM_TYPES = ({torch.float32}, {torch.float64})


def sru_recurrence(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence of SRU and SRU++ over a sequence (Lei 2021, §2).

        f[t] = σ(u₁[t] + v₀⊙c[t−1] + b₀)          c[t] = f[t]⊙c[t−1] + (1 − f[t])⊙u₀[t]
        r[t] = σ(u₂[t] + v₁⊙c[t−1] + b₁)          h[t] = x[t] + (c[t] − x[t])⊙mask⊙r[t]

    Args:
        u: [batch, sequence, 3, d], what one linear layer to 3·d puts out: candidate, forget, reset.
        x: [batch, sequence, d], the input that the highway carries past the recurrence.
        v, b: [2, d], weights of the state and biases of the forget and the reset gate.
        cell: [batch, d], c[−1]: zeros, or the last cell of the segment before.
        mask: [batch, d], the highway's dropout mask, the same at every step; None for none. It gets no gradient.

    Returns h [batch, sequence, d] in x's type, and the last cell [batch, d] in the cell's type.

    Any floating type will do; less than float32 is computed in float32. Differentiable once in all but the mask.
    Raises `InvalidInput` for shapes that do not fit, an empty sequence, tensors on different devices, or no floats.
    """
    _check(u, x, v, b, cell, mask)
    if torch.compiler.is_compiling():
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (u, x, v, b, cell))
        h, last, _ = traced.recurrence(u, x, v, b, cell, mask, keep)
        return h, last
    implementation = backend(x.device.type)
    h_type, cell_type = x.dtype, cell.dtype
    types = {u.dtype, h_type, v.dtype, b.dtype, cell_type} | (set() if mask is None else {mask.dtype})
    if not implementation.ANY_TYPES and types not in _UNIFORM_TYPES:
        wide = torch.float64 if torch.float64 in types else torch.float32
        u, x, v, b, cell = u.to(wide), x.to(wide), v.to(wide), b.to(wide), cell.to(wide)
        mask = None if mask is None else mask.to(wide)
    inputs = u.contiguous(), x.contiguous(), v.contiguous(), b.contiguous(), cell.contiguous()
    mask = None if mask is None else mask.contiguous()
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        h, last = Recurrence.apply(implementation, *inputs, mask)
    else:
        h, last, _ = implementation.forward(*inputs, mask, False)
    return h.to(h_type), last.to(cell_type)


class Recurrence(torch.autograd.Function):
    """Keeps the cells after every step, and nothing else that it was not given."""

    @staticmethod
    def forward(
        ctx: Any, implementation: Backend, u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        h, last, states = implementation.forward(u, x, v, b, cell, mask, True)
        ctx.implementation = implementation
        ctx.save_for_backward(u, x, v, b, cell, mask, states)
        return h, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.implementation.backward(grad_h, grad_last, *ctx.saved_tensors), None


def _check(u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None) -> None:
    if x.dim() != 3 or x.shape[1] == 0:
        raise _wrong("x", x, "[batch, sequence, d] with at least one step")
    batch, sequence, width = x.shape
    for name, tensor, shape in (
        ("u", u, (batch, sequence, 3, width)),
        ("v", v, (2, width)),
        ("b", b, (2, width)),
        ("cell", cell, (batch, width)),
        ("mask", mask, (batch, width)),
    ):
        if tensor is None:
            continue
        if tensor.shape != shape:
            raise _wrong(name, tensor, f"{list(shape)}, by the shape of x")
        if tensor.device != x.device:
            raise _wrong(name, tensor.device, f"{x.device}, the device of x")
        if not tensor.is_floating_point():
            raise _wrong(name, tensor.dtype, "a floating type")


def _wrong(name: str, given: Any, allowed: str) -> InvalidInput:
    value = list(given.shape) if isinstance(given, Tensor) else str(given)
    return InvalidInput(f"{name} is {value}; it must be {allowed}", field=name, value=value, allowed=allowed)
