"""FastAPI dependencies of endpoints: the application's shared objects, and the authenticated caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import Depends, Request
from sqlalchemy.orm import Session

from edgefront.api.http.credentials import ENROLMENT_PREFIX, Credential, Credentials
from edgefront.api.http.metrics import Metrics
from edgefront.api.http.routes import SlowWork
from edgefront.api.polling import Feeds, WaitingRoom
from edgefront.core.common.errors import Forbidden, Unauthenticated
from edgefront.core.common.states import KeyRole
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

VERSION = version("edgefront-lm")
"""Version of the running release."""

Result = TypeVar("Result")


@dataclass
class Context:
    """The objects that all endpoints share. Each running application has one `Context`."""

    settings: Settings
    database: Database
    credentials: Credentials
    room: WaitingRoom
    feeds: Feeds
    metrics: Metrics
    slow: SlowWork
    fits: Fits
    """Cache of fitted predictors of latency and memory, valid until a new measurement arrives."""
    checks: anyio.CapacityLimiter
    """Limits the number of threads of readiness checks, because a check may hang."""
    loop: asyncio.AbstractEventLoop

    def changed(self) -> None:
        """Notifies this process's pollers (long polls, event streams) that a commit may concern them. Thread-safe."""
        self.room.notify()
        self.feeds.notify()

    def command(
        self, change: Callable[[Session, Principal, str, datetime], Result], principal: Principal, id_: str
    ) -> Result:
        """Changes a job or training in a transaction and notifies pollers. Returns the result of `change`."""
        with self.database.write() as session:
            result = change(session, principal, id_, self.database.now(session))
        self.changed()
        return result

    def call_device(self, device_id: str) -> None:
        """Ends a device's wait for work after the device's state has changed. Thread-safe."""
        self.loop.call_soon_threadsafe(self.room.call, (key_of_device(device_id),))

    def stop(self) -> None:
        """Ends long polls and event streams, so that the server can stop."""
        self.credentials.close()
        self.room.close()
        self.feeds.close()


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _anyone(request: Request) -> Principal:
    principal: Principal | None = getattr(request.state, "principal", None)
    if principal is None:
        raise Unauthenticated("this needs an API key, not an enrolment token")
    return principal


def _of_role(*roles: KeyRole) -> Any:
    """Returns a FastAPI dependency that returns the request's principal, and raises `Forbidden` for other roles."""

    async def principal_of(principal: Annotated[Principal, Depends(_anyone)]) -> Principal:
        if principal.role not in roles:
            raise Forbidden(f"this needs a key of the role {' or '.join(roles)}, not {principal.role}")
        return principal

    return Depends(principal_of)


async def _device(principal: Annotated[Principal, Depends(_anyone)]) -> str:
    if principal.role != KeyRole.AGENT or principal.device_id is None:
        raise Forbidden(f"this needs an agent's credential, not a key of the role {principal.role}")
    return principal.device_id


async def _enrolment_token(request: Request) -> str:
    credential: Credential = request.state.credential
    if not credential.secret.startswith(ENROLMENT_PREFIX):
        raise Unauthenticated("enrolling needs an enrolment token (edgefront token create), not a key")
    return credential.secret


AppContext = Annotated[Context, Depends(_context)]
CurrentPrincipal = Annotated[Principal, Depends(_anyone)]
CurrentUser = Annotated[Principal, _of_role(KeyRole.USER, KeyRole.ADMIN)]
"""A principal with the role user or admin, who may change their own rows."""
CurrentViewer = Annotated[Principal, _of_role(KeyRole.USER, KeyRole.VIEWER, KeyRole.ADMIN)]
"""A principal with the role user, viewer or admin, who may read."""
CurrentAdmin = Annotated[Principal, _of_role(KeyRole.ADMIN)]
DeviceId = Annotated[str, Depends(_device)]
"""Id of the device whose agent sent the request."""
EnrolmentToken = Annotated[str, Depends(_enrolment_token)]
