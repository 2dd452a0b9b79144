"""Public requests and responses about the quality law of a job. Shared by the API and the client."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StrictInt

from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import Request, View


class LawRequest(Request):
    """The quality law that a job is to be moved to."""

    law: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f]+$")]
    """A name, or NAME@VERSION."""
    version: Annotated[StrictInt, Field(ge=1, le=999_999)] | None = None
    """Of a law that trainings have refined; the newest if absent."""


class LawChoice(View):
    """A version of a law."""

    law: str
    """NAME@VERSION, or the name of a law that comes along."""
    name: str
    version: int
    """0 for a law that comes along."""
    models: int
    """Trained models that it was fitted to, without its prior's."""
    data: str
    split: str
    trained: str
    label: str = ""
    """What its predictions are of, in about six words."""
    relative_to: str | None = None
    """The model to whose perplexity predictions are ratios; None: they are perplexities."""
    created_at: datetime | None = None


class AgreementRow(View):
    """A candidate's predicted and trained perplexity."""

    candidate_id: Identifier
    target: str
    number: int
    name: str
    """Its shape in words."""
    training_id: Identifier | None
    predicted: float
    low: float
    high: float
    """The ends of the 95 % interval."""
    trained: float
    held: bool
    """Whether the interval contains the trained perplexity."""
    learnt_from: bool
    """The law was fitted to this training too: it is predicted without it (leave-one-out)."""


class LawAgreement(View):
    """How far predictions agree with trainings of the job's candidates that were alike (data, recipe, budget)."""

    dataset: str
    split: str
    recipe: str
    alike: bool
    """Whether the models of the law were trained so too. Otherwise only the order and the ratio tell anything."""
    models: int
    held: int
    ratio: float
    """Median of trained by predicted perplexity."""
    held_after_shift: int
    """Intervals that hold after that ratio is taken out."""
    spearman: float | None
    """Of predicted and trained perplexity; None for so few models that it tells nothing."""
    rows: tuple[AgreementRow, ...]
    """By rising trained perplexity."""


class JobLawView(View):
    """The quality law that a job began with or was moved to, newer ones, and how far it agrees with trainings."""

    job_id: Identifier
    law: LawChoice | None
    """None where no law is about the models of the job's space."""
    moving_to: str | None
    """The law whose predictions are being computed."""
    note: str = ""
    """A warning where the job is being moved, or was moved last, to a law of models that were trained on other data or
    otherwise."""
    newer: tuple[LawChoice, ...]
    """Newer versions; for a law that comes along, of every law that trainings have refined from it."""
    agreement: LawAgreement | None
    """None while none of the job's candidates has been trained to a perplexity."""
