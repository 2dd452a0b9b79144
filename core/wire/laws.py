"""Public responses about the scaling law of a job. Shared by the API and the client."""

from __future__ import annotations

from datetime import datetime

from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import View


class LawChoice(View):
    """A scaling law."""

    law: str
    models: int
    """Trained models that it was fitted to, without its prior's."""
    data: str
    split: str
    trained: str
    label: str = ""
    """What its predictions are of, in about six words."""
    relative_to: str | None = None
    """The model to whose perplexity predictions are ratios; None: they are perplexities."""
    updated_at: datetime | None = None
    """When trainings taught it last; None of a shipped law."""


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
    """Of predicted and trained perplexity; None for too few models."""
    rows: tuple[AgreementRow, ...]
    """By rising trained perplexity."""


class JobLawView(View):
    """The scaling laws of a job's search and of its answers, and how far the latter agrees with trainings."""

    job_id: Identifier
    law: LawChoice | None
    """By which it searches, from its beginning to its end. None where no law is about the models of its space."""
    answers: LawChoice | None
    """By which it answers: what its owner's trainings have taught by now, where they did."""
    agreement: LawAgreement | None
    """None while none of the job's candidates has both a predicted and a trained perplexity."""
