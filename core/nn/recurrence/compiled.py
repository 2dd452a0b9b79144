"""The recurrence on CPUs, by the loops that Numba compiles (`loops.py`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import torch
from torch import Tensor

from edgefront.core.nn.recurrence import loops, threads

ANY_TYPES = False

_Job = ctypes.c_int64 * loops.JOB_SIZE

# On one thread a kernel works through the numbers of a step in less time than it takes to wake others.
_WORTH_THREADS = 1 << 16
_ITEMS_PER_THREAD = 4
_SHORTEST_RUN = 256


def prepare() -> None:
    """Have the machine code for inference in float32 at hand. It starts no thread and runs no operator."""
    loops.address(loops.forward32)


def forward(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """h, the last cell and, with `keep`, the cells after every step [batch, sequence, d] for `backward`.

    All tensors are contiguous and of one type, float32 or float64.
    """
    h, last = torch.empty_like(x), torch.empty_like(cell)
    states = torch.empty_like(x) if keep else None
    entry = loops.forward32 if x.dtype == torch.float32 else loops.forward64
    places = {loops.U: u, loops.X: x, loops.V: v, loops.B: b, loops.CELL: cell, loops.MASK: mask}
    _run(loops.address(entry), x, {**places, loops.STATES: states, loops.H: h, loops.LAST: last})
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
    """The gradients of u, x, v, b and cell."""
    grad_h, grad_last = grad_h.contiguous(), grad_last.contiguous()
    grad_u, grad_x, grad_cell = torch.empty_like(u), torch.empty_like(x), torch.empty_like(cell)
    sums = x.new_zeros(x.shape[0], 4, x.shape[2])
    entry = loops.backward32 if x.dtype == torch.float32 else loops.backward64
    places = {loops.U: u, loops.X: x, loops.V: v, loops.B: b, loops.CELL: cell, loops.MASK: mask, loops.STATES: states}
    places |= {loops.GRAD_H: grad_h, loops.GRAD_LAST: grad_last}
    places |= {loops.GRAD_U: grad_u, loops.GRAD_X: grad_x, loops.GRAD_CELL: grad_cell, loops.GRAD_SUMS: sums}
    _run(loops.address(entry), x, places)
    grad_v, grad_b = sums.sum(0).chunk(2)
    return grad_u, grad_x, grad_v, grad_b, grad_cell


def _run(address: int, x: Tensor, places: Mapping[int, Tensor | None]) -> None:
    batch, length, width = x.shape
    count = torch.get_num_threads() if x.numel() >= _WORTH_THREADS else 1
    job = _Job()
    job[loops.BATCH], job[loops.LENGTH], job[loops.WIDTH] = batch, length, width
    job[loops.CHUNK] = run_of_features(batch, width, count)
    for place, tensor in places.items():
        job[place] = 0 if tensor is None else tensor.data_ptr()
    threads.run(address, ctypes.addressof(job), count)


def run_of_features(batch: int, width: int, count: int) -> int:
    """Features of an item of work: whole rows, for memory is read in order then, unless threads would go idle."""
    run = width
    while count > 1 and batch * -(-width // run) < _ITEMS_PER_THREAD * count and run > _SHORTEST_RUN:
        run = max(_SHORTEST_RUN, -(-run // 2))
    return -(-run // 16) * 16
