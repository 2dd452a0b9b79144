"""Registry of proxies by name, and the FLOPs of computing one score. This module does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import FeedForward
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.validation import checked
from edgefront.core.training.recipes.catalogue import recipe


class ProxySettings(BaseModel):
    """Settings of proxies: the batch for scores, and the length of `partial_training`.

    LTS uses one batch of 16 sequences of 192 tokens (arXiv 2203.02094, WikiText-103; 32 tokens for LM1B).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Annotated[StrictInt, Field(ge=1, le=1024)] = 16
    length: Annotated[StrictInt, Field(ge=2, le=4096)] = 192
    """Number of tokens of a sequence."""
    data: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Name of a prepared data set; its first batch is used. None: random tokens, which depend on the seed."""
    steps: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 500
    """Number of steps of `partial_training`. LTS's shortest training has 500 of 40,000 steps (Table 1)."""
    recipe: Annotated[str, Field(min_length=1, max_length=64)] = "quick"
    """Recipe of `partial_training`."""
    law: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Name of the shipped scaling law for `quality_law`. None: the scaling law of the model's family."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> ProxySettings:
        """Reads the settings from JSON. Raises `InvalidInput`, which names the first wrong field."""
        return checked(cls, value)


Cost = Callable[[Architecture, ProxySettings], int]
"""FLOPs of one score, two for each multiply-accumulate."""


def _nothing(*_: object) -> int:
    return 0


@dataclass(frozen=True)
class Proxy:
    """Description of a proxy: a cheap score of an architecture (`core.training.proxies.score`).

    `uses` names the fields of `ProxySettings` that affect the score.
    """

    name: str
    title: str
    source: str
    needs_torch: bool = True
    higher_is_better: bool = True
    uses: tuple[str, ...] = ("rows", "length", "data")
    cost: Cost = _nothing
    needs_data: bool = False
    """Whether the proxy requires a prepared data set."""
    logarithmic: bool = False
    """Whether the score is a logarithm, so that equal differences are equal ratios of quality."""

    def oriented(self, value: float) -> float:
        """Returns the score if higher is better, otherwise minus the score."""
        return value if self.higher_is_better else -value


def scorable(architecture: Architecture) -> Architecture:
    """Returns the architecture with an output over the vocabulary, because proxies need a loss.

    An encoder with another output (BERT's pooler) becomes a masked language model, a decoder becomes a language model.
    """
    if architecture.output.kind in ("tokens", "masked_tokens"):
        return architecture
    kind = "tokens" if architecture.causal else "masked_tokens"
    return Architecture.parse({**architecture.canonical, "output": {"kind": kind}})


_ABDELFATTAH = "Abdelfattah et al. 2021 (arXiv 2101.08134)"


def _forward(architecture: Architecture, settings: ProxySettings, logits: str = "all", rows: int | None = None) -> int:
    """Returns the FLOPs of one forward pass over a batch of `rows` sequences; None: of `settings.rows`."""
    model, batch = scorable(architecture), settings.rows if rows is None else rows
    return costs(model, CostOptions(batch=batch, sequence_length=settings.length, logits=logits)).flops


def _passes(count: int, logits: str = "all", rows: int | None = None) -> Cost:
    """Returns a function that computes the FLOPs of `count` forward passes over the batch."""
    return lambda architecture, settings: count * _forward(architecture, settings, logits, rows)


_GRADIENT = _passes(3)
"""Cost of a gradient: a forward pass, and twice as much for the backward pass."""


def _patterns(architecture: Architecture, settings: ProxySettings) -> int:
    """FLOPs of a forward pass without output layer, products of n tokens' patterns, and a determinant (n³/3)."""
    tokens = settings.rows * settings.length
    inner = sum(block.d_inner for block in architecture.blocks if isinstance(block, FeedForward))
    return _forward(architecture, settings, "none") + 2 * tokens**2 * inner + tokens**3 // 3


