"""Initial values and learning rates for each shape of a model from one recipe; loading of pretrained weights.

The rules are CompleteP (Dey et al. 2025, arXiv 2505.01618, Table 1 with α = 1): µP for Adam (Yang et al. 2022, arXiv
2203.03466, Table 3) with residual branches divided by the depth (Bordelon et al. have α = ½, arXiv 2309.16620, §3).
The papers multiply activations in the forward pass, which here is defined by the architecture. Therefore a multiplier
c of a weight w goes into the weight, c·w, and Adam, whose step does not depend on the gradient's scale, takes c times
the step (Yang et al. 2022, Lemma J.1).

With m = d_model/base_width, n = residual blocks/base_blocks, and the recipe's `lr`:

| parameters | initial values | learning rate | from |
| --- | --- | --- | --- |
| linear layers of blocks, projections | N(0, 1/√inputs) | lr·base_width/inputs | µP, Table 3, hidden weights |
| final linear layer of a residual block | 0 | lr·base_width/(inputs·n) | CompleteP, Table 1: 1/L of each branch |
| tables of tokens, positions, segments | N(0, 1/√base_width) | lr·embedding_lr | µP, Table 3, input weights |
| tables of an untied output layer | N(0, √base_width/inputs) | lr·base_width/inputs | µP, Table 3, output weights |
| the norm before a tied output | 1/m | lr/m | µP, Table 8: multiplier 1/m of tied output weights |
| other norms and biases, taps of convolutions | 1, 0, uniform | lr | µP, Table 3, biases and vectors |

- The bias of a residual block's final layer has the rate of the layer's weight without the factor of width: lr/n.
- A tied table is also the embedding, so that the multiplier of the output layer cannot go into the table. It goes into
  the gain of the norm before the table: the final norm, or with norm post the norm of the final block. The logits of a
  model with neither norm are not scaled.
- If the forward pass multiplies the embedding by √d_model or `multiplier`, initial values and learning rate of its
  tables are divided by this factor, and the norm before a tied output is multiplied by it.
- A residual block whose final layer is 0 adds 0 at first, so that a model of any depth begins as its embedding and
  output layer (Zhang et al. 2019, arXiv 1901.09321; Yang et al. 2022, §D.2, on readout and queries).
- With norm post every block's sum is normalised, so that n is left out. With norm branch and both, the gain of the norm
  of a block's update has the factor 1/n, in value and rate, and the final linear layer before this norm has no special
  rule. Blocks that share weights count as often as they run.
- The forward pass multiplies the updates of blocks by `residual_multiplier`, so that n has this factor too. It divides
  scores by `logits_scaling`, which therefore multiplies tables of an untied output, or the norm before a tied output.
- Attention's scores stay divided by √d_head, or multiplied by `scale`. For widths of equal d_head this rule is the same
  as µP's 1/d_head.
- Weight decay is divided by the factor of the learning rate, so that a step takes the same share of every weight
  (CompleteP, Table 1). Adam's ε is not scaled: 10⁻⁸ is far below the gradients of these models.
- Blocks of SRU are initialised as in every scheme, and have the learning rates of this table.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Identity, Sru, Srupp
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import sha256
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.data.tokenizers.load import same_tokens
from edgefront.core.model_files.parameter_values import StoredValues
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.training.distillation import Teacher
from edgefront.core.training.pruning.study import load_pruned
from edgefront.core.training.pruning.submodel import pruning_summary
from edgefront.core.training.recipes.recipe import Parametrisation, Recipe, Scheme, predicts_next_token

_VECTORS = ("bias", "u", "v")
"""Names of parameters that count as vectors regardless of shape: Transformer-XL's u and v are biases."""


@dataclass(frozen=True)
class Parameter:
    """Roles of one parameter, which decide its initialisation, learning rate and weight decay."""

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
        """Description of the parameter's block; None outside the blocks."""
        parts = self.name.split(".")
        return self.architecture.blocks[int(parts[1])] if parts[0] == "blocks" else None

    @property
    def is_matrix(self) -> bool:
        """Whether the parameter is the weight of a linear layer, embedding or convolution: not a bias, norm or gate."""
        return len(self.shape) >= 2 and self.last not in _VECTORS and not self.owner.endswith("recurrence")

    @property
    def is_table(self) -> bool:
        """Whether the parameter is a lookup table of tokens, positions, segments or an adaptive softmax's clusters."""
        rows = ("positions.weight", "embedding.segments", "output.cluster_weight")
        return ".tables." in self.name or self.name in rows

    @property
    def is_projection(self) -> bool:
        return ".projections." in self.name

    @property
    def is_taps(self) -> bool:
        """Whether the parameter is the weight of a short convolution, (kernel, d_model)."""
        return self.owner.endswith(".conv") and self.last == "weight"

    @property
    def is_norm(self) -> bool:
        return self.owner.endswith("norm")

    @property
    def is_residual_output(self) -> bool:
        """Whether the parameter is in the final linear layer of an attention, feed-forward or convolution block."""
        return self.block is not None and self.owner.endswith((".out", ".down"))


