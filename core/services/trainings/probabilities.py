"""Progress of a supernet's search: the reported block probabilities."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.errors import NotFound
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.trainings.plan import evenly
from edgefront.core.services.trainings.queries import log as training_log
from edgefront.core.states import TrainingKind
from edgefront.core.store.sql import Document
from edgefront.core.supernet.settings import CHOICES
from edgefront.core.wire.supernets import ProbabilitiesView, ProbabilityRecord, SearchProgress

MAX_RECORDS = 1000


def read_probabilities(
    session: Session, principal: Principal, training_id: str, records: int = 100
) -> ProbabilitiesView:
    """Reads at most this many records per seed, spread evenly over its steps.

    NotFound if there is no such training, it is another owner's, or it is not a supernet's.
    """
    training = training_of(session, principal, training_id)
    if training.kind != TrainingKind.SUPERNET:
        raise NotFound(f"training {training.id} trains one model: only a supernet has probabilities")
    by_seed: dict[int, list[Document]] = {}
    for _, metric in training_log.metrics(session, training.id):
        if "probabilities" in metric.get("extra", {}):
            by_seed.setdefault(metric["extra"]["seed"], []).append(metric)
    searches = tuple(_progress(seed, metrics, records) for seed, metrics in by_seed.items())
    return ProbabilitiesView(training_id=training.id, choices=CHOICES, searches=searches)


def _progress(seed: int, metrics: Sequence[Document], records: int) -> SearchProgress:
    last = metrics[-1]["extra"]
    return SearchProgress(
        seed=seed,
        phase=last["phase"],
        pattern=last["pattern"],
        expected_ms=last.get("expected_ms"),
        records=tuple(
            ProbabilityRecord(
                step=metric["step"],
                temperature=metric["extra"]["temperature"],
                probabilities=tuple(tuple(row) for row in metric["extra"]["probabilities"]),
            )
            for metric in evenly(metrics, records)
        ),
    )
