"""The recurrence as an operator of PyTorch's own, for `torch.compile` and `torch.export`, which cannot look inside.

Eager code calls the implementations directly, which is less work for one token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgefront.core.nn.recurrence.backends import Backend, backend

_INPUTS = "Tensor u, Tensor x, Tensor v, Tensor b, Tensor cell, Tensor? mask"
_FORWARD = f"({_INPUTS}, bool keep) -> (Tensor, Tensor, Tensor)"
_BACKWARD = f"(Tensor grad_h, Tensor grad_last, {_INPUTS}, Tensor states) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"


@torch.library.custom_op("edgefront::sru_recurrence", mutates_args=(), schema=_FORWARD)
def recurrence(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """h, the last cell and the cells after every step, which are empty without `keep`. See `sru_recurrence`."""
    implementation = backend(x.device.type)
    h, last, states = implementation.forward(*_as_taken(implementation, u, x, v, b, cell, mask), keep)
    return h.to(x.dtype), last.to(cell.dtype), x.new_empty(0) if states is None else states


@recurrence.register_fake
def _(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    computed_in = _computed_in(u, x, v, b, cell, mask)
    states = x.new_empty(x.shape, dtype=computed_in) if keep else x.new_empty(0)
    return x.new_empty(x.shape), cell.new_empty(cell.shape), states


@torch.library.custom_op("edgefront::sru_recurrence_backward", mutates_args=(), schema=_BACKWARD)
def gradients(
    grad_h: Tensor,
    grad_last: Tensor,
    u: Tensor,
    x: Tensor,
    v: Tensor,
    b: Tensor,
    cell: Tensor,
    mask: Tensor | None,
    states: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of u, x, v, b and cell, each in its type."""
    implementation = backend(x.device.type)
    taken = _as_taken(implementation, u, x, v, b, cell, mask)
    grad_h, grad_last = grad_h.to(taken[1].dtype), grad_last.to(taken[4].dtype)
    grad_u, grad_x, grad_v, grad_b, grad_cell = implementation.backward(grad_h, grad_last, *taken, states)
    # v and b are copied, for these two may be halves of one tensor, which an operator may not return.
    grad_v, grad_b = grad_v.to(v.dtype, copy=True), grad_b.to(b.dtype, copy=True)
    return grad_u.to(u.dtype), grad_x.to(x.dtype), grad_v, grad_b, grad_cell.to(cell.dtype)


@gradients.register_fake
def _(*given: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in given[2:7])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _ = inputs
    ctx.save_for_backward(*tensors, output[2])


def _differentiate(ctx: Any, grad_h: Tensor, grad_last: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*gradients(grad_h, grad_last, *ctx.saved_tensors), None, None)


recurrence.register_autograd(_differentiate, setup_context=_keep)


def _as_taken(
    implementation: Backend, u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Contiguous, and of one type if the implementation requires that."""
    if not implementation.ANY_TYPES:
        wide = _computed_in(u, x, v, b, cell, mask)
        u, x, v, b, cell = u.to(wide), x.to(wide), v.to(wide), b.to(wide), cell.to(wide)
        mask = None if mask is None else mask.to(wide)
    mask = None if mask is None else mask.contiguous()
    return u.contiguous(), x.contiguous(), v.contiguous(), b.contiguous(), cell.contiguous(), mask


def _computed_in(*tensors: Tensor | None) -> torch.dtype:
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32
