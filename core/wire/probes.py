"""Probes: a few small trainings that make the answer of a job surer. Shared by the API and the client."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt

from edgefront.core.states import ProbeState, TrainingState
from edgefront.core.wire.agent import Identifier, Name
from edgefront.core.wire.jobs import NO_LIMITS, Limits
from edgefront.core.wire.messages import Request, View
from edgefront.core.wire.trainings import Licence, Requirements, Text, TrainingBudget

MAX_PROBES = 16


class ProbeRequest(Request):
    """How many trainings, how each is made, and for which answer."""

    trainings: Annotated[StrictInt, Field(ge=1, le=MAX_PROBES)] = 5
    target: Name | None = None
    """Id or name; the job's first if absent."""
    limits: Limits = NO_LIMITS
    """Within which the answer is asked for; those that are not given are the target's."""
    dataset: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")] | None = None
    """As of a training: the recipe's own if absent."""
    recipe: Text | None = None
    """As of a training, one for all."""
    overrides: Annotated[dict[str, Any], Field(max_length=64)] = Field(default_factory=dict)
    licence: Licence | None = None
    """Of the weights, as of a training."""
    budget: TrainingBudget = TrainingBudget()
    """Of each training."""
    requires: Requirements = Requirements()
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 63)] = 0
    dry_run: StrictBool = False
    """Plan alone: nothing is stored or trained."""


class ProbeRatio(View):
    """Predicted perplexity of the recommended model by that of the model it is compared with."""

    candidate_id: Identifier
    reference_id: Identifier
    ratio: float
    low: float
    high: float
    """The ends of the 95 % interval."""
    law: str
    label: str = ""
    """What it is of, in about six words."""


class ProbeAnswer(View):
    """What the job recommends, and the ratio on which that depends."""

    sentence: str
    ratio: ProbeRatio | None
    """None where nothing measured is within the limits."""


class ProbeTraining(View):
    """A candidate that is trained."""

    candidate_id: Identifier
    number: int
    name: str
    """Its shape in words."""
    decoder_parameters: int
    seconds: float | None
    """Estimated from what the pool trained before on such a device; None if nothing."""
    training_id: Identifier | None = None
    """None in a plan."""
    state: TrainingState | None = None
    """None in a plan, and of a training that was deleted."""


class ProbePlan(View):
    """Which candidates are trained, and what that is expected to tell."""

    target_id: Identifier
    target: str
    limits: Limits
    dataset: str
    recipe: str
    tokens: int
    """Of each training."""
    seconds: float | None
    """Of all trainings, one after another; None where that cannot be estimated."""
    before: ProbeAnswer
    expected: ProbeRatio
    """The same ratio with the interval that is expected after the trainings. A law of other data may state a narrower
    one before."""
    trainings: tuple[ProbeTraining, ...]


class ProbeView(ProbePlan):
    """A plan, or trainings that were started by it, and the answer after them."""

    id: Identifier | None
    """None of a plan."""
    job_id: Identifier
    state: ProbeState
    law: str | None = None
    """The law that the trainings refined, and to which the job was moved."""
    reason: str | None = None
    """Why it failed, or which trainings are not in the law."""
    after: ProbeAnswer | None = None
    """Once the job has moved."""
    created_at: datetime | None = None
    finished_at: datetime | None = None
    """When the job's move was requested."""
