"""The class of named models, and the architectures of published models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward
from edgefront.core.architectures.huggingface import CONFIG, from_config
from edgefront.core.architectures.parameters import count
from edgefront.core.architectures.pattern import expand
from edgefront.core.architectures.published import PublishedModel, PublishedView, published_models
from edgefront.core.common.errors import InvalidInput

_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length")


class NamedModel(NamedTuple):
    """A model from a paper or a release, under its common name."""

    name: str
    source: str
    """Paper and table that describe the model."""
    architecture: Architecture


def blocks_of(pattern: str, n_head: int, d_inner: int) -> tuple[Block, ...]:
    """Blocks of a pattern: s is attention with `n_head` heads, f feed-forward of width `d_inner`."""
    letters: dict[str, Block] = {"s": Attention(n_head=n_head), "f": FeedForward(d_inner=d_inner)}
    return tuple(letters[letter] for letter in expand(pattern))


@lru_cache(maxsize=1)
def described_models() -> Mapping[str, Architecture]:
    """Hub id → architecture, for every published model with a description."""
    expressions = ((id_, expressed(model)) for id_, model in published_models().items())
    return {id_: expression for id_, expression in expressions if isinstance(expression, Architecture)}


def published_architecture(model: PublishedModel) -> Architecture:
    """Architecture of a published model. Raises `InvalidInput` with the reason if a description cannot express it."""
    architecture = expressed(model)
    if isinstance(architecture, str):
        allowed = "a model that `edgefront model list --published` lists as expressible"
        raise InvalidInput(
            f"{model.id} cannot be described: {architecture}", field="model", value=model.id, allowed=allowed
        )
    return architecture


def expressed(model: PublishedModel) -> Architecture | str:
    """Architecture of a published model, or the reason why it has no description."""
    if model.config is None or model.unknown:
        if model.unknown and CONFIG not in model.unknown:
            return "; ".join(filter(None, (_lacking(model), f"no source states {', '.join(model.unknown)}")))
        return _lacking(model) or "its config.json was not read"
    try:
        architecture = from_config(model.config)
    except InvalidInput as error:
        return _lacking(model) or error.detail
    if any(model.config.get(field) is not None for field in _LENGTHS):
        return architecture
    # The reader would set the type's default length, although no source states a length.
    stated = {name: value for name, value in architecture.canonical.items() if name != "context_length"}
    return Architecture.parse(stated)


def published_view(model: PublishedModel) -> PublishedView:
    """Published facts about a model, with digest and number of parameters, or the reason for a missing description."""
    architecture, facts = expressed(model), dict(model)
    if isinstance(architecture, str):
        return PublishedView(**facts, not_expressible=architecture)
    return PublishedView(**facts, digest=architecture.digest, counted_parameters=count(architecture).total)


def _lacking(model: PublishedModel) -> str:
    return "" if model.needs is None else f"it has {model.needs}, which a description cannot express"
