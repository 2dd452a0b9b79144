"""Elementwise recurrence of the blocks SRU and SRU++ (Lei 2021, §2), forward and backward.

`cpu` (Numba) is for CPUs, `gpu` (Triton) for NVIDIA GPUs, and `plain` (PyTorch's operators) is the reference on any
device. Shapes in all files of this package: u [batch, sequence, 3, d] (candidate, forget, reset), x [batch, sequence,
d], v and b [2, d] (forget, reset), cell and mask [batch, d].
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

import torch
from torch import Tensor

_log = logging.getLogger(__name__)

_FAST = {"cpu": ("cpu", "Numba", "; pip install 'edgefront-lm[cpu-fast]'"), "cuda": ("gpu", "Triton", "")}
"""Kind of device → module, the library that the module needs, and the command that installs it."""

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Gradients of u, x, v, b and cell."""


class Backend(Protocol):
    """Interface of the modules of this package that implement the recurrence. All input tensors are contiguous."""

    ANY_TYPES: bool
    """Whether inputs may have different floating types; otherwise all must be float32 or all float64."""

    def prepare(self) -> None: ...

    def forward(
        self, u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Computes h, the final cell and, with `keep`, the cells of all steps [batch, sequence, d] for `backward`."""

    def backward(
        self,
        grad_h: Tensor,
        grad_last: Tensor,
        u: Tensor,
        x: Tensor,
        v: Tensor,
        b: Tensor,
        cell: Tensor,
        mask: Tensor | None,
        states: Tensor,
    ) -> Gradients: ...


def prepare(device: str = "cpu") -> None:
    """Loads or compiles the inference code of `sru_recurrence` for this kind of device, before timing.

    On the CPU this runs no operator and starts no thread, so that a process may fork afterwards.
    """
    backend(device).prepare()


@cache
def backend(device: str) -> Backend:
    """Implementation for a kind of device ("cpu", "cuda", "mps", …). Warns once if only the slow `plain` works."""
    if device in _FAST:
        module, library, remedy = _FAST[device]
        try:
            fast = _load(module)
            if device == "cuda":  # a first call to compile, which needs a C compiler and a supported GPU
                u, row = torch.zeros(1, 1, 3, 1, device="cuda"), torch.zeros(2, 1, device="cuda")
                fast.forward(u, u[:, :, 0].contiguous(), row, row, row[:1], None, False)
        except Exception as error:  # library missing or unable to compile; the plain operators compute the same
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            _log.warning(
                "the SRU recurrence runs step by step on %s, which is slow: %s does not work here (%s)%s",
                *(device, library, reason, remedy),
            )
        else:
            return fast
    return _load("plain")


def _load(module: str) -> Backend:
    return cast(Backend, import_module(f"edgefront.core.nn.recurrence.{module}"))


def sru_recurrence(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence of SRU and SRU++ over a sequence (Lei 2021, §2).

        f[t] = σ(u₁[t] + v₀⊙c[t−1] + b₀)          c[t] = f[t]⊙c[t−1] + (1 − f[t])⊙u₀[t]
        r[t] = σ(u₂[t] + v₁⊙c[t−1] + b₁)          h[t] = x[t] + (c[t] − x[t])⊙mask⊙r[t]

    Args:
        u: [batch, sequence, 3, d], the output of a linear layer to 3·d: candidate, forget, reset.
        x: [batch, sequence, d], the input of the highway connection.
        v, b: [2, d], weights of the state and biases of the forget and the reset gate.
        cell: [batch, d], c[−1]: zeros, or the final cell of the preceding segment.
        mask: [batch, d], the highway's dropout mask, the same at every step; None for no mask. It has no gradient.

    Returns h [batch, sequence, d] in x's type, and the final cell [batch, d] in the cell's type.

    Inputs may have any floating type; float16 and bfloat16 are computed in float32. Differentiable once in all inputs
    except the mask. The shapes are not checked.
    """
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (u, x, v, b, cell))
    if keep or torch.compiler.is_compiling():
        h, last, _ = recurrence(u, x, v, b, cell, mask, keep)
        return h, last
    implementation = backend(x.device.type)
    h, last, _ = implementation.forward(*_as_inputs(implementation, u, x, v, b, cell, mask), False)
    return h.to(x.dtype), last.to(cell.dtype)


_INPUTS = "Tensor u, Tensor x, Tensor v, Tensor b, Tensor cell, Tensor? mask"
_FORWARD = f"({_INPUTS}, bool keep) -> (Tensor, Tensor, Tensor)"
_BACKWARD = f"(Tensor grad_h, Tensor grad_last, {_INPUTS}, Tensor states) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"


@torch.library.custom_op("edgefront::sru_recurrence", mutates_args=(), schema=_FORWARD)
def recurrence(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Custom operator of `sru_recurrence`: returns h, the final cell and, with `keep`, the cells of all steps."""
    implementation = backend(x.device.type)
    h, last, states = implementation.forward(*_as_inputs(implementation, u, x, v, b, cell, mask), keep)
    return h.to(x.dtype), last.to(cell.dtype), x.new_empty(0) if states is None else states


@recurrence.register_fake
def _(
    u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    wide = computed_in(u, x, v, b, cell, mask)
    states = x.new_empty(x.shape, dtype=wide) if keep else x.new_empty(0)
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
) -> Gradients:
    """Custom operator that computes the gradients of u, x, v, b and cell; a gradient has the type of its tensor."""
    implementation = backend(x.device.type)
    taken = _as_inputs(implementation, u, x, v, b, cell, mask)
    grad_h, grad_last = grad_h.to(taken[1].dtype), grad_last.to(taken[4].dtype)
    grad_u, grad_x, grad_v, grad_b, grad_cell = implementation.backward(grad_h, grad_last, *taken, states)
    # The gradients of v and b are copied, because an operator must not return two views of one tensor.
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


def _as_inputs(
    implementation: Backend, u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Returns the inputs, contiguous and, if the implementation requires one type, converted to one type."""
    if not implementation.ANY_TYPES:
        wide = computed_in(u, x, v, b, cell, mask)
        u, x, v, b, cell = u.to(wide), x.to(wide), v.to(wide), b.to(wide), cell.to(wide)
        mask = None if mask is None else mask.to(wide)
    mask = None if mask is None else mask.contiguous()
    return u.contiguous(), x.contiguous(), v.contiguous(), b.contiguous(), cell.contiguous(), mask


def computed_in(*tensors: Tensor | None) -> torch.dtype:
    """Type in which the recurrence computes: float64 if any tensor is float64, else float32."""
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32
