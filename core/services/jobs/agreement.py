"""Predicted against measured on a target of a job: how far its predictions can be trusted, and where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from edgefront.core.prediction.agreement import Agreement, Checked
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.store.sql import Document
from edgefront.core.units import rounded
from edgefront.core.wire.predictions import AgreementView, CheckedView, JobAgreementView, PredictedView, SpanView

LATEST = 500
"""Measured candidates that are looked at."""
WIDENED = 1.05
"""Widening below this is not worth a word."""


@dataclass(frozen=True)
class Known:
    """What was read of a target."""

    job_id: str
    target_id: str
    target: str
    candidates: Sequence[rows.CheckedCandidate]

    def agreement(self) -> JobAgreementView:
        """Computed without a session."""
        checked = [
            (candidate, candidate.predicted)
            for candidate in self.candidates
            if candidate.predicted and candidate.predicted.get("latency_ms")
        ]
        if not checked:
            return self._view(None, None, hard=False, sentence="")
        latency = Agreement.of(
            [_checked(candidate.id, said, "latency", "ms", candidate.latency_ms) for candidate, said in checked]
        )
        memory = Agreement.of(
            [_checked(candidate.id, said, "memory", "bytes", candidate.memory_bytes) for candidate, said in checked]
        )
        newest = checked[0][1]
        widening, memory_widening = newest.get("widening", 1.0), newest.get("memory_widening", 1.0)
        return self._view(
            _agreement_view(latency, widening),
            _agreement_view(memory, memory_widening),
            hard=latency.hard,
            sentence=_sentence(latency, memory, widening),
            points=checked,
        )

    def _view(
        self,
        latency: AgreementView | None,
        memory: AgreementView | None,
        *,
        hard: bool,
        sentence: str,
        points: Sequence[tuple[rows.CheckedCandidate, Document]] = (),
    ) -> JobAgreementView:
        return JobAgreementView(
            job_id=self.job_id,
            target_id=self.target_id,
            target=self.target,
            latency=latency,
            memory=memory,
            hard_to_predict=hard,
            sentence=sentence,
            points=tuple(
                CheckedView(
                    id=candidate.id,
                    number=candidate.number,
                    latency_ms=candidate.latency_ms,
                    memory_bytes=candidate.memory_bytes,
                    predicted=PredictedView.model_construct(**said),
                )
                for candidate, said in points
            ),
        )


def read(session: Session, principal: Principal, job_id: str, target: str | None = None) -> Known:
    """What is known of a target (by id or name; None: the job's first). NotFound if there is no such job or target."""
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    return Known(job.id, row.id, row.name, rows.measured_with_predictions(session, row.id, LATEST))


def _checked(id_: str, predicted: Document, name: str, unit: str, measured: float) -> Checked:
    value, low, high = (predicted[f"{name}_{part}{unit}"] for part in ("", "low_", "high_"))
    return Checked(id_, value, low, high, float(measured))


def _agreement_view(agreement: Agreement, widening: float) -> AgreementView:
    return AgreementView(
        measured=agreement.measured,
        held=agreement.held,
        error=agreement.error,
        widening=widening,
        spans=tuple(
            SpanView(low=span.low, high=span.high, measured=span.measured, held=span.held, error=span.error)
            for span in agreement.spans
        ),
        missed=agreement.missed,
    )


def _sentence(latency: Agreement, memory: Agreement, widening: float) -> str:
    parts = ["This device is hard to predict."] if latency.hard else []
    parts.append(
        f"Within the 95 % interval that was predicted before are {latency.held} of {latency.measured} latencies "
        f"(mean error {100 * latency.error:.1f} %) and {memory.held} of {memory.measured} peak memories "
        f"({100 * memory.error:.1f} %)."
    )
    if latency.hard and len(latency.spans) > 1:
        where = [
            f"{100 * span.error:.0f} % from {rounded(span.low, 3)} to {rounded(span.high, 3)} ms "
            f"({span.held} of {span.measured} within)"
            for span in latency.spans
        ]
        parts.append(f"Mean error by predicted latency: {', '.join(where)}.")
    if widening >= WIDENED:
        parts.append(f"Audits have made the intervals of latency {rounded(widening, 3)} times as wide.")
    return " ".join(parts)
