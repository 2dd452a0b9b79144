"""The score of a published model in one table of the catalogue."""

from __future__ import annotations

from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture


def score(_architecture: Architecture, *_: object) -> float:
    """Raises `InvalidInput`: weights have a score, not an architecture. A job among published models knows whose."""
    raise InvalidInput(
        "proxy: published_score is that of a published model's weights, which an architecture alone does not say",
        field="proxy",
        value="published_score",
        allowed="another proxy, or a job among published models",
    )
