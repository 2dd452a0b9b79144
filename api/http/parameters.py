"""Parameters that several endpoints share, with their limits."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Path, Query

from edgefront.core.common.units import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS
from edgefront.core.schemas.jobs import MAX_LIMIT, Limits, PredictionBudget, TrainerName, TrainHours
from edgefront.core.services.idempotency import MAX_KEY

_ID = r"^[A-Za-z0-9_\-]+$"

JobId = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["job_01jv0c8z5m4q3k2n1p0r9s8t7v"])]
CandidateId = Annotated[
    str, Path(min_length=1, max_length=64, pattern=_ID, examples=["cnd_01jv0c9a7m4q3k2n1p0r9s8t7x"])
]
DeviceName = Annotated[
    str,
    Path(
        alias="device_id",
        min_length=1,
        max_length=100,
        pattern=r"^[\w .:@()+,\-]+$",
        description="Id or name of a device",
        examples=["dev_01jv0bzz1m4q3k2n1p0r9s8t7y"],
    ),
]
TrainingId = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["trn_01jv0d1e3m4q3k2n1p0r9s8t74"])]
LeaseId = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["lse_01jv0c9c3m4q3k2n1p0r9s8t70"])]
LaunchId = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["lau_01jv0c9b2m4q3k2n1p0r9s8t7z"])]
KeyId = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["key_01jv0a000m4q3k2n1p0r9s8t71"])]
TokenId = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["enr_01jv0a111m4q3k2n1p0r9s8t72"])]
CatalogueName = Annotated[str, Path(min_length=1, max_length=64, pattern=_ID, examples=["lts-gpt2"])]
_HUB = r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$"
HubOwner = Annotated[str, Path(min_length=1, max_length=100, pattern=_HUB, examples=["Qwen"])]
HubName = Annotated[str, Path(min_length=1, max_length=100, pattern=_HUB, examples=["Qwen3-0.6B"])]
LawName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=80,
        pattern=r"^[A-Za-z0-9_.\-]+$",
        description="Name of a law",
        examples=["lts-gpt2-wikitext103"],
    ),
]

Cursor = Annotated[
    str | None,
    Query(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$", description="`next_cursor` of the previous page"),
]
TargetName = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00]+$",
        description="Id or name of a target of the job",
        examples=["laptop, onnxruntime"],
    ),
]
LatencyBound = Annotated[
    float | None, Query(gt=0, le=MAX_LIMIT, allow_inf_nan=False, description="Milliseconds", examples=[50])
]
MemoryBound = Annotated[
    float | None,
    Query(gt=0, le=MAX_LIMIT, allow_inf_nan=False, description="Peak memory in MB (10^6 B)", examples=[300]),
]


async def _limits(
    max_latency_ms: LatencyBound = None,
    max_memory_mb: MemoryBound = None,
    max_first_token_ms: LatencyBound = None,
    max_token_ms: LatencyBound = None,
) -> Limits:
    return Limits(
        latency_ms=max_latency_ms, memory_mb=max_memory_mb, first_token_ms=max_first_token_ms, token_ms=max_token_ms
    )


LimitsQuery = Annotated[Limits, Depends(_limits)]
"""Limits on candidates, from the query string."""


async def _training_budget(
    train_tokens: Annotated[
        int | None,
        Query(
            ge=MIN_TRAIN_TOKENS,
            le=MAX_TRAIN_TOKENS,
            description="Tokens that a model is to be trained on; only where the job's law knows the budget",
            examples=[10_000_000_000],
        ),
    ] = None,
    train_hours: Annotated[
        TrainHours | None,
        Query(description="Hours that a model is to be trained on `trainer`, instead of tokens", examples=[6]),
    ] = None,
    trainer: Annotated[
        TrainerName | None, Query(description="A worker of `GET /v1/trainers`", examples=["gpu-box"])
    ] = None,
) -> PredictionBudget:
    return PredictionBudget.of(train_tokens, train_hours, trainer)


TrainingBudgetQuery = Annotated[PredictionBudget, Depends(_training_budget)]
"""Training budget of models, from the query string."""

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=MAX_KEY,
        pattern=r"^[\x21-\x7e]+$",
        description="A unique value of your choice. A request with the same value and the same body returns what the "
        "first one created.",
        examples=["6c7a2f1e-5f0a-4f0e-9d4c-2a6a1c9f0b11"],
    ),
]
