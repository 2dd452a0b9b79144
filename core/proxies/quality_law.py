"""Minus the ln perplexity that a quality law predicts: of the law that is named, or of the architecture's family."""

from __future__ import annotations

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.shipped import family, law_for, law_named, unstudied
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.space import SearchSpace


def score(architecture: Architecture, settings: ProxySettings) -> float:
    """Higher is better. `InvalidInput` where no law is about such models."""
    return score_by(law_about(architecture, settings.law), architecture)


def score_by(law: PerplexityPredictor, architecture: Architecture) -> float:
    """Minus the ln perplexity that this law predicts."""
    return -float(law.expected(Shapes.of([architecture]))[0])


def law_about(subject: Architecture | SearchSpace, name: str | None = None) -> PerplexityPredictor:
    """The law that scores a model, or all models of a space: the one of this name, else the one of its family.

    `InvalidInput` names `law` where there is none of this name, and says where no law is about such models.
    """
    default = law_for(subject)
    if default is not None:
        return default if name is None else law_named(name)
    what = f"the space {subject.name}" if isinstance(subject, SearchSpace) else _kind(subject)
    raise InvalidInput(
        f"proxy: no quality law is about {what}: the tables behind them are of decoders with attention and positions",
        field="proxy",
        value="quality_law",
        allowed="decoder_parameters, or another proxy",
    )


def covers(architecture: Architecture) -> bool:
    """Whether some law is about such models."""
    return family(architecture) is not None


def _kind(architecture: Architecture) -> str:
    if (part := unstudied(architecture)) is not None:
        return f"models with {part}"
    if architecture.source is not None:
        return "translation models"
    if not architecture.causal:
        return "encoders"
    return "stacks without positions" if architecture.output.kind == "tokens" else "models without token scores"
