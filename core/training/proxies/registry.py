"""Every proxy by name, and what one score costs. Importable without torch."""

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
    """The batch that a model is scored on, and how long `partial_training` trains.

    One batch of 16 sequences of 192 tokens is LTS's (arXiv 2203.02094, WikiText-103; 32 tokens for LM1B).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Annotated[StrictInt, Field(ge=1, le=1024)] = 16
    length: Annotated[StrictInt, Field(ge=2, le=4096)] = 192
    """Tokens of a sequence."""
    data: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Name of a prepared data set whose first batch is taken; None: tokens drawn at random by the seed."""
    steps: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 500
    """Only `partial_training` uses it; 500 of 40,000 is LTS's shortest (Table 1)."""
    recipe: Annotated[str, Field(min_length=1, max_length=64)] = "quick"
    """Only `partial_training` uses it."""
    law: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Only `quality_law` uses it. It names a shipped law, or in a job a law that the owner's trainings have
    taught; None stands for the law of the model's family."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> ProxySettings:
        """Settings from their JSON form; `InvalidInput` names the first field that is wrong."""
        return checked(cls, value)

    @property
    def digest(self) -> str:
        """SHA-256 of all settings: scores under different settings are different scores."""
        # `law` came later: settings without it keep the digest that stored scores have.
        return digest(self.model_dump(mode="json", exclude={"law"} if self.law is None else None))


Cost = Callable[[Architecture, ProxySettings], int]
"""FLOPs (two for each multiply-accumulate) that one score takes."""


def _nothing(*_: object) -> int:
    return 0


@dataclass(frozen=True)
class Proxy:
    """A score of an architecture (`core.training.proxies.score`).

    `uses` are the settings that its value depends on: others do not change it.
    """

    name: str
    title: str
    source: str
    needs_torch: bool = True
    higher_is_better: bool = True
    uses: tuple[str, ...] = ("rows", "length", "data")
    cost: Cost = _nothing
    needs_data: bool = False
    """It has no value without a prepared data set."""
    logarithmic: bool = False
    """Its score is a logarithm: equal differences of it are equal ratios of quality."""

    def oriented(self, value: float) -> float:
        """The score as an objective: higher is better."""
        return value if self.higher_is_better else -value

    def relevant(self, settings: ProxySettings) -> ProxySettings:
        """The settings with everything that does not concern this proxy at its default."""
        return ProxySettings(**{name: getattr(settings, name) for name in self.uses})


def scorable(architecture: Architecture) -> Architecture:
    """The architecture with an output over its vocabulary, which the losses of proxies need.

    An encoder that is measured with another output (BERT's pooler) is scored as the masked language model that it is
    trained as, a decoder without one as a language model.
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
    """So many passes over the batch."""
    return lambda architecture, settings: count * _forward(architecture, settings, logits, rows)


_GRADIENT = _passes(3)
"""A pass, and twice as much for its gradients."""


def _patterns(architecture: Architecture, settings: ProxySettings) -> int:
    """A pass without the output layer, a product of each layer's patterns, and a determinant (n³/3)."""
    tokens = settings.rows * settings.length
    inner = sum(block.d_inner for block in architecture.blocks if isinstance(block, FeedForward))
    return _forward(architecture, settings, "none") + 2 * tokens**2 * inner + tokens**3 // 3


def _training(architecture: Architecture, settings: ProxySettings) -> int:
    """The steps, each a pass over the recipe's batch and twice as much for its gradients; without the validation."""
    chosen_recipe = recipe(settings.recipe)
    model = scorable(architecture)
    forward = costs(model, CostOptions(batch=chosen_recipe.rows, sequence_length=chosen_recipe.segment)).flops
    return 3 * forward * min(settings.steps, chosen_recipe.steps)


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
"""The proxy of a job among published models alone: weights have it, which an architecture does not say."""


def proxies() -> dict[str, Proxy]:
    """Every proxy of architectures by name."""
    return {proxy.name: proxy for proxy in _PROXIES}


def proxy_named(name: str) -> Proxy:
    """The proxy of this name; `InvalidInput` lists those that there are."""
    listed = proxies()
    if name not in listed:
        allowed = ", ".join(listed)
        raise InvalidInput(f"no proxy {name!r}; there are {allowed}", field="proxy", value=name, allowed=allowed)
    return listed[name]
