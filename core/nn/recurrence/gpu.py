"""The recurrence on CUDA: a Triton program computes a range of features of one row of the batch, step by step.

Only u, x and h (and for training the cells) pass through memory, and neighbouring threads read neighbouring numbers. A
step depends on the previous step, but its inputs do not. So `tl.range` with `num_stages` loads the inputs several steps
ahead, which saturates the memory's bandwidth.

If TRITON_INTERPRET=1 is set before this module is imported, the same kernels run on CPU tensors, slowly.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgefront.core.nn.recurrence import computed_in

ANY_TYPES = True


STAGES = {"forward": 8, "backward": 6}
"""Number of steps whose inputs are loaded ahead."""


def prepare() -> None:
    """Does nothing, because Triton compiles a kernel at its first call and caches it on disk."""


def forward(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Computes h, the final cell and, with `keep`, the cells after every step [batch, sequence, d] for `backward`.

    All tensors are contiguous, and of any floating types; types other than float64 are computed in float32.
    """
    h, last = torch.empty_like(x), torch.empty_like(cell)
    states = torch.empty_like(x, dtype=computed_in(u, x, v, b, cell)) if keep else None
    flags = {"MASKED": mask is not None, "KEEP": keep, "STAGES": STAGES["forward"]}
    _start(_forward, [x, u, v, b, cell, mask, states, h, last], flags)
    return h, last, states


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
    batch, _, width = x.shape
    grad_u, grad_x, grad_cell = torch.empty_like(u), torch.empty_like(x), torch.empty_like(cell)
    sums = torch.empty(batch, 4, width, device=x.device, dtype=states.dtype)  # v's two rows, then b's
    given = [x, u, v, b, cell, mask, states, grad_h.contiguous(), grad_last.contiguous()]
    flags = {"MASKED": mask is not None, "STAGES": STAGES["backward"]}
    _start(_backward, [*given, grad_u, grad_x, grad_cell, sums], flags)
    grad_v, grad_b = sums.sum(0).chunk(2)
    return grad_u, grad_x, grad_v.to(v.dtype), grad_b.to(b.dtype), grad_cell


