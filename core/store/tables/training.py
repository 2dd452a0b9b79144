"""Trainings by the pool of workers, logs of the trainings, and scores of trained architectures."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.common.states import TrainingCommand, TrainingEventKind, TrainingKind, TrainingState
from edgefront.core.store.tables.base import AutoId, Base, BigInt, Json, UtcDateTime, new_id, state_type

_TRAINED = ("dataset", "recipe_name", "recipe", "budget", "seed", "device", "gpus", "queue")
"""Columns that are null only for an import."""
_LIVE = text("state IN ('starting', 'training', 'evaluating')")


class Training(Base):
    """Training of an architecture on a data set by a recipe, training of a supernet, or an imported model."""

    __tablename__ = "training"
    __table_args__ = (
        # One request may create several trainings, one for each point of a frontier.
        UniqueConstraint("owner", "idempotency_key", "position"),
        UniqueConstraint("owner", "import_digest"),
        CheckConstraint(f"kind = 'import' OR ({' AND '.join(f'{name} IS NOT NULL' for name in _TRAINED)})", "trained"),
        Index("ix_training_state", "state", "queue", "turn"),
        Index("ix_training_worker", "worker", postgresql_where=_LIVE, sqlite_where=_LIVE),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("trn"))
    owner: Mapped[str] = mapped_column(String(100), index=True)
    name: Mapped[str] = mapped_column(String(100))
    kind: Mapped[TrainingKind] = mapped_column(state_type(TrainingKind, 10, "kind"))
    request: Mapped[dict[str, Any]] = mapped_column(Json)  # read by core.services.stored
    request_digest: Mapped[str] = mapped_column(String(64))
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    position: Mapped[int] = mapped_column(default=0)  # position among the trainings of one request
    import_digest: Mapped[str | None] = mapped_column(String(64))  # digest of an import's weights and tokenizer
    # The trained architecture. `digest` is the candidate's digest; `trained` has the vocabulary of the data instead.
    architecture: Mapped[dict[str, Any]] = mapped_column(Json)  # canonical description; empty for a supernet
    digest: Mapped[str | None] = mapped_column(String(64), index=True)
    decoder_parameters: Mapped[int | None] = mapped_column(BigInt)
    trained: Mapped[dict[str, Any] | None] = mapped_column(Json)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="SET NULL"), index=True)
    target_id: Mapped[str | None] = mapped_column(ForeignKey("target.id", ondelete="SET NULL"), index=True)
    candidate_id: Mapped[str | None] = mapped_column(ForeignKey("candidate.id", ondelete="SET NULL"), index=True)
    # Data, recipe and budget of the training; None for an import.
    dataset: Mapped[str | None] = mapped_column(String(200))
    dataset_digest: Mapped[str | None] = mapped_column(String(64))  # None until the data is prepared
    recipe_name: Mapped[str | None] = mapped_column(String(64))
    recipe: Mapped[dict[str, Any] | None] = mapped_column(
        Json
    )  # core.training.recipes.recipe.Recipe, overrides included
    budget: Mapped[dict[str, Any] | None] = mapped_column(Json)  # core.schemas.trainings.TrainingBudget
    supernet: Mapped[dict[str, Any] | None] = mapped_column(Json)  # settings of core.training.supernet
    seed: Mapped[int | None] = mapped_column(BigInt)
    # Requirements on the worker; None for an import.
    device: Mapped[str | None] = mapped_column(String(10))  # cpu, cuda
    gpus: Mapped[int | None]
    memory_bytes: Mapped[int | None] = mapped_column(BigInt)  # memory of each GPU, or of the machine
    queue: Mapped[str | None] = mapped_column(String(10))
    turn: Mapped[float | None]  # lowest first: services.turns
    # Progress.
    state: Mapped[TrainingState] = mapped_column(state_type(TrainingState, 10))
    wanted: Mapped[TrainingCommand] = mapped_column(state_type(TrainingCommand, 10, "wanted"))
    reason: Mapped[str | None] = mapped_column(Text)
    note: Mapped[str] = mapped_column(Text, default="")
    attempts: Mapped[int] = mapped_column(default=0)  # failures in a row without a new checkpoint
    failed_at_checkpoint: Mapped[int | None] = mapped_column(BigInt)  # the newest checkpoint at the last failure
    fence: Mapped[int] = mapped_column(default=0)  # fencing token: rises with every claim
    worker: Mapped[str | None] = mapped_column(String(200))
    gpu_numbers: Mapped[list[int]] = mapped_column(Json, default=list)  # GPUs of the worker that this training uses
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    running_since: Mapped[datetime | None] = mapped_column(UtcDateTime)  # start of the process; None before the start
    step: Mapped[int] = mapped_column(BigInt, default=0)
    steps: Mapped[int] = mapped_column(BigInt, default=0)
    checkpoint: Mapped[int | None] = mapped_column(BigInt)  # step of the newest checkpoint
    tokens: Mapped[int] = mapped_column(BigInt, default=0)
    seconds: Mapped[float] = mapped_column(default=0.0)  # training time over all starts
    seconds_left: Mapped[float | None]
    last_metric: Mapped[dict[str, Any] | None] = mapped_column(Json)  # core.schemas.trainings.MetricView
    result: Mapped[dict[str, Any] | None] = mapped_column(Json)  # result.json
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_event: Mapped[int] = mapped_column(default=0)


class TrainingEvent(Base):
    """Event in the log of a training. Events are numbered from 1 without gaps, in commit order."""

    __tablename__ = "training_event"
    __table_args__ = (UniqueConstraint("training_id", "number"),)

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    training_id: Mapped[str] = mapped_column(ForeignKey("training.id", ondelete="CASCADE"))
    number: Mapped[int]
    kind: Mapped[TrainingEventKind] = mapped_column(state_type(TrainingEventKind, 20, "kind"))
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class TrainingMetric(Base):
    """One metrics report of a training: a line of the file metrics.jsonl."""

    __tablename__ = "training_metric"
    __table_args__ = (UniqueConstraint("training_id", "step"),)

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    training_id: Mapped[str] = mapped_column(ForeignKey("training.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(BigInt)
    data: Mapped[dict[str, Any]] = mapped_column(Json)  # core.schemas.trainings.MetricView


class Evaluation(Base):
    """Score of an owner's trained architecture. The row stays when the training is deleted."""

    __tablename__ = "evaluation"
    __table_args__ = (
        UniqueConstraint("training_id", "dataset", "split", "metric"),
        Index("ix_evaluation_digest", "owner", "digest", "metric"),
        Index("ix_evaluation_recipe_key", "owner", "recipe_key"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("evl"))
    owner: Mapped[str] = mapped_column(String(100))
    digest: Mapped[str] = mapped_column(String(64))
    training_id: Mapped[str | None] = mapped_column(ForeignKey("training.id", ondelete="SET NULL"))
    recipe_key: Mapped[str | None] = mapped_column(String(16))  # recipe and data; None: refines no scaling law
    dataset: Mapped[str] = mapped_column(String(200))
    split: Mapped[str] = mapped_column(String(40))
    metric: Mapped[str] = mapped_column(String(64))
    value: Mapped[float]
    details: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class OwnerLaw(Base):
    """A scaling law or pruning predictor of one owner. A scaling law is replaced whenever a training of the same kind
    ends. A pruning predictor never changes, because the name is a hash of the content.
    """

    __tablename__ = "owner_law"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    base: Mapped[str] = mapped_column(String(64))  # name of the shipped prior law; empty for a pruning predictor
    document: Mapped[str] = mapped_column(Text)  # JSON of core.quality.stored
    digest: Mapped[str] = mapped_column(String(64))  # SHA-256 of the document
    summary: Mapped[dict[str, Any]] = mapped_column(
        Json
    )  # core.schemas.service.QualityLawView, read without the document
    left_out: Mapped[list[dict[str, Any]]] = mapped_column(Json)  # services.quality.learning.LeftOut
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
