"""What a request says of a search among published models. Shared by the API and the client."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from edgefront.core.common.number_formats import KvCache, WeightFormat
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.schemas.messages import Request

DEFAULT_SCORE = "mobilellm_r1_base:CommonSense Avg"
"""Of the tables that compare the models of 2024 and 2025: the one that has the same benchmark of all its models."""

ModelKind = Literal["base", "instruct", "any"]


class PublishedRequest(Request):
    """Among which models of the catalogue of published models a job chooses, and by which score."""

    score: Annotated[str, Field(min_length=1, max_length=200)] = DEFAULT_SCORE
    """TABLE:BENCHMARK; values of two tables are never compared."""
    kind: ModelKind = "any"
    licence: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """As the catalogue states it, such as apache-2.0; `permissive`: those that ask for no more than the authors' names.
    A model whose licence is unknown has neither."""
    min_context: Annotated[StrictInt, Field(ge=1, le=1 << 31)] | None = None
    """Tokens of its context at least. A model whose context is unknown has fewer."""


class Variants(Request):
    """Further ways to measure on the device of a target: one target for each combination that a runtime has."""

    runtimes: Annotated[tuple[Runtime, ...], Field(max_length=4)] = ()
    """That of the target's protocol if empty."""
    formats: Annotated[tuple[WeightFormat, ...], Field(max_length=16)] = ()
    """What the weights hold; if empty, 8 and 4 bits in each runtime that has them."""
    kv_caches: Annotated[tuple[KvCache, ...], Field(max_length=4)] = ()
    """What llama.cpp's cache of keys and values holds; that of the protocol, or f16, if empty."""