def block_size(number: torch.dtype) -> int:
    """Number of features per program of one warp. Loading ahead needs at least four bytes of each row per thread."""
    return 32 * max(1, 4 // int(number.itemsize))


def _start(kernel: Any, tensors: list[Tensor | None], flags: dict[str, int]) -> None:
    x, *others = tensors
    assert x is not None
    batch, length, width = x.shape
    block = block_size(x.dtype)
    with torch.cuda.device_of(x):
        kernel[(triton.cdiv(width, block), batch)](
            x,
            *(x if tensor is None else tensor for tensor in others),  # x: a dummy address, never read
            length,
            width,
            **flags,
            REAL=tl.float64 if computed_in(*tensors) == torch.float64 else tl.float32,
            BLOCK=block,
            num_warps=1,
        )


@triton.jit(do_not_specialize=["length"])
def _forward(
    x,
    u,
    v,
    b,
    cell,
    mask,
    states,
    h,
    last,
    length,
    width,
    MASKED: tl.constexpr,  # noqa: N803
    KEEP: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
):
    batch = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = j < width
    v_f = tl.load(v + j, inside, 0).to(REAL)
    v_r = tl.load(v + width + j, inside, 0).to(REAL)
    b_f = tl.load(b + j, inside, 0).to(REAL)
    b_r = tl.load(b + width + j, inside, 0).to(REAL)
    c = tl.load(cell + batch * width + j, inside, 0).to(REAL)
    if MASKED:
        m = tl.load(mask + batch * width + j, inside, 0).to(REAL)
    here = batch * length * width + j
    u += batch * length * width * 3 + j
    for t in tl.range(0, length, num_stages=STAGES):
        row = tl.cast(t, tl.int64) * width
        u0 = tl.load(u + 3 * row, inside, 0).to(REAL)
        u1 = tl.load(u + 3 * row + width, inside, 0).to(REAL)
        u2 = tl.load(u + 3 * row + 2 * width, inside, 0).to(REAL)
        x_t = tl.load(x + here + row, inside, 0).to(REAL)
        f = tl.sigmoid(u1 + v_f * c + b_f)
        r = tl.sigmoid(u2 + v_r * c + b_r)
        c = u0 + (c - u0) * f
        if MASKED:
            r = r * m
        tl.store(h + here + row, x_t + (c - x_t) * r, inside)
        if KEEP:
            tl.store(states + here + row, c, inside)
    tl.store(last + batch * width + j, c, inside)


@triton.jit(do_not_specialize=["length"])
def _backward(
    x,
    u,
    v,
    b,
    cell,
    mask,
    states,
    grad_h,
    grad_last,
    grad_u,
    grad_x,
    grad_cell,
    sums,
    length,
    width,
    MASKED: tl.constexpr,  # noqa: N803
    REAL: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    STAGES: tl.constexpr,  # noqa: N803
):
    batch = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = j < width
    v_f = tl.load(v + j, inside, 0).to(REAL)
    v_r = tl.load(v + width + j, inside, 0).to(REAL)
    b_f = tl.load(b + j, inside, 0).to(REAL)
    b_r = tl.load(b + width + j, inside, 0).to(REAL)
    carry = tl.load(grad_last + batch * width + j, inside, 0).to(REAL)
    c_first = tl.load(cell + batch * width + j, inside, 0).to(REAL)
    m = tl.full((BLOCK,), 1, REAL)
    if MASKED:
        m = tl.load(mask + batch * width + j, inside, 0).to(REAL)
    sum_v_f = tl.zeros((BLOCK,), REAL)
    sum_v_r = tl.zeros((BLOCK,), REAL)
    sum_b_f = tl.zeros((BLOCK,), REAL)
    sum_b_r = tl.zeros((BLOCK,), REAL)
    here = batch * length * width + j
    here_in_u = batch * length * width * 3 + j
    for step in tl.range(0, length, num_stages=STAGES):
        t = length - 1 - step
        row = tl.cast(t, tl.int64) * width
        from_u = here_in_u + 3 * row
        u0 = tl.load(u + from_u, inside, 0).to(REAL)
        u1 = tl.load(u + from_u + width, inside, 0).to(REAL)
        u2 = tl.load(u + from_u + 2 * width, inside, 0).to(REAL)
        x_t = tl.load(x + here + row, inside, 0).to(REAL)
        g = tl.load(grad_h + here + row, inside, 0).to(REAL)
        # The first step's previous cell is `c_first`; its load stays inside the row even for the first batch.
        earlier = tl.load(states + here + row - tl.where(t > 0, width, 0), inside, 0).to(REAL)
        c_before = tl.where(t > 0, earlier, c_first)
        f = tl.sigmoid(u1 + v_f * c_before + b_f)
        r = tl.sigmoid(u2 + v_r * c_before + b_r)
        c = u0 + (c_before - u0) * f
        highway = g * m
        g_c = carry + highway * r
        g_f = g_c * (c_before - u0) * (f * (1 - f))
        g_r = highway * (c - x_t) * (r * (1 - r))
        tl.store(grad_x + here + row, g - highway * r, inside)
        tl.store(grad_u + from_u, g_c * (1 - f), inside)
        tl.store(grad_u + from_u + width, g_f, inside)
        tl.store(grad_u + from_u + 2 * width, g_r, inside)
        carry = g_c * f + g_f * v_f + g_r * v_r
        sum_v_f += g_f * c_before
        sum_v_r += g_r * c_before
        sum_b_f += g_f
        sum_b_r += g_r
    tl.store(grad_cell + batch * width + j, carry, inside)
    sums += batch * 4 * width + j
    tl.store(sums, sum_v_f, inside)
    tl.store(sums + width, sum_v_r, inside)
    tl.store(sums + 2 * width, sum_b_f, inside)
    tl.store(sums + 3 * width, sum_b_r, inside)
