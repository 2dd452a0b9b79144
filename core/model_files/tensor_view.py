"""Tensors in other libraries' files as rows of edgefront's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.parameters import ParameterSpec


@dataclass(frozen=True)
class TensorView:
    """A tensor in another library's file that contains some rows of one of edgefront's parameters.

    `transposed`: the tensor's axes are reversed. `offset` is added to the tensor's values to get the parameter's.
    """

    name: str
    shape: tuple[int, ...]
    spec: ParameterSpec
    rows: slice | NDArray[np.intp]
    transposed: bool = False
    offset: float = 0.0

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Extracts this tensor as a matrix from all values of the parameter, given in any shape and number format."""
        part = values.reshape(self.spec.shape[0], -1)[self.rows]
        part = part - self.offset if self.offset else part
        return np.ascontiguousarray(part.T if self.transposed else part)

    def read_into(self, parameter: NDArray[np.float32], tensor: NDArray[np.float32]) -> None:
        """Copies this tensor's values to the tensor's rows of the parameter (rows, columns)."""
        part = tensor.reshape(self.shape[0], -1)
        part = part.T if self.transposed else part
        parameter[self.rows] = (part + self.offset if self.offset else part).reshape(-1, parameter.shape[1])


def owner_of(spec: ParameterSpec, architecture: Architecture) -> tuple[int | None, str, str]:
    """Block index, module and final word of the parameter's name: `blocks.0.qkv.weight` → 0, `attention.qkv`, `weight`.

    Outside the blocks the index is None: `final_norm.weight` → None, `final_norm`, `weight`.
    """
    module, _, last = spec.name.rpartition(".")
    if not module.startswith("blocks."):
        return None, module, last
    _, index, part = module.split(".")
    return int(index), f"{architecture.blocks[int(index)].kind}.{part}", last


def fused_rows(spec: ParameterSpec, architecture: Architecture, index: int | None, count: int) -> list[slice]:
    """Rows of a fused parameter for each of `count` tensors: queries, keys and values, or gate and up projection."""
    block, sizes = None if index is None else architecture.blocks[index], [spec.shape[0]]
    if count > 1 and isinstance(block, Attention):
        d_head = architecture.d_head(block)
        sizes = [block.n_head * d_head, block.kv_heads * d_head, block.kv_heads * d_head]
    elif count > 1 and isinstance(block, FeedForward):
        sizes = [block.d_inner, block.d_inner]
    return [slice(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True)]
