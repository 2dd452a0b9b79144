"""The API's views of candidates, from their rows."""

from __future__ import annotations

from collections.abc import Sequence

from edgefront.core.errors import InvalidInput
from edgefront.core.pareto.baseline import Baseline
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs.comparison import versus_baseline
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.stored import RowReader, described
from edgefront.core.states import CandidateState, JobEventKind
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate
from edgefront.core.wire.candidates import CandidateView, TrainedView
from edgefront.core.wire.predictions import PredictedView


def candidate_view(candidate: Candidate, baseline: Baseline | None) -> CandidateView:
    """A candidate; compared with the target's baseline if it is measured and not a baseline itself.

    Rows were validated when they were written; validating thousands of them again would be slow. What has not even the
    form of an architecture or a prediction is left out, and the reason says so.
    """
    reader = RowReader()

    def parents() -> tuple[str, ...]:
        if not isinstance(candidate.parents, list) or not all(isinstance(id_, str) for id_ in candidate.parents):
            raise InvalidInput("parents are no identifiers", field="parents")
        return tuple(candidate.parents)

    return CandidateView.model_construct(
        **{name: getattr(candidate, name) for name in _AS_STORED},
        architecture=reader.read(lambda: described(candidate.architecture)) or {},
        predicted=reader.read(lambda: _predicted(candidate.predicted)),
        parents=reader.read(parents) or (),
        state=CandidateState(candidate.state),
        reason=reader.note(candidate.reason),
        versus_baseline=versus_baseline(candidate, baseline),
    )


_AS_STORED = tuple(
    CandidateView.model_fields.keys() - {"architecture", "predicted", "parents", "state", "versus_baseline", "reason"}
)


def predicted_of(stored: Document | None) -> Document:
    """A candidate's stored prediction; empty where that is nothing, or cannot be read."""
    return stored if isinstance(stored, dict) else {}


def _predicted(stored: Document | None) -> PredictedView | None:
    if stored is None:
        return None
    if unknown := stored.keys() - PredictedView.model_fields.keys():
        raise InvalidInput(f"predicted has {', '.join(sorted(unknown))}", field="predicted")
    return PredictedView.model_construct(**{**stored, "label": label_of(stored)})


def candidate_entry(candidate: Candidate) -> Entry:
    """An event with the candidate's state; its figures are read where they are."""
    data = {
        "id": candidate.id,
        "number": candidate.number,
        "role": candidate.role,
        "state": candidate.state,
        "reason": candidate.reason,
    }
    return Entry(JobEventKind.CANDIDATE, data, candidate.target_id)


def trained_views(trained: Sequence[Trained]) -> tuple[TrainedView, ...]:
    """What candidates scored on held-out text once they were trained."""
    return tuple(
        TrainedView(
            candidate_id=score.candidate_id,
            training_id=score.training_id,
            dataset=score.dataset,
            split=score.split,
            recipe=score.recipe,
            perplexity=score.value,
        )
        for score in trained
    )