def parameters_of(model: LanguageModel) -> Iterator[tuple[str, Parameter, Tensor]]:
    """Yields every parameter of the model: name, roles and tensor."""
    for name, tensor in model.named_parameters():
        architecture, own_name = model.architecture, name
        if name.startswith("source.") and architecture.source is not None:
            architecture, own_name = architecture.source, name.removeprefix("source.")
        yield name, Parameter(architecture, own_name, tensor.shape), tensor


@dataclass(frozen=True)
class Scaling:
    """Pair of a parameter's initial standard deviation (value, for a norm's weight) and its factor on `lr`."""

    scale: float
    rate: float


class CompleteP:
    """Computes the scaling of each parameter of an architecture, by the table of this module."""

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
        elif architecture.norm == "post" and blocks:
            self._last_norm = f"blocks.{blocks[-1]}.norm"

    def __call__(self, parameter: Parameter) -> Scaling:
        base, inputs = self._settings.base_width, parameter.shape[-1]
        if parameter.is_table:
            if parameter.name.startswith("output.") and not self._architecture.output.tied:
                return Scaling(self._logits_scaling * math.sqrt(base) / inputs, self._logits_scaling * base / inputs)
            # The embedding factor does not apply to positions and segments.
            is_scaled = parameter.name not in ("positions.weight", "embedding.segments")
            factor = 1 / self._embedding_scale if is_scaled else 1.0
            return Scaling(factor / math.sqrt(base), factor * self._settings.embedding_lr)
        if parameter.owner == self._last_norm and self._architecture.output.tied:
            factor = self._logits_scaling * self._embedding_scale * base / self._architecture.d_model
            return Scaling(factor, factor)
        # The final layer of a residual block, which scales the block's update: a linear layer, or the norm after it.
        ends_branch = parameter.is_residual_output
        if self._update_norm is not None:
            ends_branch = parameter.block is not None and parameter.owner.endswith(self._update_norm)
        depth = self._depth if ends_branch else 1.0
        if parameter.is_matrix and not parameter.is_taps:
            return Scaling(0.0 if ends_branch else inputs**-0.5, base / (inputs * depth))
        return Scaling(1 / depth if parameter.is_norm else 1.0, 1 / depth)


RESET_BIAS = -2.0
"""Initial bias of SRU's reset gate. The gate is nearly shut, so that the highway carries most of the input."""


