"""`report.json` of `edgefront report`: a job's answer with all its data."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.candidates import CandidateView, FrontierView, LaunchView
from edgefront.core.schemas.jobs import JobView, TargetView
from edgefront.core.schemas.messages import View
from edgefront.core.schemas.recommendations import ChoicesView, RecommendationView
from edgefront.core.schemas.service import DeviceView

MAX_REPORT_BYTES = 64 << 20
"""Maximum size of a report file, bytes. A launch or a candidate takes about 2 kB."""


class ReportedTarget(View):
    """The answer and the frontier of one target."""

    recommendation: RecommendationView
    frontier: FrontierView


class ReportedCommand(View):
    """Command that reproduces a result; several commands stand one per line."""

    title: str
    command: str


class Report(View):
    """The content of a report: views of the service, and the launches behind their figures."""

    format: Literal["edgefront-report"] = "edgefront-report"
    version: Literal[1] = 1
    made_at: datetime
    client: Annotated[str, Field(max_length=100)]
    """Version of the client that wrote the report; `service` is the version of the service."""
    service: Annotated[str, Field(max_length=100)]
    job: JobView
    choices: ChoicesView | None = None
    """The answers of a job among published models; None for other jobs."""
    targets: Annotated[tuple[ReportedTarget, ...], Field(max_length=64)] = ()
    """Answer and frontier of each target; empty for a job among published models."""
    devices: Annotated[tuple[DeviceView, ...], Field(max_length=1000)] = ()
    """Devices of the measurements in their present state, without deleted devices."""
    launches: Annotated[dict[Identifier, tuple[LaunchView, ...]], Field(max_length=10_000)]
    """Id of each shown candidate → its launches with raw samples, oldest first."""
    commands: Annotated[tuple[ReportedCommand, ...], Field(max_length=200)] = ()

    @property
    def recommended(self) -> tuple[tuple[TargetView, CandidateView], ...]:
        """Returns the recommended model of each target, or of each device for a job among published models."""
        by_id = {target.id: target for target in self.job.targets}
        chosen = [each.recommendation.recommended for each in self.targets]
        for view in () if self.choices is None else self.choices.every:
            if view.recommended is not None:
                chosen.append(view.recommended.candidate)
        return tuple(
            (by_id[candidate.target_id], candidate)
            for candidate in chosen
            if candidate is not None and candidate.target_id in by_id
        )

    @property
    def shown(self) -> tuple[CandidateView, ...]:
        """Returns each shown candidate once, recommended ones first."""
        each: list[CandidateView | None] = [candidate for _, candidate in self.recommended]
        for target in self.targets:
            view = target.recommendation
            each += [view.baseline, view.surest, *(other.candidate for other in view.runners_up), view.nearest]
            each += [*target.frontier.points, *target.frontier.baseline]
        for answer in () if self.choices is None else self.choices.every:
            others = [other.choice for other in answer.runners_up]
            beside = [choice for choice in (answer.surest, answer.nearest) if choice is not None]
            each += [choice.candidate for choice in (*others, *answer.frontier, *beside)]
        return tuple({candidate.id: candidate for candidate in each if candidate is not None}.values())
