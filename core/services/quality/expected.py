"""Predicted perplexities as fields of views and database rows, and notes on the data of the predictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import spaces
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.quality.differences import DIFFERENCES
from edgefront.core.quality.predictor import PerplexityPredictor, in_words
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.shipped import family, shipped_laws
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.store.sql import Document


def perplexities(
    law: PerplexityPredictor | None, architectures: Sequence[Architecture], widening: float = 1.0
) -> list[Document]:
    """Returns the quality fields of `PredictedView` for each architecture, or empty documents if `law` is None. The
    logarithms of the intervals are `widening` times as wide as the law's.
    """
    if law is None or not architectures:
        return [{} for _ in architectures]
    shapes = Shapes.of(architectures)
    predicted, tokens = law.predict(shapes), law.tokens(shapes)
    predicted = replace(predicted, half_width=predicted.half_width * widening)
    budgets = [None] * len(architectures) if tokens is None else tokens.tolist()
    columns = zip(predicted.perplexity, predicted.low, predicted.high, predicted.beyond, budgets, strict=True)
    return [
        {
            "perplexity": float(median),
            "perplexity_low": float(low),
            "perplexity_high": float(high),
            "extrapolated": bool(beyond > 0),
            "law": law.origin.name,
            "relative_to": law.relative_to,
            "train_tokens": budget,
            "label": law.label,
        }
        for median, low, high, beyond, budget in columns
    ]


def label_of(predicted: Document | None) -> str:
    """Label of a stored prediction: data and training in about six words. Empty if no perplexity is predicted."""
    return "" if predicted is None or predicted.get("perplexity") is None else str(predicted["label"])


def perplexity_of(names: Iterable[str | None], law: PerplexityPredictor | None = None) -> str:
    """Returns the training data of the scaling laws with these names. `law` is the job's law if not a shipped law."""
    given = set(names)
    laws = dict(shipped_laws()) | ({} if law is None else {law.origin.name: law})
    return "; ".join(laws[name].about for name in laws if name in given)


def law_note(request: JobRequest, law: PerplexityPredictor | None, datasets: Iterable[str] = ()) -> str:
    """Returns a warning if a job's data or models differ from those that the predictor was fitted to; else empty.

    `datasets` are the data sets that the job's models were trained on (`queries.data_in_words`).
    """
    space = spaces().get(request.space.name)
    if space is None or law is None:
        return ""
    if isinstance(law, PruningPredictor):
        return (
            f"Predicted perplexity is that of the pruned models on {law.origin.data}, before recovery training lowers "
            f"it ({law.models} random submodels were evaluated)."
        )
    origin = law.origin
    notes = []
    others = [] if law.relative_to else sorted({name for name in datasets if not is_of(origin.data, name)})
    if others:
        notes.append(
            f"Predicted perplexity is that of models trained on {origin.data} (scaling law {origin.name}), not on "
            f"{', '.join(others)}: compare predictions with each other, not with perplexities on other data."
        )
    stock = space.example
    beyond = law.beyond(Shapes.of([stock]))[0]
    if "blocks" in beyond:
        notes.append(
            f"The scaling law {origin.name} was fitted to models without the blocks of {space.name}: its perplexities "
            "are extrapolated until trainings of models with these blocks refine it."
        )
    apart = [difference.name for difference in DIFFERENCES if difference.name in beyond]
    if apart:
        notes.append(
            f"No training data of the scaling law {origin.name} vary {', '.join(apart)}: intervals are wider where "
            "models differ in it."
        )
    if "train_tokens" in beyond and law.token_range:
        low, high = (in_words(tokens) for tokens in law.token_range)
        notes.append(
            f"The scaling law {origin.name} covers trainings on {low} to {high} tokens, not on {law.train_budget}: "
            "intervals are wider."
        )
    if origin.family not in ("", family(stock)):
        notes.append(
            f"The scaling law {origin.name} was fitted to models of the family {origin.family}, and {space.name} has "
            "models of another family."
        )
    return " ".join(notes)


def is_of(data: str, dataset: str) -> bool:
    """Whether a data set (`queries.data_in_words`) is a scaling law's data: the same data set for an owner's law; for
    a shipped law one of this name, as `wikitext-103-bpe` is of WikiText-103.
    """
    if "(data set " in data:
        return data == dataset
    of_law, name = (re.sub(r"[^a-z0-9]", "", text.split(" (")[0].lower()) for text in (data, dataset))
    return of_law == "notstated" or name.startswith(of_law)
