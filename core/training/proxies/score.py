"""The score of an architecture by any proxy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import count
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.shipped import family, law_for, law_named, unstudied
from edgefront.core.training.proxies.registry import Proxy, ProxySettings, proxy_named, scorable


def score(
    architecture: Architecture,
    proxy: Proxy | str,
    seed: int = 0,
    settings: ProxySettings | None = None,
    device: str = "cpu",
    data: Path | None = None,
) -> float:
    """The raw score, finite; `Proxy.higher_is_better` says what it means.

    The same arguments give the same score on the same machine, and on others up to rounding: weights and random
    batches are functions of the seed alone. `data` is the folder of the prepared data set that `settings.data` names;
    the model then has its vocabulary.

    Raises `InvalidInput` where the proxy has no value for this architecture (no unit whose activity could be seen, a
    sequence longer than the positions, a score that is not a finite number) and for a seed below 0. Torch's own errors
    (out of memory) pass through.
    """
    entry = proxy_named(proxy) if isinstance(proxy, str) else proxy
    if seed < 0:
        raise InvalidInput(f"seed must be 0 or more, not {seed}", field="seed", value=seed, allowed="0 or more")
    asked = settings or ProxySettings()
    if "data" not in entry.uses:
        data = None
    elif data is None and (asked.data is not None or entry.needs_data):
        raise InvalidInput(
            f"{entry.name} needs a prepared data set"
            if asked.data is None
            else f"no folder is given for the data set {asked.data!r}",
            field="settings.data",
            value=asked.data,
            allowed="the name of a prepared data set",
        )
    scored = architecture if data is None else _over(architecture, data)
    value = float(_value(entry.name, scored, seed, asked, device, data))
    if not math.isfinite(value):
        raise InvalidInput(
            f"{entry.name} of this model is not a finite number ({value})",
            field="architecture",
            value=architecture.digest,
            allowed="another proxy, or a smaller model",
        )
    return value


def _value(
    name: str, architecture: Architecture, seed: int, settings: ProxySettings, device: str, data: Path | None
) -> float:
    """Torch is imported for those that need it alone."""
    if name == "decoder_parameters":  # the source's in a translation model
        return count(architecture).decoder
    if name == "total_parameters":
        return count(architecture).total
    if name == "quality_law":
        return score_by(law_about(architecture, settings.law), architecture)
    if name == "partial_training":
        from edgefront.core.training.proxies import partial_training

        return partial_training.score(architecture, seed, settings, cast(Literal["cpu", "cuda"], device), data)
    from edgefront.core.training.proxies import zero_cost

    proxy: Callable[[zero_cost.ScoreInput], float] = getattr(zero_cost, name)
    return proxy(zero_cost.ScoreInput(architecture, seed, settings, device, data))


def _over(architecture: Architecture, data: Path) -> Architecture:
    """The model over the data's vocabulary. Imported here: numpy is not everywhere that counts parameters."""
    from edgefront.core.data.prepared.prepared import open_prepared
    from edgefront.core.training.run_folder import with_vocabulary

    prepared = open_prepared(data)
    return with_vocabulary(scorable(architecture), prepared.vocab_size, prepared.source_vocab_size)


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
