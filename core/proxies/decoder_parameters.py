"""Parameters of the blocks and the final norm: the proxy of LTS (arXiv 2203.02094, §3.1)."""

from __future__ import annotations

from edgefront.core.cost.parameters import count
from edgefront.core.spaces.architecture import Architecture


def score(architecture: Architecture, *_: object) -> float:
    """A number of parameters; the source's count in a translation model. Neither seed nor settings matter."""
    return float(count(architecture).decoder)
