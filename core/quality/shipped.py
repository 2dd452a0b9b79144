"""The shipped scaling laws, and the choice of a scaling law for an architecture.

`scripts/make_quality_laws.py` makes the scaling laws from tables of trained models in `tests/golden`. The default of
each family is a scaling law for data that no table has ("your own data"). Such a scaling law predicts ratios of
perplexities.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.embeddings_and_head import (
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.predictor import OWN_DATA, Origin, PerplexityPredictor
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.scaling_study import study
from edgefront.core.quality.stored import from_json

LTS_SOURCE = (
    "logs of randomly drawn models by Javaheripi et al., LiteTransformerSearch (arXiv 2203.02094, microsoft/archai)"
)
_GEMSTONES_SOURCE = "McLeish et al., Gemstones (arXiv 2502.06857), learning curves of 18 models"
_DECODERS = "decoders with gated feed-forward, RMSNorm and rotary positions"
_DOLMA = Origin(
    name="llama-dolma-cooled",
    title=f"{_DECODERS}, by width, depth and training tokens, on Dolma",
    family="llama",
    data="Dolma",
    split="validation",
    tokens="token (vocabulary of 50,304)",
    trained="with the learning rate falling to 0 over the last tenth",
    how="finished schedule",
    source=_GEMSTONES_SOURCE,
    licence="MIT",
)
TRAIN_TOKENS = 3e10
"""Default training tokens of scaling laws with a training budget."""


def _own_data(family: str, title: str, source: str, trained: str) -> Origin:
    return Origin(
        name=f"own-data-{family}",
        title=f"{title}, on data and by a recipe that no table has: ratios of perplexities alone",
        family=family,
        data=OWN_DATA,
        split="validation",
        tokens="token of your tokenizer",
        trained=trained,
        source=source,
        licence="MIT",
    )


_LTS_OWN = f"{LTS_SOURCE}: 881 models in 5 tables"
_LIKE_EACH_OTHER = "alike"
_SHARED: dict[str, tuple[Origin, str, str | None, bool]] = {
    # Origin, study, table whose data predictions are for, and whether predictions are for the table's recipe.
    origin.name: (origin, study, table, is_own_table)
    for origin, study, table, is_own_table in (
        (_own_data("gpt2", "decoders with attention", _LTS_OWN, _LIKE_EACH_OTHER), "lts", None, False),
        (_own_data("transformer-xl", "Transformer-XL", _LTS_OWN, _LIKE_EACH_OTHER), "lts", None, False),
        (_own_data("llama", _DECODERS, _GEMSTONES_SOURCE, _LIKE_EACH_OTHER), "gemstones", None, False),
        (_DOLMA, "gemstones", "cooled", True),
        (
            replace(
                _DOLMA,
                name="llama-dolma",
                trained="at a constant learning rate after the warm-up",
                how="constant learning rate",
            ),
            "gemstones",
            "constant_lr",
            True,
        ),
        (
            replace(
                _DOLMA,
                name="llama-dolma-other-recipe",
                title=f"{_DECODERS}, on Dolma by a recipe that no table has: ratios of perplexities alone",
                trained="by another recipe, all alike",
                how="another recipe",
            ),
            "gemstones",
            "cooled",
            False,
        ),
    )
}
_REFERENCES = {"gpt2": "gpt2-small", "transformer-xl": "transformer-xl-base", "llama": "smollm2-135m"}
"""Reference model of predicted ratios, by family."""
_OF_TABLES = ("lts-gpt2-wikitext103", "lts-transformer-xl-wikitext103", "hwgpt-gpt2-openwebtext")
NAMES = (*_SHARED, *_OF_TABLES)
"""Names of the shipped scaling laws. The first scaling law of a family is the family's default."""


def shipped_laws() -> dict[str, PerplexityPredictor]:
    """Returns every shipped scaling law by name."""
    return {name: _shipped(name) for name in NAMES}


def law_named(name: str) -> PerplexityPredictor:
    """Returns the shipped scaling law with this name. Raises `InvalidInput`, which lists all names, if none exists."""
    if name not in NAMES:
        allowed = ", ".join(NAMES)
        raise InvalidInput(f"law: there is no {name!r}; there are {allowed}", field="law", value=name, allowed=allowed)
    return _shipped(name)


