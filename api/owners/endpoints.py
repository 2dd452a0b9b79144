"""`/v1/owners`: what each owner may have at once, and how often its turn comes."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Query

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import Admin, Here, Person
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import OwnerName
from edgefront.core.services.jobs import owners
from edgefront.core.wire.agent import Name
from edgefront.core.wire.owners import OwnerRequest, OwnerView

router = APIRouter(prefix="/v1/owners", tags=["access"], route_class=JsonRoute)


@router.get("", operation_id="list_owners", summary="List owners", responses=answer([example("owner_listed")]))
def list_owners(
    admin: Admin,
    here: Here,
    after: Annotated[Name | None, Query(description="The last owner of the previous page")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[OwnerView]:
    """Owners by name, with their bounds and what they use of them."""
    with here.database.read() as session:
        return owners.list_owners(session, admin, here.settings, after=after, limit=limit)


@router.get(
    "/{owner}",
    operation_id="get_owner",
    summary="Get an owner's bounds",
    responses={**answer(example("owner")), **errors(404)},
)
async def get_owner(owner: OwnerName, person: Person, here: Here) -> OwnerView:
    """What the owner may have at once, what it has, and what admins have changed. For the owner and for admins."""
    return await here.slow.run(person.owner, partial(owners.get_owner, here.database, person, owner, here.settings))


@router.patch(
    "/{owner}",
    operation_id="set_owner_bounds",
    summary="Set an owner's bounds",
    responses=answer(example("owner")),
)
async def set_bounds(
    owner: OwnerName,
    request: Annotated[OwnerRequest, Body(openapi_examples=sample(example("owner_request")))],
    admin: Admin,
    here: Here,
) -> OwnerView:
    """Sets what is given; null goes back to the settings of the service; what is left out stays. What is under way
    continues: a bound counts for what is requested from then on.
    """
    work = partial(owners.set_bounds, here.database, admin, owner, request, here.settings)
    return await here.slow.run(admin.owner, work)
