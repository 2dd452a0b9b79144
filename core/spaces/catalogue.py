"""The catalogue of search spaces, as data. Named models are in `core.spaces.models`."""

from __future__ import annotations

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.decoders import LFM, LLAMA
from edgefront.core.spaces.lts import LTS_GPT2, LTS_OPT, LTS_TRANSFORMER_XL
from edgefront.core.spaces.sandwich import SANDWICH
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.spaces.stacks import BERT, HYBRID, PAR_32, SRUPP
from edgefront.core.validation import existing

_SPACES = (LTS_GPT2, LTS_TRANSFORMER_XL, LTS_OPT, PAR_32, SANDWICH, SRUPP, BERT, HYBRID, LLAMA, LFM)


def spaces() -> dict[str, SearchSpace]:
    """Every search space by name."""
    return {space.name: space for space in _SPACES}


def space(name: str) -> SearchSpace:
    """The search space of this name; `SpaceError` lists those that there are."""
    known = spaces()
    if name not in known:
        found = existing(name, known, "edgefront space list")
        raise SpaceError(f"no search space {name!r}; {found}", field="name", value=name, allowed=", ".join(known))
    return known[name]
