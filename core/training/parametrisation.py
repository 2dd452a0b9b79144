"""How initial values and learning rates follow from a model's shape, so that one rate serves all widths and depths.

It is CompleteP (Dey et al. 2025, arXiv 2505.01618, Table 1 with α = 1), which is µP for Adam (Yang et al. 2022, arXiv
2203.03466, Table 3) with residual branches that are divided by the depth (α = ½ is Bordelon et al.'s, arXiv
2309.16620, §3). The papers multiply activations in the forward pass. Here the forward pass belongs to the architecture
and stays as it is: a multiplier c of a weight w is taken into the weight, c·w, and Adam, whose step does not depend on
the gradient's scale, then takes c times the step (Yang et al. 2022, Lemma J.1).

With m = d_model/base_width, n = residual blocks/base_blocks, `lr` being the recipe's:

| parameters | initial values | learning rate | from |
| --- | --- | --- | --- |
| linear layers of blocks, projections | N(0, 1/√inputs) | lr·base_width/inputs | µP, Table 3, hidden weights |
| the last one of a residual block | 0 | lr·base_width/(inputs·n) | CompleteP, Table 1: 1/L of each branch |
| tables of tokens, positions, segments | N(0, 1/√base_width) | lr·embedding_lr | µP, Table 3, input weights |
| an output layer's own tables | N(0, √base_width/inputs) | lr·base_width/inputs | µP, Table 3, output weights |
| the norm before a tied output | 1/m | lr/m | µP, Table 8: multiplier 1/m of tied output weights |
| other norms and biases, a convolution's taps | 1, 0, uniform | lr | µP, Table 3, biases and vectors |

- The bias of a residual block's last layer has the rate of its weight without the width: lr/n.
- A tied table cannot have a multiplier of its own as output layer, since it is the embedding too: the gain of the norm
  before it has it. That is the final norm, or under norm post that of the last block; a model with neither keeps its
  logits as large as they are.
- Where the embedding is multiplied by √d_model or its `multiplier` in the forward pass, its tables begin at, and learn
  with, the inverse of that, and the norm before a tied output has that much more.
- A residual block whose last layer is 0 adds nothing at first, so that a model of any depth begins as its embedding and
  its output layer (Zhang et al. 2019, arXiv 1901.09321; Yang et al. 2022, §D.2, of readout and queries).
- Under norm post every block's sum is normalised: n is left out. Under norm branch and both it is the gain of the norm
  of a block's update that has 1/n, in value and rate, and the last linear layer before it is like the others.
  Blocks that share weights count as often as they run.
- What blocks add is multiplied by `residual_multiplier` in the forward pass: n has that factor. Likewise
  `logits_scaling` divides scores: an output layer's own tables, or the norm before a tied output, have that much more.
- Attention's scores stay divided by √d_head, or multiplied by their `scale`: over widths of equal d_head that is the
  same rule as µP's 1/d_head.
- Weight decay is divided by the factor of the learning rate, so that a step takes the same share of every weight
  (CompleteP, Table 1). Adam's ε is not scaled: 10⁻⁸ is far below the gradients of these models.
- SRU's blocks begin as in every scheme, and learn by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Parametrisation
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Identity

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


@dataclass(frozen=True)
class Rule:
    """Of one parameter: the deviation of its initial values (a norm's weight: the value), and its rate over `lr`."""

    scale: float
    rate: float


class Rules:
    """The rule of each parameter of an architecture, by the table above."""

    def __init__(self, architecture: Architecture, settings: Parametrisation) -> None:
        self._architecture, self._settings = architecture, settings
        blocks = [index for index, block in enumerate(architecture.blocks) if not isinstance(block, Identity)]
        self._depth = max(1, len(blocks)) / settings.base_blocks if architecture.norm != "post" else 1.0
        self._depth *= float(architecture.residual_multiplier)
        self._update_norm = {"branch": ".norm", "both": ".after_norm"}.get(architecture.norm)
        self._embedding_scale = architecture.embedding_factor
        self._logits_scaling = float(architecture.output.logits_scaling)
        self._last_norm: str | None = None
        if architecture.has_final_norm:
            self._last_norm = "final_norm"
        elif architecture.norm == "post" and blocks and architecture.owner(blocks[-1]) == blocks[-1]:
            self._last_norm = f"blocks.{blocks[-1]}.norm"

    def __call__(self, parameter: Parameter) -> Rule:
        base, inputs = self._settings.base_width, parameter.shape[-1]
        if parameter.is_table:
            if parameter.name.startswith("output.") and not self._architecture.output.tied:
                return Rule(self._logits_scaling * math.sqrt(base) / inputs, self._logits_scaling * base / inputs)
            # What is looked up by place or segment is not multiplied with the tokens' part.
            is_scaled = parameter.name not in ("positions.weight", "embedding.segments")
            factor = 1 / self._embedding_scale if is_scaled else 1.0
            return Rule(factor / math.sqrt(base), factor * self._settings.embedding_lr)
        if parameter.owner == self._last_norm and self._architecture.output.tied:
            factor = self._logits_scaling * self._embedding_scale * base / self._architecture.d_model
            return Rule(factor, factor)
        ends_branch = self._ends_branch(parameter)
        depth = self._depth if ends_branch else 1.0
        if parameter.is_matrix and not parameter.is_taps:
            return Rule(0.0 if ends_branch else inputs**-0.5, base / (inputs * depth))
        return Rule(1 / depth if parameter.is_norm else 1.0, 1 / depth)

    def _ends_branch(self, parameter: Parameter) -> bool:
        """Whether it is the last of a residual block that scales its update: a linear layer, or the norm after it."""
        if self._update_norm is None:
            return parameter.is_residual_output
        return parameter.block is not None and parameter.owner.endswith(self._update_norm)
