"""The recurrence with PyTorch's operators, on any device: only f and c are computed step by step.

Steps do not depend on r and h. So r and h, and all gradients except the gradient through c, are computed for all steps
at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

ANY_TYPES = False


def prepare() -> None:
    """Does nothing, because PyTorch's operators need no preparation."""


def forward(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Computes h, the final cell and, with `keep`, the cells after every step [batch, sequence, d] for `backward`."""
    states = torch.empty_like(x)
    c = cell
    forget = u[:, :, 1] + b[0]
    for candidate, gate, state in zip(u[:, :, 0].unbind(1), forget.unbind(1), states.unbind(1), strict=True):
        c = torch.lerp(candidate, c, torch.addcmul(gate, v[0], c).sigmoid_(), out=state)
    r = torch.sigmoid(torch.addcmul(u[:, :, 2] + b[1], v[1], _before(cell, states)))
    h = torch.lerp(x, states, r if mask is None else r * mask[:, None])
    return h, c.clone(), states if keep else None


def backward(
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
    """Computes the gradients of u, x, v, b and cell."""
    before = _before(cell, states)
    candidate = u[:, :, 0]
    f = torch.sigmoid(torch.addcmul(u[:, :, 1] + b[0], v[0], before))
    r = torch.sigmoid(torch.addcmul(u[:, :, 2] + b[1], v[1], before))
    highway = grad_h if mask is None else grad_h * mask[:, None]
    to_state = highway * r  # ∂loss/∂c[t] through h[t] alone
    grad_r = highway * (states - x) * r * (1 - r)
    # c[t] depends on c[t−1] directly and through f; r[t] depends on c[t−1] too.
    slope_f = (before - candidate) * f * (1 - f)
    through_c, through_r = torch.addcmul(f, slope_f, v[0]), grad_r * v[1]
    grad_c = torch.empty_like(x)
    carry = grad_last
    for direct, along, aside, place in zip(
        *(reversed(steps.unbind(1)) for steps in (to_state, through_c, through_r, grad_c)), strict=True
    ):
        carry = torch.addcmul(aside, torch.add(carry, direct, out=place), along)
    grad_f = grad_c * slope_f
    grad_u = torch.stack([grad_c * (1 - f), grad_f, grad_r], dim=2)
    grad_v = torch.stack([(grad_f * before).sum((0, 1)), (grad_r * before).sum((0, 1))])
    grad_b = torch.stack([grad_f.sum((0, 1)), grad_r.sum((0, 1))])
    return grad_u, grad_h - to_state, grad_v, grad_b, carry


def _before(cell: Tensor, states: Tensor) -> Tensor:
    """Cell before each step, c[t−1] for every t: [batch, sequence, d]."""
    return torch.cat([cell[:, None], states[:, :-1]], dim=1)
