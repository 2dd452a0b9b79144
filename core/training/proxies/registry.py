"""The proxies by name, and the FLOPs of one score. Importable without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import FeedForward
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.common.canonical import digest
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.validation import checked
from edgefront.core.training.recipes.catalogue import recipe


class ProxySettings(BaseModel):
    """The batch for scores, and the length of `partial_training`.

    One batch of 16 sequences of 192 tokens is LTS's (arXiv 2203.02094, WikiText-103; 32 tokens for LM1B).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Annotated[StrictInt, Field(ge=1, le=1024)] = 16
    length: Annotated[StrictInt, Field(ge=2, le=4096)] = 192
    """Tokens of a sequence."""
    data: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Name of a prepared data set, whose first batch is used; None: random tokens by the seed."""
    steps: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 500
    """For `partial_training`; 500 of 40,000 is LTS's shortest (Table 1)."""
    recipe: Annotated[str, Field(min_length=1, max_length=64)] = "quick"
    """For `partial_training`."""
    law: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """For `quality_law`: a shipped scaling law, or in a job one that the owner's trainings have refined; None: that of
    the model's family."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> ProxySettings:
        """Settings from their JSON form; `InvalidInput` names the first field that is wrong."""
        return checked(cls, value)

    @property
    def digest(self) -> str:
        """SHA-256 of all settings, which distinguishes scores."""
        # `law` is newer: settings without it keep the digest of stored scores.
        return digest(self.model_dump(mode="json", exclude={"law"} if self.law is None else None))


Cost = Callable[[Architecture, ProxySettings], int]
"""FLOPs of one score, two for each multiply-accumulate."""


def _nothing(*_: object) -> int:
    return 0


@dataclass(frozen=True)
class Proxy:
    """A score of an architecture (`core.training.proxies.score`).

    `uses` are the settings that affect its value.
    """

    name: str
    title: str
    source: str
    needs_torch: bool = True
    higher_is_better: bool = True
    uses: tuple[str, ...] = ("rows", "length", "data")
    cost: Cost = _nothing
    needs_data: bool = False
    """Whether it requires a prepared data set."""
    logarithmic: bool = False
    """Whether its score is a logarithm: equal differences are equal ratios of quality."""

    def oriented(self, value: float) -> float:
        """The score as an objective: higher is better."""
        return value if self.higher_is_better else -value

    def relevant(self, settings: ProxySettings) -> ProxySettings:
        """The settings that affect this proxy, with the others at their defaults."""
        return ProxySettings(**{name: getattr(settings, name) for name in self.uses})


def scorable(architecture: Architecture) -> Architecture:
    """The architecture with an output over its vocabulary, which proxies need for a loss.

    An encoder with another output (BERT's pooler) becomes a masked language model, a decoder a language model.
    """
    if architecture.output.kind in ("tokens", "masked_tokens"):
        return architecture
    kind = "tokens" if architecture.causal else "masked_tokens"
    return Architecture.parse({**architecture.canonical, "output": {"kind": kind}})


_ABDELFATTAH = "Abdelfattah et al. 2021 (arXiv 2101.08134)"


def _forward(architecture: Architecture, settings: ProxySettings, logits: str = "all", rows: int | None = None) -> int:
    """FLOPs of one pass over the batch."""
    model, batch = scorable(architecture), settings.rows if rows is None else rows
    return costs(model, CostOptions(batch=batch, sequence_length=settings.length, logits=logits)).flops


def _passes(count: int, logits: str = "all", rows: int | None = None) -> Cost:
    """`count` passes over the batch."""
    return lambda architecture, settings: count * _forward(architecture, settings, logits, rows)


_GRADIENT = _passes(3)
"""A forward pass, and twice as much for the gradients."""


def _patterns(architecture: Architecture, settings: ProxySettings) -> int:
    """A pass without the output layer, a product of each layer's patterns, and a determinant (n³/3)."""
    tokens = settings.rows * settings.length
    inner = sum(block.d_inner for block in architecture.blocks if isinstance(block, FeedForward))
    return _forward(architecture, settings, "none") + 2 * tokens**2 * inner + tokens**3 // 3


def _training(architecture: Architecture, settings: ProxySettings) -> int:
    """Forward pass and gradients of each step on the recipe's batch, without the validation."""
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
        # LTS's study turns the sign, as in its code: the score falls as language models get better.
        higher_is_better=False,
        # A gradient, and that of its product with a vector: as LTS's code counts, 8 passes more or less.
        cost=_passes(8),
    ),
    Proxy(
        name="fisher",
        title="Change of the loss if a channel is removed, summed over the weights of the channels",
        source="Theis et al. 2018 (arXiv 1801.05787)",
        # A pass, and as much for the gradients of what the maps put out, without those of the weights.
        cost=_passes(2),
    ),
    Proxy(
        name="synflow",
        title="Flow of ones through the magnitudes of the weights, summed over them",
        source="Tanaka et al. 2020 (arXiv 2006.05467)",
        uses=("length",),
        # A gradient for one sequence, without the output layer.
        cost=_passes(3, "none", rows=1),
    ),
    Proxy(
        name="jacob_cov",
        title="How little the Jacobians of different inputs correlate",
        source="Mellor et al. 2020 (arXiv 2006.04647v1)",
        # A pass without the output layer, and as much for the gradient of what it reads alone.
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


PUBLISHED_SCORE = Proxy(
    name="published_score",
    title="Score of the published model in one table",
    source="core/architectures/published/tables.jsonl",
    needs_torch=False,
    uses=(),
)
"""The proxy of a job among published models only: a property of weights, not of an architecture."""


def proxies() -> dict[str, Proxy]:
    """Every proxy of architectures by name."""
    return {proxy.name: proxy for proxy in _PROXIES}


def proxy_named(name: str) -> Proxy:
    """The proxy of this name; `InvalidInput` lists the existing ones."""
    listed = proxies()
    if name not in listed:
        allowed = ", ".join(listed)
        raise InvalidInput(f"no proxy {name!r}; there are {allowed}", field="proxy", value=name, allowed=allowed)
    return listed[name]
