"""Requests for a search among published models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from edgefront.core.common.number_formats import KvCache, WeightFormat
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.schemas.messages import Request

DEFAULT_SCORE = "mobilellm_r1_base:CommonSense Avg"
"""Default score. Of the tables with models of 2024 and 2025, only this one has a benchmark of all its models."""

ModelKind = Literal["base", "instruct", "any"]


class PublishedRequest(Request):
    """Filter of the catalogue of published models, and the score to rank by."""

    score: Annotated[str, Field(min_length=1, max_length=200)] = DEFAULT_SCORE
    """TABLE:BENCHMARK; values of two tables are never compared."""
    kind: ModelKind = "any"
    licence: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Licence in the catalogue, such as apache-2.0; `permissive`: licences that require attribution at most. Models
    with an unknown licence never match.
    """
    min_context: Annotated[StrictInt, Field(ge=1, le=1 << 31)] | None = None
    """Minimum context length in tokens; models with an unknown context length do not match."""


class Variants(Request):
    """Variants of a target: one target for each combination that a runtime supports."""

    runtimes: Annotated[tuple[Runtime, ...], Field(max_length=4)] = ()
    """Runtimes; if empty, the runtime of the target's protocol."""
    formats: Annotated[tuple[WeightFormat, ...], Field(max_length=16)] = ()
    """Formats of the weights; if empty, 8 and 4 bits in each runtime that supports them."""
    kv_caches: Annotated[tuple[KvCache, ...], Field(max_length=4)] = ()
    """Formats of llama.cpp's key/value cache; if empty, the format of the protocol, or f16."""
