"""Scores an architecture by any proxy. Imports torch only for proxies that need torch."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import count
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import Diverged, InvalidInput
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.shipped import family, law_for, law_named, unstudied
from edgefront.core.schemas.trainings import TrainingBudget
from edgefront.core.training.proxies.registry import Proxy, ProxySettings, proxy_named, scorable
from edgefront.core.training.recipes.catalogue import recipe


def score(
    architecture: Architecture,
    proxy: Proxy | str,
    seed: int = 0,
    settings: ProxySettings | None = None,
    device: str = "cpu",
    data: Path | None = None,
) -> float:
    """Computes the raw score of an architecture, a finite number. If `Proxy.higher_is_better`, higher is better.

    Weights and random batches are functions of the seed, so scores are reproducible, up to rounding on other machines.
    `data` is the folder of the prepared data set `settings.data`; the model then gets the vocabulary of this data set.

    Raises `InvalidInput` if the proxy has no value for this architecture (no unit with an activity, a sequence longer
    than the positions, a score that is not finite). Errors of torch are not converted.
    """
    entry = proxy_named(proxy) if isinstance(proxy, str) else proxy
    settings = settings or ProxySettings()
    if "data" not in entry.uses:
        data = None
    elif data is None and (settings.data is not None or entry.needs_data):
        raise InvalidInput(
            f"{entry.name} needs a prepared data set"
            if settings.data is None
            else f"no folder is given for the data set {settings.data!r}",
            field="settings.data",
            value=settings.data,
            allowed="the name of a prepared data set",
        )
    model = architecture
    if data is not None:
        # Imported here because numpy may be missing on a machine that only counts parameters.
        from edgefront.core.data.prepared.prepared import open_prepared
        from edgefront.core.training.run_folder import with_vocabulary

        prepared = open_prepared(data)
        model = with_vocabulary(scorable(architecture), prepared.vocab_size, prepared.source_vocab_size)
    value = float(_value(entry.name, model, seed, settings, device, data))
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
    if name == "decoder_parameters":  # in a translation model, also those of the encoder
        return count(architecture).decoder
    if name == "total_parameters":
        return count(architecture).total
    if name == "quality_law":
        return score_by(law_about(architecture, settings.law), architecture)
    if name == "partial_training":
        return _partial_training(architecture, seed, settings, cast(Literal["cpu", "cuda"], device), data)
    from edgefront.core.training.proxies import zero_cost

    proxy: Callable[[zero_cost.ScoreInput], float] = getattr(zero_cost, name)
    return proxy(zero_cost.ScoreInput(architecture, seed, settings, device, data))


def _partial_training(
    architecture: Architecture, seed: int, settings: ProxySettings, device: Literal["cpu", "cuda"], data: Path | None
) -> float:
    """Validation loss after a few steps of training (LTS, arXiv 2203.02094, §4.2): nats per token, lower is better.

    Training loop, data order and initialisation are the usual ones; the schedule ends after these few steps.
    """
    from edgefront.core.training.distributed import joined
    from edgefront.core.training.loop import Trainer
    from edgefront.core.training.run_folder import Journal, RunSpec

    assert data is not None
    spec = RunSpec(
        architecture=scorable(architecture).canonical,
        data=str(data.absolute()),
        recipe=recipe(settings.recipe).model_dump(mode="json"),
        budget=TrainingBudget(steps=settings.steps),
        seed=seed,
        device=device,
        threads=1 if device == "cpu" else None,
    )
    with tempfile.TemporaryDirectory(prefix="edgefront-score-") as folder, joined(device, spec.threads) as ranks:
        journal = Journal(Path(folder), writes=True)
        trainer = Trainer(spec, Path(folder), ranks, journal)
        try:
            trainer.train()
        except Diverged as error:
            raise InvalidInput(f"partial_training diverged: {error.detail}", field="architecture") from None
    last = journal.status.last
    if last is None or last.valid_loss is None:
        raise InvalidInput(
            f"the data set in {data.name} has no validation split to take the loss on", field="data", value=data.name
        )
    return last.valid_loss


def score_by(law: PerplexityPredictor, architecture: Architecture) -> float:
    """Returns minus the ln perplexity that the scaling law predicts for an architecture."""
    return -float(law.expected(Shapes.of([architecture]))[0])


def law_about(subject: Architecture | SearchSpace, name: str | None = None) -> PerplexityPredictor:
    """Returns the scaling law for a model or for all models of a space: the law `name`, or the default.

    Raises `InvalidInput` for an unknown name, and for models without a scaling law.
    """
    default = law_for(subject)
    if default is not None:
        return default if name is None else law_named(name)
    what = f"the space {subject.name}" if isinstance(subject, SearchSpace) else _kind(subject)
    raise InvalidInput(
        f"proxy: no scaling law covers {what}; scaling laws are fitted to decoders with attention and positions",
        field="proxy",
        value="quality_law",
        allowed="decoder_parameters, or another proxy",
    )


def covers(architecture: Architecture) -> bool:
    """Whether a scaling law covers this architecture."""
    return family(architecture) is not None


def _kind(architecture: Architecture) -> str:
    if (part := unstudied(architecture)) is not None:
        return f"models with {part}"
    if architecture.source is not None:
        return "translation models"
    if not architecture.causal:
        return "encoders"
    return "stacks without positions" if architecture.output.kind == "tokens" else "models without token scores"