def _training(architecture: Architecture, settings: ProxySettings) -> int:
    """FLOPs of the forward and backward passes of all steps on the recipe's batch, without validation."""
    of_steps = recipe(settings.recipe)
    model = scorable(architecture)
    forward = costs(model, CostOptions(batch=of_steps.rows, sequence_length=of_steps.segment)).flops
    return 3 * forward * min(settings.steps, of_steps.steps)


_PROXIES = (
    Proxy(
        name="decoder_parameters",
        title="Parameters of the blocks and the final norm",
        source="LTS (arXiv 2203.02094) §3.1",
        needs_torch=False,
        uses=(),
    ),
    Proxy(
        name="total_parameters",
        title="All parameters, embedding included",
        source="LTS (arXiv 2203.02094) §4.2",
        needs_torch=False,
        uses=(),
    ),
    Proxy(
        name="quality_law",
        title="Minus the logarithm of the perplexity that a law predicts, learnt from trained models",
        source="LTS's logs (arXiv 2203.02094), HW-GPT-Bench (arXiv 2405.10299)",
        needs_torch=False,
        uses=("law",),
        logarithmic=True,
    ),
    Proxy(
        name="grad_norm",
        title="Sum of the gradient norms of the linear layers",
        source=_ABDELFATTAH,
        cost=_GRADIENT,
    ),
    Proxy(
        name="snip",
        title="Change of the loss if a weight is removed, summed over the weights",
        source="Lee et al. 2019 (arXiv 1810.02340)",
        cost=_GRADIENT,
    ),
    Proxy(
        name="grasp",
        title="Change of the gradient flow if a weight is removed, summed over the weights",
        source="Wang et al. 2020 (arXiv 2002.07376)",
        # The score falls as language models get better, so that LTS's study and code reverse the sign.
        higher_is_better=False,
        # A gradient, and the gradient of its product with a vector: about 8 forward passes, as LTS's code counts.
        cost=_passes(8),
    ),
    Proxy(
        name="fisher",
        title="Change of the loss if a channel is removed, summed over the weights of the channels",
        source="Theis et al. 2018 (arXiv 1801.05787)",
        # A forward pass, and as much for the gradients of the layers' outputs; gradients of weights are not needed.
        cost=_passes(2),
    ),
    Proxy(
        name="synflow",
        title="Flow of ones through the magnitudes of the weights, summed over them",
        source="Tanaka et al. 2020 (arXiv 2006.05467)",
        uses=("length",),
        # A gradient (3 forward passes) for one sequence, without the output layer.
        cost=_passes(3, "none", rows=1),
    ),
    Proxy(
        name="jacob_cov",
        title="How little the Jacobians of different inputs correlate",
        source="Mellor et al. 2020 (arXiv 2006.04647v1)",
        # A forward pass without the output layer, and as much for the gradient of the inputs alone.
        cost=_passes(2, "none"),
    ),
    Proxy(
        name="relu_log_det",
        title="How well the patterns of active units distinguish tokens",
        source="Mellor et al. 2021 (arXiv 2006.04647)",
        cost=_patterns,
    ),
    Proxy(
        name="partial_training",
        title="Loss on the validation split after a few steps of training (nats per token)",
        source="LTS (arXiv 2203.02094) §4.2, Table 1",
        higher_is_better=False,
        uses=("data", "steps", "recipe"),
        cost=_training,
        needs_data=True,
        logarithmic=True,
    ),
)


def proxies() -> dict[str, Proxy]:
    """Returns every proxy of architectures by name."""
    return {proxy.name: proxy for proxy in _PROXIES}


def proxy_named(name: str) -> Proxy:
    """Returns the proxy of this name. Raises `InvalidInput`, which lists the existing proxies."""
    listed = proxies()
    if name not in listed:
        allowed = ", ".join(listed)
        raise InvalidInput(f"no proxy {name!r}; there are {allowed}", field="proxy", value=name, allowed=allowed)
    return listed[name]
