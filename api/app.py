"""The application: routes, middleware, and its shared objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from edgefront.api.context import VERSION, Context, CurrentPrincipal
from edgefront.api.docs import openapi
from edgefront.api.docs.examples import example
from edgefront.api.http import problems
from edgefront.api.http.auth import Authenticate, SignedIn
from edgefront.api.http.credentials import Credentials
from edgefront.api.http.metrics import Metrics
from edgefront.api.http.middleware import BodyLimit, Guard
from edgefront.api.http.root_path import BelowPath, check_root_path
from edgefront.api.http.routes import SlowWork
from edgefront.api.polling import Feeds, WaitingRoom
from edgefront.api.routers import (
    agents,
    candidates,
    catalogue,
    devices,
    events,
    health,
    jobs,
    keys,
    models,
    predictions,
    training_files,
    trainings,
)
from edgefront.api.web import pages
from edgefront.core.schemas.messages import Event
from edgefront.core.services import event_log
from edgefront.core.services.dispatch import sender
from edgefront.core.services.measuring.queries.leases import wanted_keys
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.drafts import remove_abandoned
from edgefront.core.store.database import Database

SPARE_THREADS = 8
"""Number of threads beyond one per database connection: for files, and for requests that wait for a connection."""
SLOW_THREADS = 3
CHECK_THREADS = 2
WATCH_ENDS_S = 6.0
"""Seconds that shutdown waits for the current check of credentials: the timeout of connecting to the database."""


def create_app(settings: Settings, *, database: Database | None = None) -> FastAPI:
    """Returns the API as an ASGI application.

    Args:
        settings: see `core.services.settings`.
        database: a database that the caller migrates and closes. If absent, the application opens that of the settings.
    """
    app = FastAPI(
        title="edgefront",
        version=VERSION,
        lifespan=_lifespan,
        # The OpenAPI document is served below, behind a key. FastAPI's pages would load scripts from other hosts.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # would be looked up again with each request
    )
    app.state.settings = settings
    app.state.given_database = database
    # The middleware that is added last is the outermost.
    app.add_middleware(Authenticate)
    app.add_middleware(
        BodyLimit, max_bytes=settings.http.max_body_bytes, max_import_bytes=settings.data.max_import_bytes
    )
    app.add_middleware(Guard)
    if settings.http.root_path:
        app.add_middleware(BelowPath, root_path=settings.http.root_path)
    app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.http.proxies))
    if settings.http.user_header:
        app.add_middleware(SignedIn, header=settings.http.user_header, proxies=settings.http.proxies)
    problems.install(app, pages.missing_page)
    # `include_router` would build every route again: a quarter of a second.
    for module in (
        agents,  # the hot path comes first: routes are tried in order
        jobs,
        events,
        candidates,
        models,
        predictions,
        trainings,
        training_files,
        devices,
        catalogue,
        keys,
        health,
        pages,
    ):
        app.router.routes.extend(module.router.routes)
    app.add_api_route(
        "/v1/openapi.json",
        _openapi_document,
        tags=["service"],
        operation_id="get_openapi",
        summary="This document",
        response_class=JSONResponse,
        responses=openapi.answer(example("openapi"), description="OpenAPI 3.1"),
    )
    check_root_path(settings.http.root_path, [getattr(route, "path", "") for route in app.routes])
    app.openapi = lambda: openapi.build(app)  # type: ignore[method-assign]
    return app


async def _openapi_document(request: Request, _principal: CurrentPrincipal) -> Response:
    servers = [{"url": request.scope["root_path"] or "/", "description": "This service"}]
    return JSONResponse({**request.app.openapi(), "servers": servers})


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    given: Database | None = app.state.given_database
    database = given or Database(settings.database_url, send=sender(settings), pool_size=settings.database.pool_size)
    try:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = settings.database.pool_size + SPARE_THREADS
        await anyio.to_thread.run_sync(remove_abandoned, settings, database)
        context = app.state.context = _context(settings, database)
        watching = asyncio.create_task(context.credentials.watch())
        try:
            yield
        finally:
            context.stop()
            await asyncio.wait([watching], timeout=WATCH_ENDS_S)
            watching.cancel()
    finally:
        if given is None:
            database.dispose()


def _context(settings: Settings, database: Database) -> Context:
    def requested_keys() -> set[str]:
        with database.read() as session:
            return wanted_keys(session)

    def read(log_id: str, after: int, limit: int) -> Sequence[Event]:
        with database.read() as session:
            return event_log.read(session, log_id, after, limit)

    room, feeds, metrics = WaitingRoom(requested_keys), Feeds(read), Metrics(share_port=settings.http.share_port)
    metrics.watch(lambda: room.size, lambda: feeds.readers)
    return Context(
        settings=settings,
        database=database,
        credentials=Credentials(database, changed=feeds.recheck, needed=lambda: feeds.readers > 0),
        room=room,
        feeds=feeds,
        metrics=metrics,
        slow=SlowWork(SLOW_THREADS),
        fits=Fits(),
        checks=anyio.CapacityLimiter(CHECK_THREADS),
        loop=asyncio.get_running_loop(),
    )
