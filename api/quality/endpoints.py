"""`/v1/quality/laws`."""

from __future__ import annotations

from fastapi import APIRouter

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import LawName
from edgefront.core.services.quality import laws
from edgefront.core.wire.service import QualityLawView

router = APIRouter(prefix="/v1/quality/laws", tags=["catalogue"], route_class=JsonRoute)


@router.get("", summary="List quality laws", responses=answer([example("quality_law")]))
def list_quality_laws(person: Reader, here: Here) -> list[QualityLawView]:
    """The shipped ones, and what your own trainings and imported models taught."""
    return laws.views(here.database, person)


@router.get(
    "/{name}",
    summary="What a quality law predicts, and where it holds",
    responses={**answer(example("quality_law")), **errors(404)},
)
def get_quality_law(name: LawName, person: Reader, here: Here) -> QualityLawView:
    return laws.law_view(here.database, person, name)
