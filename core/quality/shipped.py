"""The quality laws that come with the product, and which of them is about an architecture.

They are made by `scripts/make_quality_laws.py` from tables in `tests/golden`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.stored import from_json
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.embeddings_and_head import (
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from edgefront.core.spaces.space import SearchSpace

NAMES = ("lts-gpt2-wikitext103", "lts-transformer-xl-wikitext103", "hwgpt-gpt2-openwebtext")
"""Of one family, the law that is taken unless another is asked for comes first."""


def shipped_laws() -> dict[str, QualityLaw]:
    """Every shipped law by name."""
    return {name: _shipped(name) for name in NAMES}


def law_named(name: str) -> QualityLaw:
    """The shipped law of this name; `InvalidInput` lists those that there are."""
    if name not in NAMES:
        allowed = ", ".join(NAMES)
        raise InvalidInput(f"law: there is no {name!r}; there are {allowed}", field="law", value=name, allowed=allowed)
    return _shipped(name)


def find_law(name_or_file: str) -> QualityLaw:
    """A shipped law by name, or the one in a JSON file. `InvalidInput` says what is wrong."""
    path = Path(name_or_file)
    if name_or_file in NAMES or not (path.suffix == ".json" or path.is_file()):
        return law_named(name_or_file)
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(
            f"{path}: {error.strerror or error}", field="law", value=name_or_file, allowed="a stored law"
        ) from None


def family(architecture: Architecture) -> str | None:
    """gpt2 or transformer-xl: decoders by their positions, rotary ones being with the absolute ones. None for what no
    table of ours is about: encoders, translation models, and recurrent stacks without positions.
    """
    if not architecture.causal or architecture.source is not None or architecture.output.kind != "tokens":
        return None
    if isinstance(architecture.positions, RelativePositions):
        return "transformer-xl"
    if isinstance(architecture.positions, LearnedPositions | SinusoidalPositions | RotaryPositions):
        return "gpt2"
    return None


def law_for(subject: Architecture | SearchSpace) -> QualityLaw | None:
    """The law of an architecture's family, or of a space's; None where there is none.

    All architectures of a space have one law, whose predictions can be compared. Mixtures (blocks in any order, SRU++
    among them) have the law of their frame, which says of each that it is extrapolated where it is.
    """
    architecture = subject.baselines([1])[0] if isinstance(subject, SearchSpace) else subject
    return next((law for law in shipped_laws().values() if law.origin.family == family(architecture)), None)


def laws_for_table(architectures: Sequence[Architecture]) -> list[QualityLaw | None]:
    """For each architecture of a table the law of its family that has to extrapolate least over the whole table."""
    families = [family(architecture) for architecture in architectures]

    def nearest(name: str | None) -> QualityLaw | None:
        shapes = Shapes.of([one for one, own in zip(architectures, families, strict=True) if own == name])
        known = [law for law in shipped_laws().values() if law.origin.family == name]
        return min(known, key=lambda law: float(np.mean(law.predict(shapes).beyond)), default=None)

    best = {name: nearest(name) for name in set(families)}
    return [best[one] for one in families]


@cache
def _shipped(name: str) -> QualityLaw:
    return from_json((files("edgefront.core.quality") / "laws" / f"{name}.json").read_bytes())
