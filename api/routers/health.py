"""Endpoints `/v1/health`, `/v1/ready` and `/metrics`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal

import anyio.to_thread
from fastapi import APIRouter, Response
from sqlalchemy import text

from edgefront.api.context import VERSION, AppContext, Context, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer
from edgefront.api.http.metrics import MEDIA_TYPE
from edgefront.api.http.routes import ThreadRoute
from edgefront.core.common.errors import Unavailable
from edgefront.core.schemas.service import HealthView
from edgefront.core.services import work
from edgefront.core.services.dispatch import broker_answers
from edgefront.core.services.fleet.overview import overview
from edgefront.core.store.availability import unavailable_when_away

router = APIRouter(tags=["service"], route_class=ThreadRoute)

CHECK_TIMEOUT_S = 5.0
BROKER_TIMEOUT_S = 2.0


@router.get("/v1/health", summary="Liveness", responses=answer(example("health")))
async def get_health() -> HealthView:
    """Returns 200 as long as the process runs, without checking the database or the broker."""
    return HealthView(status="ok", version=VERSION)


@router.get(
    "/v1/ready",
    summary="Readiness",
    responses={
        **answer(example("ready")),
        503: {
            "description": "Something that it needs is unavailable; `checks` says what",
            "model": HealthView,
            "content": {
                "application/json": {
                    "example": {
                        "status": "unavailable",
                        "version": VERSION,
                        "checks": {
                            "database": "the database does not answer",
                            "migrations": "not checked",
                            "broker": "ok",
                            "workers": "not checked",
                        },
                    }
                }
            },
        },
    },
)
async def get_ready(context: AppContext, response: Response) -> HealthView:
    """Checks the database, its schema version, the broker, and that workers serve every queue.

    Without a worker the status is `degraded`, with 200: this process answers, and what it accepts is done later.
    """
    results: dict[str, str] = {}
    for name in ("database", "migrations", "broker", "workers"):
        if name in ("migrations", "workers") and results["database"] != "ok":
            results[name] = "not checked"
            continue
        check = partial(_check, name, context)
        try:
            # Abandoned on timeout: a database that drops packets must not block the response.
            waiting = anyio.to_thread.run_sync(check, abandon_on_cancel=True, limiter=context.checks)
            results[name] = await asyncio.wait_for(waiting, CHECK_TIMEOUT_S)
        except asyncio.TimeoutError:
            results[name] = f"no answer within {CHECK_TIMEOUT_S:g} s"
    failed = {name for name, result in results.items() if result != "ok"}
    status: Literal["ok", "degraded", "unavailable"] = "unavailable" if failed - {"workers"} else "degraded"
    response.status_code = 503 if status == "unavailable" else 200
    return HealthView(status=status if failed else "ok", version=VERSION, checks=results)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses=answer(example("metrics"), media="text/plain", schema={"type": "string"}),
)
def get_metrics(_viewer: CurrentViewer, context: AppContext) -> Response:
    """Returns Prometheus metrics. Needs a person's key: in Prometheus, `authorization: {credentials: efk_…}`."""
    try:
        with context.database.read() as session:
            state = overview(session, context.database.now(session))
    except Unavailable:
        state = None
    broker, artifacts = _check("broker", context) == "ok", context.settings.artifact_folder
    text_ = context.metrics.text(state, broker=broker, artifacts=artifacts)
    return Response(text_, headers={"Content-Type": MEDIA_TYPE})


def _check(name: str, context: Context) -> str:
    """Returns `ok`, or an error message without internal details."""
    try:
        if name == "database":
            with unavailable_when_away(), context.database.engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        elif name == "migrations":
            context.database.check_schema()
        elif name == "workers":
            with context.database.read() as session:
                queues = work.queue_states(session, context.database.now(session))
            lacking = [queue.label for queue in queues if queue.lacks_worker]
            return f"no worker takes work from {' and '.join(lacking)}" if lacking else "ok"
        elif name == "broker" and not (context.settings.embedded or broker_answers(context.settings, BROKER_TIMEOUT_S)):
            return "the broker does not answer"
    except Unavailable as error:
        return "the database does not answer" if error.__cause__ else error.detail
    return "ok"
