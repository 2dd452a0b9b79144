"""`/v1/quality/laws`."""

from __future__ import annotations

from fastapi import APIRouter

from edgefront.api.docs import examples
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Anyone
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import CatalogueName
from edgefront.core.errors import NotFound
from edgefront.core.quality.shipped import NAMES, law_named, shipped_laws
from edgefront.core.quality.stored import summary
from edgefront.core.wire.service import QualityLawView

router = APIRouter(prefix="/v1/quality/laws", tags=["catalogue"], route_class=JsonRoute)


@router.get("", operation_id="list_quality_laws", summary="List quality laws", responses=answer([examples.QUALITY_LAW]))
def list_laws(_asker: Anyone) -> list[QualityLawView]:
    return [QualityLawView.model_validate(summary(law)) for law in shipped_laws().values()]


@router.get(
    "/{name}",
    operation_id="get_quality_law",
    summary="What a quality law predicts, and where it holds",
    responses={**answer(examples.QUALITY_LAW), **errors(404)},
)
def get_law(name: CatalogueName, _asker: Anyone) -> QualityLawView:
    if name not in NAMES:
        raise NotFound(f"no quality law {name!r}; there are {', '.join(NAMES)}")
    return QualityLawView.model_validate(summary(law_named(name)))