@dataclass(frozen=True)
class Distribution:
    """A normal distribution with standard deviation `spread`, or a uniform distribution on `centre` ± `spread`."""

    kind: Literal["normal", "uniform"]
    spread: float
    centre: float = 0.0

    def values(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Draws a tensor of this shape, float32 on the CPU."""
        if not self.spread:
            return torch.full(shape, self.centre)
        if self.kind == "normal":
            return torch.randn(shape, generator=generator).mul_(self.spread).add_(self.centre)
        return torch.rand(shape, generator=generator).mul_(2 * self.spread).add_(self.centre - self.spread)


def initialise(
    model: LanguageModel, scheme: Scheme, seed: int, parametrisation: Parametrisation | None = None
) -> LanguageModel:
    """Initialises every parameter of `model` by a scheme. Returns the model.

    - gpt2: N(0, 0.02), projections N(0, 0.01); final linear layers of residual blocks N(0, 0.02/√(number of
      blocks)) (Radford et al. 2019; projections by archai, which trained LTS's models)
    - opt: as gpt2, with 0.006 instead of 0.02, also for projections (Zhang et al. 2022, §2.2)
    - transformer_xl: N(0, 0.02), norm weights N(1, 0.02), projections N(0, 0.01); `_large` with 0.005 for 0.02 (NVIDIA)
    - srupp: Xavier's uniform distribution for every linear layer; embeddings uniform to √(3/d_model)
      (asappresearch/sru)
    - bert: N(0, 0.02) (Devlin et al. 2019, by NVIDIA's code)
    - translation: Xavier's for every linear layer; embeddings N(0, 1/√width) (asappresearch/imitkd)
    - completep: by the model's shape, with the table in `core.training.parametrisation`

    In every scheme biases are 0 and layer norms 1 and 0, except Transformer-XL's norm weights; the taps of a short
    convolution are uniform to 1/√kernel. SRU and SRU++ blocks are initialised as in branch 3.0.0-dev of their code,
    which trained the SRU++ paper's models, because values for attention do not help a hybrid. SRU++'s W^o is multiplied
    by √(1 - p) for p = `model.dropout.hidden`, which must be set before.

    Each parameter has a separate random generator, keyed by seed and name, so values do not depend on the device or on
    other parameters. `parametrisation` has the settings of completep (None: defaults).
    """
    rules = CompleteP(model.architecture, parametrisation or Parametrisation()) if scheme == "completep" else None
    with torch.no_grad():
        for name, parameter, tensor in parameters_of(model):
            own_seed = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
            generator = torch.Generator().manual_seed(own_seed)
            tensor.copy_(_initial_value(parameter, scheme, rules, model.dropout.hidden, generator))
    return model


def _initial_value(
    parameter: Parameter, scheme: Scheme, rules: CompleteP | None, hidden_dropout: float, generator: torch.Generator
) -> Tensor:
    shape, is_sru = parameter.shape, isinstance(parameter.block, Sru | Srupp)
    if parameter.owner.endswith("recurrence"):
        if parameter.last == "weight":
            return Distribution("uniform", 1.0).values(shape, generator)
        return torch.tensor([[0.0], [RESET_BIAS]]).expand(shape)
    if parameter.is_taps:
        return Distribution("uniform", shape[0] ** -0.5).values(shape, generator)
    if parameter.last in ("bias", "alpha", "cluster_bias"):
        return torch.zeros(shape)
    if parameter.is_norm:
        centre = 1.0 if rules is None else rules(parameter).scale
        return Distribution("normal", 0.0 if is_sru else _NORM_DEVIATION.get(scheme, 0.0), centre).values(
            shape, generator
        )
    if is_sru:
        is_scaled = isinstance(parameter.block, Srupp) and parameter.name.endswith(".up.weight")
        share = 1 - hidden_dropout if is_scaled else 1.0
        return Distribution("uniform", _xavier(parameter).spread * math.sqrt(share)).values(shape, generator)
    draw = _SCHEMES[scheme](parameter) if rules is None else Distribution("normal", rules(parameter).scale)
    return draw.values(shape, generator)


def _xavier(parameter: Parameter) -> Distribution:
    return Distribution("uniform", math.sqrt(6 / (parameter.shape[0] + parameter.shape[1])))


def _by_depth(parameter: Parameter, deviation: float) -> Distribution:
    if parameter.is_residual_output:
        blocks = sum(not isinstance(block, Identity) for block in parameter.architecture.blocks)
        return Distribution("normal", deviation / math.sqrt(blocks))
    return Distribution("normal", deviation)


def _xavier_except_tables(parameter: Parameter, table: Distribution) -> Distribution:
    """Xavier's distribution, except for embedding tables and the biases of relative attention."""
    if parameter.is_table:
        return table
    return Distribution("normal", 0.02) if parameter.last in ("u", "v") else _xavier(parameter)


_SCHEMES: dict[str, Callable[[Parameter], Distribution]] = {
    "gpt2": lambda of: Distribution("normal", 0.01) if of.is_projection else _by_depth(of, 0.02),
    "opt": lambda of: _by_depth(of, 0.006),
    "transformer_xl": lambda of: Distribution("normal", 0.01 if of.is_projection else 0.02),
    "transformer_xl_large": lambda of: Distribution("normal", 0.01 if of.is_projection else 0.005),
    "srupp": lambda of: _xavier_except_tables(of, Distribution("uniform", math.sqrt(3 / of.architecture.d_model))),
    "bert": lambda _: Distribution("normal", 0.02),
    "translation": lambda of: _xavier_except_tables(of, Distribution("normal", of.shape[-1] ** -0.5)),
}
_NORM_DEVIATION: dict[str, float] = {"transformer_xl": 0.02, "transformer_xl_large": 0.005}


_WHAT = {"start": "the initial weights", "teacher": "the teacher's weights"}


def load_initial_weights(
    model: LanguageModel, weights: Path, data: Prepared, *, inherit: bool = False
) -> tuple[str, dict[str, Any] | None]:
    """Copies the parameters of a safetensors file into the model; with `inherit` the file's larger model is pruned.

    Returns the SHA-256 of the file and, with `inherit`, the `pruning_summary`. Raises `InvalidInput` for an unreadable
    file, a different architecture (with `inherit`: an architecture without the model as submodel), numbers that are not
    finite, and a tokenizer in the file's folder that differs from the tokenizer of the data.
    """
    summary: dict[str, Any] | None = None
    if inherit:
        parent, tensors = _pruned(weights, model.architecture, data)
        summary = pruning_summary(parent, model.architecture)
    else:
        loaded = _load("start", weights, data)
        wanted, actual = model.architecture.digest, loaded.architecture.digest
        if actual != wanted:
            raise _wrong("start", f"have architecture {actual[:12]}, but the training has {wanted[:12]}", weights)
        tensors = dict(loaded.named_parameters())
    own = dict(model.named_parameters())
    for name, values in tensors.items():
        own[name].data.copy_(values)
    return sha256(weights), summary


def load_teacher(weights: str | None, recipe: Recipe, data: Prepared, device: torch.device) -> Teacher | None:
    """Loads the teacher in evaluation mode; None for a recipe without a teacher.

    The teacher's vocabulary may be padded and so larger than the data's vocabulary. Raises the errors of
    `load_initial_weights`, and `InvalidInput` for a teacher without `distil` in the recipe or `distil` without a
    teacher, and a teacher that does not predict next tokens or has too few positions.
    """
    if recipe.distil is None or weights is None:
        if recipe.distil is None and weights is None:
            return None
        given = "no teacher is given" if weights is None else "the recipe has no distil"
        raise InvalidInput(
            f"teacher: {given}; a teacher and distil in the recipe must be given together",
            field="teacher",
            value=weights,
            allowed="the weights of a model with a recipe that has distil, null with others",
        )
    path = Path(weights)
    model = _load("teacher", path, data)
    architecture = model.architecture
    if not predicts_next_token(architecture):
        raise _wrong("teacher", "are not from a causal model with output tokens", path)
    tokens, max_length = architecture.embedding.vocab_size, architecture.max_length
    if tokens < data.vocab_size:
        raise _wrong("teacher", f"have {tokens:,} tokens, but the data set {data.name} has {data.vocab_size:,}", path)
    if max_length is not None and max_length < recipe.segment:
        raise _wrong("teacher", f"have {max_length:,} positions, but the recipe segments of {recipe.segment:,}", path)
    model.to(device).eval().requires_grad_(False)
    return Teacher(model, recipe.distil, sha256(path))


def _pruned(weights: Path, child: Architecture, data: Prepared) -> tuple[Architecture, dict[str, Tensor]]:
    """Returns a pair: the parent's architecture, and the child's tensors, pruned from the parent's weights."""
    try:
        parent = StoredValues(weights).architecture
    except OSError as error:
        raise _wrong("start", f"cannot be read: {error.strerror or error}", weights) from None
    _check_tokens("start", weights, data)
    try:
        tensors = load_pruned(weights, child)
    except NotFound as error:
        raise _wrong("start", f"cannot be pruned: {error.detail}", weights) from None
    except InvalidInput as error:
        raise _wrong("start", f"have no such submodel: {error.detail}", weights) from None
    _check_finite("start", tensors.items(), weights)
    return parent, tensors


def _load(field: str, weights: Path, data: Prepared) -> LanguageModel:
    try:
        model = load_safetensors(weights)
    except OSError as error:
        raise _wrong(field, f"cannot be read: {error.strerror or error}", weights) from None
    _check_tokens(field, weights, data)
    _check_finite(field, model.named_parameters(), weights)
    return model


def _check_tokens(field: str, weights: Path, data: Prepared) -> None:
    if not same_tokens(weights.parent, data.folder):
        raise _wrong(field, f"were trained with another tokenizer than that of the data set {data.name}", weights)


def _check_finite(field: str, tensors: Iterable[tuple[str, Tensor]], weights: Path) -> None:
    for name, values in tensors:
        if not bool(values.isfinite().all()):
            raise _wrong(field, f"contain numbers in {name} that are not finite", weights)


def _wrong(field: str, what: str, path: Path) -> InvalidInput:
    allowed = "the weights of a training of the same architecture on the same tokens"
    return InvalidInput(
        f"{field}: {_WHAT[field]} {what}",
        field=field,
        value=path.name,
        allowed=allowed if field == "start" else "the weights of a causal language model of the same tokens",
    )
