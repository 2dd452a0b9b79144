"""`/v1/identifiers`: what a short identifier stands for."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.json_body import JsonRoute
from edgefront.core.services.access import identifiers
from edgefront.core.wire.service import IdentifiedKind, IdentifierView

router = APIRouter(prefix="/v1/identifiers", tags=["identifiers"], route_class=JsonRoute)


@router.get(
    "",
    summary="The identifier that a part of it stands for",
    responses={**answer(example("identifier")), **errors(404)},
)
def find_identifier(
    kind: Annotated[IdentifiedKind, Query(description="What it identifies")],
    text: Annotated[
        str,
        Query(
            min_length=1,
            max_length=100,
            pattern=r"^[^\x00]+$",
            description="Its first or last characters, as long as only one has them, or `last` for the newest. Of a "
            "device also its name",
            examples=["9s8t7v"],
        ),
    ],
    person: Reader,
    here: Here,
) -> IdentifierView:
    """Of what the caller may see. Invalid where several match: the answer lists them."""
    with here.database.read() as session:
        return IdentifierView(id=identifiers.find(session, person, kind, text))
