"""Chooses one of the three implementations for a device, and logs a warning if it is not the fast one."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Protocol, cast

import torch
from torch import Tensor

_log = logging.getLogger(__name__)


class Backend(Protocol):
    """An implementation: a module of this package. See `compiled` for what its functions take and return."""

    ANY_TYPES: bool
    """Whether tensors may be of different floating types, half ones too, or must all be float32 or all float64."""

    def prepare(self) -> None: ...

    def forward(
        self, u: Tensor, x: Tensor, v: Tensor, b: Tensor, cell: Tensor, mask: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]: ...

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
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]: ...


_FAST = {"cpu": ("compiled", "Numba", "pip install 'edgefront-lm[cpu-fast]'"), "cuda": ("triton_kernel", "Triton", "")}


def prepare(device: str = "cpu") -> None:
    """Load or compile, for inference, what `sru_recurrence` needs on this kind of device, before anything is timed.

    On the CPU it runs no operator and starts no thread, so a process may fork after it.
    """
    backend(device).prepare()


@cache
def backend(device: str) -> Backend:
    """The implementation for a kind of device ("cpu", "cuda", "mps", …). A slow one is logged once."""
    if device in _FAST:
        module, library, remedy = _FAST[device]
        try:
            fast = _load(module)
            if device == "cuda":
                _try(fast)
        except Exception as error:  # not installed, or not able to compile here: the plain operators do the same
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            _log.warning(
                "the SRU recurrence runs step by step on %s, which is slow: %s does not work here (%s)%s",
                *(device, library, reason, f"; {remedy}" if remedy else ""),
            )
        else:
            return fast
    return _load("vectorised")


def _load(module: str) -> Backend:
    return cast(Backend, import_module(f"edgefront.core.nn.recurrence.{module}"))


def _try(fast: Backend) -> None:
    """Run a step on the GPU: Triton compiles at the first, which takes a C compiler and a GPU that it knows."""
    u, row = torch.zeros(1, 1, 3, 1, device="cuda"), torch.zeros(2, 1, device="cuda")
    fast.forward(u, u[:, :, 0].contiguous(), row, row, row[:1], None, False)
