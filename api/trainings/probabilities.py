"""`/v1/trainings/{id}/probabilities`: the progress of a supernet's search."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.parameters import TrainingId
from edgefront.api.http.threads import ThreadRoute
from edgefront.core.services.trainings.probabilities import MAX_RECORDS, read_probabilities
from edgefront.core.wire.supernets import ProbabilitiesView, ProbabilityRecord, SearchProgress

router = APIRouter(prefix="/v1/trainings", tags=["trainings"], route_class=ThreadRoute)

_ROW = (0.92, 0.05, 0.03)
_EXAMPLE = ProbabilitiesView(
    training_id="trn_01jv0d1e3m4q3k2n1p0r9s8t74",
    choices=("attention", "feed_forward", "identity"),
    searches=(
        SearchProgress(
            seed=7,
            phase="tuning",
            pattern="(sf)",
            records=(ProbabilityRecord(step=400, temperature=0.4, probabilities=(_ROW, (_ROW[1], _ROW[0], _ROW[2]))),),
        ),
    ),
).model_dump(mode="json")

Records = Annotated[int, Query(ge=1, le=MAX_RECORDS, description="Maximum number of records per seed, evenly spread")]


@router.get(
    "/{training_id}/probabilities",
    operation_id="read_probabilities",
    summary="Block probabilities of a supernet's layers",
    responses={**answer(_EXAMPLE), **errors(404)},
)
def read(training_id: TrainingId, person: Reader, here: Here, records: Records = 100) -> ProbabilitiesView:
    """The probability of each block in each layer over the steps, for each seed. Of a supernet's training only."""
    with here.database.read() as session:
        return read_probabilities(session, person, training_id, records)
