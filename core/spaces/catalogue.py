"""The catalogue of search spaces, as data. Named models are in `core.spaces.models`."""

from __future__ import annotations

from functools import cache

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.block_stack import BERT, HYBRID, PAR_32, SRUPP
from edgefront.core.spaces.decoders import LFM, LLAMA
from edgefront.core.spaces.gguf import EXPRESSIBLE
from edgefront.core.spaces.lts import LTS_GPT2, LTS_OPT, LTS_TRANSFORMER_XL
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.validation import existing

_SPACES = (LTS_GPT2, LTS_TRANSFORMER_XL, LTS_OPT, PAR_32, SRUPP, BERT, HYBRID, LLAMA, LFM)


def spaces() -> dict[str, SearchSpace]:
    """Every search space by name."""
    return {space.name: space for space in _SPACES}


def space(name: str) -> SearchSpace:
    """The search space of this name; `SpaceError` lists those that there are."""
    by_name = spaces()
    if name not in by_name:
        hint = existing(name, by_name, "edgefront space list")
        raise SpaceError(f"no search space {name!r}; {hint}", field="name", value=name, allowed=", ".join(by_name))
    return by_name[name]


@cache
def expressible_spaces() -> tuple[str, ...]:
    """The search spaces of which llama.cpp loads at least a part."""
    return tuple(name for name, space in spaces().items() if "llamacpp" in space.loaders())


def expressible() -> str:
    """What GGUF expresses, with these spaces, in words."""
    return f"in a search: the spaces {', '.join(expressible_spaces())}; {EXPRESSIBLE}"
