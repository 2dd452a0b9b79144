"""Requests for a search among published models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, model_validator

from edgefront.core.common.number_formats import KvCache, WeightFormat
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.schemas.messages import Request

ModelKind = Literal["base", "instruct", "any"]

DEFAULT_SCORES: Mapping[ModelKind, str] = {
    "base": "mobilellm_r1_base:CommonSense Avg",
    "instruct": "open_llm_leaderboard_v2:IFEval",
    "any": "open_llm_leaderboard_v2:MMLU-PRO",
}
"""Kind of model → default score: for base models the table of 2025 that has one benchmark of all its models; for
assistants, and for both together, the table with most of them.
"""


class PublishedRequest(Request):
    """Filter of the catalogue of published models, and the score to rank by."""

    score: Annotated[str, Field(min_length=1, max_length=200)] = DEFAULT_SCORES["base"]
    """TABLE:BENCHMARK; values of two tables are never compared. Default: that of the kind in `DEFAULT_SCORES`."""
    kind: ModelKind = "base"
    """Base models continue a text, instruct models answer as an assistant. Default: base, or any for a given score."""
    licence: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Licence in the catalogue, such as apache-2.0; `permissive`: licences that require attribution at most. Models
    with an unknown licence never match.
    """
    min_context: Annotated[StrictInt, Field(ge=1, le=1 << 31)] | None = None
    """Minimum context length in tokens; models with an unknown context length do not match."""

    @model_validator(mode="before")
    @classmethod
    def _default_of_the_other(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if "score" in value:
            return {"kind": "any", **value}
        scores = [score for kind, score in DEFAULT_SCORES.items() if kind == value.get("kind")]
        return {"score": scores[0] if scores else DEFAULT_SCORES["base"], **value}


class Variants(Request):
    """Variants of a target: one target for each combination that a runtime supports."""

    runtimes: Annotated[tuple[Runtime, ...], Field(max_length=4)] = ()
    """Runtimes; if empty, the runtime of the target's protocol."""
    formats: Annotated[tuple[WeightFormat, ...], Field(max_length=16)] = ()
    """Formats of the weights; if empty, 8 and 4 bits in each runtime that supports them."""
    kv_caches: Annotated[tuple[KvCache, ...], Field(max_length=4)] = ()
    """Formats of llama.cpp's key/value cache; if empty, the format of the protocol, or f16."""
