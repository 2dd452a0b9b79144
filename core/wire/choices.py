"""The answer of a job among published models. Shared by the API and the client."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgefront.core.number_formats import KvCache, WeightFormat
from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.candidates import CandidateView
from edgefront.core.wire.jobs import Limits
from edgefront.core.wire.messages import View
from edgefront.core.wire.recommendations import LimitMove


class OtherModelView(View):
    """A published model beside those that were measured."""

    model: str
    licence: str | None
    context_length: int | None
    parameters: int
    """Counted."""
    score: float | None = None
    """None where the table has none."""
    perplexity: float | None = None
    """Predicted, where a quality law covers such models: of one trained as `perplexity_of` says, not of this one."""
    perplexity_of: str = ""


class ChoiceView(View):
    """A published model, a format of its weights and a runtime, as they were measured."""

    model: str
    """Hub id."""
    kind: str
    licence: str | None
    """None: unknown, as `context_length`."""
    context_length: int | None
    """Tokens."""
    score: float
    """Of the weights as they were published, whatever the format here."""
    runtime: str
    weights: WeightFormat
    bits: int
    """Of one weight, without the scales of blocks."""
    kv_cache: KvCache | None
    format_loss: str
    """What is published of the quality that this format costs this model; `unknown` where nothing is."""
    target_id: Identifier
    target: str
    candidate: CandidateView


class OtherChoiceView(View):
    """Another choice within the limits."""

    choice: ChoiceView
    trade: str
    """What it gives and takes against the recommended one, with intervals."""


class OwnTrainingView(View):
    """What a model of one's own would be beside the recommended one: of its shape, or of a better one."""

    sentence: str
    perplexity: float
    """Predicted of the recommended one's shape, trained as `perplexity_of` says."""
    low: float
    high: float
    """Ends of the 95 % interval."""
    perplexity_of: str
    command: str
    """Searches for better shapes around it, in the same place and within the same limits."""


class ChoicesView(View):
    """The best published model × format × runtime within limits, over the targets of a job among published models that
    are of one device and have the same limits.
    """

    job_id: Identifier
    device: Annotated[str, Field(exclude_if=lambda device: not device)] = ""
    """The device, or device class, of this answer, where the job has several answers."""
    score: str
    """TABLE:BENCHMARK."""
    score_about: str
    """Harness and shots of the table."""
    score_source: str
    limits: Limits
    sentence: str
    """The answer in words."""
    note: str = ""
    """What a person should know: that the search continues, or what is not known of a format."""
    measured: str
    """What the figures are of."""
    recommended: ChoiceView | None = None
    runners_up: tuple[OtherChoiceView, ...] = ()
    frontier: tuple[ChoiceView, ...] = ()
    """By falling score; bits of a weight count as an objective beside score, latency and peak memory."""
    nearest: ChoiceView | None = None
    """What comes nearest to the limits, where nothing measured is within."""
    moves: tuple[LimitMove, ...] = ()
    """Limits of which each alone, or all together where one is not enough, bring a choice within."""
    commands: tuple[str, ...] = ()
    """What gets the recommended one, and checks it on the device."""
    own: OwnTrainingView | None = None
    """Where a quality law covers the recommended one."""
    unscored: tuple[OtherModelView, ...] = ()
    """Models that the filters let through and that have no such score: they were not measured."""
    same_architecture: tuple[OtherModelView, ...] = ()
    """Models of the architecture of a measured one, with a lower score: they take the same time and memory."""
    elsewhere: Annotated[tuple[ChoicesView, ...], Field(exclude_if=lambda elsewhere: not elsewhere)] = ()
    """The answers of the job's other devices, each within the limits of its own targets."""

    @property
    def every(self) -> tuple[ChoicesView, ...]:
        """The answers of all devices."""
        return (self, *self.elsewhere)
