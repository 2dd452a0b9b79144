"""Predicts the models of a table by a scaling law that was fitted without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.features import features
from edgefront.core.quality.scaling_law import Floats, ScalingLaw
from edgefront.core.quality.shipped import family, own_data_law
from edgefront.core.training.proxies.table import Quality, Row, number_in
from edgefront.core.training.proxies.trained import TrainedModels, described_model, log_perplexity, trained_models


def unseen_scores(
    rows: Sequence[Row], quality: Quality, tokens: float | None, law: ScalingLaw | None = None
) -> dict[str, float] | None:
    """Returns digest → minus the predicted ln perplexity, after this number of training tokens if known, of the models
    that `law` covers; None if it covers no row.

    Default: the law for users' own data of the most common model family. Raises `InvalidInput` if `law` was fitted to
    these rows alone.
    """
    if log_perplexity(quality.column, 1.0) is None:
        return None
    usable = [row for row in rows if number_in(row, quality.column) is not None]
    described = (described_model(number, row) for number, row in enumerate(usable, 1))
    families = ["" if architecture is None else family(architecture) or "" for architecture in described]
    covered = [name for name in families if name and (law is not None or own_data_law(name) is not None)]
    if not covered:
        return None
    if law is None:
        most_common = Counter(covered).most_common(1)[0][0]
        law, covered = own_data_law(most_common), [most_common]
        assert law is not None
    models = trained_models([row for row, name in zip(usable, families, strict=True) if name in covered], quality)
    law = _without(law, models)
    if tokens is not None and law.study.budgets:
        law = law.at_tokens(tokens)
    digests = (architecture.digest for architecture in models.architectures)
    return dict(zip(digests, (-law.expected(models.shapes)).tolist(), strict=True))


def _without(law: ScalingLaw, models: TrainedModels) -> ScalingLaw:
    """Returns the shipped scaling law without the rows of `models`."""
    given, study = set(_identities(features(models.shapes), models.log_perplexity)), law.study
    seen = np.array([row in given for row in _identities(study.inputs, study.log_perplexity)], np.bool_)
    if seen.all():
        raise InvalidInput(
            f"law: {law.origin.name} was fitted to the models of this table",
            field="law",
            value=law.origin.name,
            allowed="a table of other models",
        )
    return replace(law, study=study.without(seen)) if seen.any() else law


def _identities(inputs: Floats, log_perplexity: Floats) -> list[tuple[float, ...]]:
    return [tuple(row) for row in np.column_stack([inputs, log_perplexity]).round(6).tolist()]
