"""Events of jobs and trainings with typed data: one class a kind.

A kind, or a form of its data, that this release does not know is an `OtherEvent`: a client outlives newer services.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from edgefront.core.states import CandidateRole, CandidateState, JobState, LaunchState, TargetState, TrainingState
from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import View
from edgefront.core.wire.trainings import MetricView, Wanted


class Data(View):
    """Of an event. Fields that are not known stay."""

    model_config = ConfigDict(frozen=True, extra="allow")


class _Event(View):
    """`number` rises by one within the log."""

    number: int
    created_at: datetime


class OtherEvent(_Event):
    """Of a kind, or with data, that this release does not know."""

    kind: str
    target_id: Identifier | None = None
    data: dict[str, Any]


class _JobEvent(_Event):
    target_id: Identifier | None


class JobStateData(Data):
    state: JobState
    reason: str | None = None


class JobStateEvent(_JobEvent):
    """The job has another state."""

    kind: Literal["job_state"]
    data: JobStateData


class TargetStateData(Data):
    state: TargetState
    note: str = ""


class TargetStateEvent(_JobEvent):
    """A target has another state."""

    kind: Literal["target_state"]
    data: TargetStateData


class GenerationData(Data):
    number: int
    candidates: int
    """How many were proposed."""


class GenerationEvent(_JobEvent):
    """A generation begins."""

    kind: Literal["generation"]
    data: GenerationData


class CandidateData(Data):
    id: Identifier
    number: int
    role: CandidateRole
    state: CandidateState
    reason: str | None = None


class CandidateEvent(_JobEvent):
    """A candidate was proposed (`waiting`) or has another state; its figures are in its `CandidateView`."""

    kind: Literal["candidate"]
    data: CandidateData


class FrontierData(Data):
    joined: tuple[Identifier, ...]
    left: tuple[Identifier, ...]
    size: int
    hypervolume: float


class FrontierEvent(_JobEvent):
    """The frontier of a target has moved."""

    kind: Literal["frontier"]
    data: FrontierData


class LawData(Data):
    law: str
    former: str | None = None
    candidates: int | None = None
    """How many were predicted again."""
    error: str | None = None
    """Why the job kept its law."""


class LawEvent(_JobEvent):
    """The job has moved to another quality law, or could not."""

    kind: Literal["law"]
    data: LawData


class LaunchData(Data):
    launch_id: Identifier
    candidate_ids: tuple[Identifier, ...]
    outcome: LaunchState
    """Done, infeasible or failed as its agent reported it; implausible if that cannot be true."""
    reason: str | None = None
    attempts: int = 1
    final: bool = True
    """False: it is tried again."""


class LaunchEvent(_JobEvent):
    """A launch was reported."""

    kind: Literal["launch"]
    data: LaunchData


class StateData(Data):
    state: TrainingState
    wanted: Wanted
    reason: str | None = None
    note: str = ""


class StateEvent(_Event):
    """The training has another state."""

    kind: Literal["state"]
    data: StateData


class MetricEvent(_Event):
    """The run has reported figures of a step."""

    kind: Literal["metric"]
    data: MetricView


class StepData(Data):
    step: int


class RewoundEvent(_Event):
    """Metrics behind this step are taken back: they come again."""

    kind: Literal["rewound"]
    data: StepData


class CheckpointEvent(_Event):
    """There is a checkpoint of this step."""

    kind: Literal["checkpoint"]
    data: StepData


class NoteData(Data):
    note: str


class NoteEvent(_Event):
    """What a person should know."""

    kind: Literal["note"]
    data: NoteData


class ScoreData(Data):
    dataset: str
    split: str
    metric: str
    value: float


class EvaluationEvent(_Event):
    """The trained model was scored."""

    kind: Literal["evaluation"]
    data: ScoreData


_KnownJobEvent = Annotated[
    JobStateEvent | TargetStateEvent | GenerationEvent | CandidateEvent | FrontierEvent | LawEvent | LaunchEvent,
    Field(discriminator="kind"),
]
_KnownTrainingEvent = Annotated[
    StateEvent | MetricEvent | RewoundEvent | CheckpointEvent | NoteEvent | EvaluationEvent,
    Field(discriminator="kind"),
]
JobEvent = _KnownJobEvent | OtherEvent
TrainingEvent = _KnownTrainingEvent | OtherEvent

_Known = TypeVar("_Known")
_JOB: TypeAdapter[JobEvent] = TypeAdapter(_KnownJobEvent)
_TRAINING: TypeAdapter[TrainingEvent] = TypeAdapter(_KnownTrainingEvent)


def read_job_event(data: str) -> JobEvent:
    """The event that the data of a message of `/v1/jobs/{id}/events` holds."""
    return _read(_JOB, data)


def read_training_event(data: str) -> TrainingEvent:
    """The event that the data of a message of `/v1/trainings/{id}/events` holds."""
    return _read(_TRAINING, data)


def _read(adapter: TypeAdapter[_Known], data: str) -> _Known | OtherEvent:
    try:
        return adapter.validate_json(data)
    except ValidationError:
        return OtherEvent.model_validate_json(data)
