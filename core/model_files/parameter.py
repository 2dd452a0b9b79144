"""One parameter of a model: its name, its shape and what it is filled with before training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from edgefront.core.architectures.architecture import Architecture, NormKind

Fill = Literal["random", "ones", "zeros", "int4_scale"]
Group = Literal["decoder", "position", "embedding"]


@dataclass(frozen=True)
class ParameterSpec:
    """A named tensor. The name is the same in torch (state_dict), in ONNX (initializer) and in safetensors.

    `fill` is the initialisation of an untrained model: "random" is uniform with standard deviation 0.02
    (`core.model_files.formats`). "int4_scale" is that of random weights in int4 (`core.model_files.formats`).
    """

    name: str
    shape: tuple[int, ...]
    fill: Fill = "random"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def group(self) -> Group:
        """Which of the three published counts it belongs to: decoder (blocks and final norm), position or embedding.

        A source's parameters belong to the same groups as the model's own.
        """
        part = self.name.removeprefix("source.").partition(".")[0]
        if part in ("blocks", "final_norm"):
            return "decoder"
        return "position" if part == "positions" else "embedding"

    def under(self, prefix: str) -> ParameterSpec:
        """The same parameter as a part of the module `prefix`."""
        return replace(self, name=f"{prefix}.{self.name}")


def linear(name: str, fan_in: int, fan_out: int, bias: bool = True) -> Iterator[ParameterSpec]:
    """Weight (fan_out, fan_in) and bias (fan_out,) of y = W·x + b, or the weight alone."""
    yield ParameterSpec(f"{name}.weight", (fan_out, fan_in))
    if bias:
        yield ParameterSpec(f"{name}.bias", (fan_out,), "zeros")


def norm(name: str, width: int, kind: NormKind = "layer") -> Iterator[ParameterSpec]:
    """Gain of a norm over `width` features, and the bias that a layer norm has."""
    yield ParameterSpec(f"{name}.weight", (width,), "ones")
    if kind == "layer":
        yield ParameterSpec(f"{name}.bias", (width,), "zeros")


def norms(architecture: Architecture, *, shares: bool = False) -> Iterator[ParameterSpec]:
    """The norms of attention and feed-forward blocks: of what a block reads (unless it `shares` what another has
    normed), and of what it adds.
    """
    d = architecture.d_model
    if not shares:
        yield from norm("norm", d, architecture.norm_kind)
    if architecture.norm == "both":
        yield from norm("after_norm", d, architecture.norm_kind)
