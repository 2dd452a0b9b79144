"""What a parameter of a model is: by what its initial values, its learning rate and its decay are decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefront.core.nn.model import LanguageModel
from edgefront.core.spaces.architecture import Architecture

_VECTORS = ("bias", "u", "v")
"""Last parts of names of parameters that are no matrices, whatever their shape: Transformer-XL's u and v are biases."""


@dataclass(frozen=True)
class Parameter:
    """A parameter: of which model, under which name there (the source's without its prefix), and shape."""

    architecture: Architecture
    name: str
    shape: torch.Size

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def block(self) -> object | None:
        """The description of its block; None outside the blocks."""
        parts = self.name.split(".")
        return self.architecture.blocks[int(parts[1])] if parts[0] == "blocks" else None

    @property
    def is_matrix(self) -> bool:
        """Whether it is the weight of a linear layer, an embedding or a convolution: not a bias, norm, or gate."""
        return len(self.shape) >= 2 and self.last not in _VECTORS and not self.owner.endswith("recurrence")

    @property
    def is_table(self) -> bool:
        """Rows that are looked up or compared with: of tokens, positions, segments, an adaptive softmax's clusters."""
        rows = ("positions.weight", "embedding.segments", "output.cluster_weight")
        return ".tables." in self.name or self.name in rows

    @property
    def is_projection(self) -> bool:
        return ".projections." in self.name

    @property
    def is_taps(self) -> bool:
        """Whether it is the weight of a short convolution, (kernel, d_model)."""
        return self.owner.endswith(".conv") and self.last == "weight"

    @property
    def is_norm(self) -> bool:
        return self.owner.endswith("norm")

    @property
    def is_relative_bias(self) -> bool:
        """u or v of Transformer-XL's attention."""
        return self.last in ("u", "v")

    @property
    def is_residual_output(self) -> bool:
        """Whether it belongs to the last linear layer of an attention, feed-forward or convolution block."""
        return self.block is not None and self.owner.endswith((".out", ".down"))


def parameters_of(model: LanguageModel) -> Iterator[tuple[str, Parameter, Tensor]]:
    """Every parameter by its name in the model, with what it is."""
    for name, tensor in model.named_parameters():
        architecture, own_name = model.architecture, name
        if name.startswith("source.") and architecture.source is not None:
            architecture, own_name = architecture.source, name.removeprefix("source.")
        yield name, Parameter(architecture, own_name, tensor.shape), tensor
