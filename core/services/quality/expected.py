"""What perplexity a quality law expects of architectures, as views and rows hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.law import QualityLaw
from edgefront.core.spaces.architecture import Architecture


def perplexities(law: QualityLaw | None, architectures: Sequence[Architecture]) -> list[dict[str, Any]]:
    """Of each the fields of `core.wire.jobs.PredictedView` that are about quality; empty without a law."""
    if law is None or not architectures:
        return [{} for _ in architectures]
    found = law.predict(Shapes.of(architectures))
    columns = zip(found.perplexity, found.low, found.high, found.beyond, strict=True)
    return [
        {
            "perplexity": float(median),
            "perplexity_low": float(low),
            "perplexity_high": float(high),
            "extrapolated": bool(beyond > 0),
            "law": law.origin.name,
        }
        for median, low, high, beyond in columns
    ]
