"""`/v1/quality/laws`."""

from __future__ import annotations

from fastapi import APIRouter

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Anyone, Here
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import LawName
from edgefront.core.services.quality import laws
from edgefront.core.wire.service import QualityLawView

router = APIRouter(prefix="/v1/quality/laws", tags=["catalogue"], route_class=JsonRoute)


@router.get(
    "", operation_id="list_quality_laws", summary="List quality laws", responses=answer([example("quality_law")])
)
def list_laws(_asker: Anyone, here: Here) -> list[QualityLawView]:
    """Those that come along, and the newest version of each that trainings of this service have refined."""
    return laws.views(here.database)


@router.get(
    "/{name}",
    operation_id="get_quality_law",
    summary="What a quality law predicts, and where it holds",
    responses={**answer(example("quality_law")), **errors(404)},
)
def get_law(name: LawName, _asker: Anyone, here: Here) -> QualityLawView:
    return laws.law_view(here.database, name)