def find_law(name_or_file: str) -> PerplexityPredictor:
    """Returns a shipped scaling law by name, or reads a predictor from a JSON file. Raises `InvalidInput` if neither
    exists, or if the file is wrong.
    """
    path = Path(name_or_file)
    if name_or_file in NAMES or not (path.suffix == ".json" or path.is_file()):
        return law_named(name_or_file)
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(
            f"{path}: {error.strerror or error}", field="law", value=name_or_file, allowed="a stored law"
        ) from None


def find_scaling_law(name_or_file: str, field: str) -> ScalingLaw:
    """Returns a scaling law like `find_law`. Refuses a pruning predictor; `field` names the option in errors."""
    law = find_law(name_or_file)
    if not isinstance(law, ScalingLaw):
        raise InvalidInput(
            f"{field}: {law.origin.name} predicts only the submodels of one model",
            field=field,
            value=law.origin.name,
            allowed="a scaling law, such as own-data-gpt2 or llama-dolma-cooled",
        )
    return law


def family(architecture: Architecture) -> str | None:
    """Family of an architecture. llama has rotary positions and gated feed-forward; gpt2 has other absolute positions,
    or rotary positions without gates; transformer-xl has relative positions. None for kinds of models that no published
    table contains: encoders, translation models, recurrent stacks without positions, and models with a feature named by
    `unstudied`.
    """
    if unstudied(architecture) is not None:
        return None
    if not architecture.causal or architecture.source is not None or architecture.output.kind != "tokens":
        return None
    if isinstance(architecture.positions, RelativePositions):
        return "transformer-xl"
    inner = [block for block in architecture.blocks if isinstance(block, FeedForward)]
    if isinstance(architecture.positions, RotaryPositions) and all(block.gated for block in inner):
        return "llama"
    if isinstance(architecture.positions, LearnedPositions | SinusoidalPositions | RotaryPositions):
        return "gpt2"
    return None


def unstudied(architecture: Architecture) -> str | None:
    """Name of a feature of the architecture that no published trained model has; None if there is no such feature."""
    if architecture.norms_update:
        return f"norm {architecture.norm}"
    if any(isinstance(block, Attention) and block.qk_norm == "whole" for block in architecture.blocks):
        return "qk_norm whole"
    if any(isinstance(block, Attention) and block.theta is not None for block in architecture.blocks):
        return "theta of attention"
    multipliers = (
        ("residual_multiplier", architecture.residual_multiplier),
        ("embedding.multiplier", architecture.embedding.multiplier),
        ("output.logits_scaling", architecture.output.logits_scaling),
    )
    scaled = [name for name, value in multipliers if value != 1]
    if any(isinstance(block, Attention) and block.scale is not None for block in architecture.blocks):
        scaled.append("scale of attention")
    return scaled[0] if scaled else None


def own_data_law(family: str) -> ScalingLaw | None:
    """Returns the family's scaling law for the user's own data (data of no published table); None if there is none."""
    name = f"own-data-{family}"
    if name not in _SHARED:
        return None
    law = _shipped(name)
    assert isinstance(law, ScalingLaw)
    return law


def law_for(subject: Architecture | SearchSpace) -> PerplexityPredictor | None:
    """Returns the default scaling law of the family of an architecture or a space; None if there is none.

    All architectures of a space have the same scaling law, so that predictions are comparable. Mixtures of blocks, such
    as SRU++, have the scaling law for the same positions and head, although the predictions may be extrapolated.
    """
    architecture = subject.example if isinstance(subject, SearchSpace) else subject
    own = family(architecture)
    return next((law_named(name) for name in NAMES if _family_of(name) == own), None)


def _family_of(name: str) -> str:
    return _SHARED[name][0].family if name in _SHARED else law_named(name).origin.family


@cache
def _shipped(name: str) -> PerplexityPredictor:
    if name in _OF_TABLES:
        return from_json((files("edgefront.core.quality") / "laws" / f"{name}.json").read_bytes())
    origin, of, table, is_own_table = _SHARED[name]
    given = study(of)
    place = None if table is None else [each.name for each in given.tables].index(table)
    reference = _REFERENCES[origin.family]
    return ScalingLaw(
        origin,
        given,
        place,
        is_own_table,
        float(np.log(TRAIN_TOKENS)) if given.budgets else float(given.log_tokens[0]),
        (reference, Shapes.of([named_model(reference).architecture])),
    )
