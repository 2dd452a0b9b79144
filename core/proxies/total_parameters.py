"""All parameters, embedding and positions included (LTS, arXiv 2203.02094, §4.2, compares with it)."""

from __future__ import annotations

from edgefront.core.cost.parameters import count
from edgefront.core.spaces.architecture import Architecture


def score(architecture: Architecture, *_: object) -> float:
    """A number of parameters. Neither seed nor settings matter."""
    return float(count(architecture).total)
