"""Whether latency limits are within reach of a device: what is known of it says so, before anything is measured."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import EdgefrontError, InvalidInput, within
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.smallest import smallest
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs.placement import find_devices
from edgefront.core.services.jobs.plan import space_of
from edgefront.core.services.prediction.fits import DeviceFit, Fits
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Measurement
from edgefront.core.wire.jobs import JobRequest, SpaceRequest

OUT_OF_REACH = 0.5
"""A limit is out of reach below this share of the least that the quickest model of a space is predicted to take; above
it the job finds out, and answers with what comes nearest."""


def check_latency_limits(database: Database, principal: Principal, request: JobRequest, fits: Fits) -> None:
    """Takes up to seconds where a limit is below everything that was measured on its device, else next to nothing.

    Raises `InvalidInput`, with the path of the limit, where even the quickest model of the space is predicted to take
    far longer. What else is wrong with a request is left to its submission.
    """
    principal.require("user")
    for index, target in enumerate(request.targets):
        limit = target.limits.latency_ms
        if limit is None:
            continue
        try:
            with database.read() as session:
                device_key, label, _ = find_devices(session, target)
                fastest = _fastest(session, device_key, target.protocol)
                asked = fits.read(session, device_key, target.protocol) if fastest and limit < fastest else None
        except EdgefrontError:
            continue
        fit = None if asked is None else fits.fit(asked)
        if fit is not None:
            with within("targets", index, "limits"):
                _check(fit, request.space, label, limit)


def _fastest(session: Session, device_key: str, protocol: MeasurementProtocol) -> float | None:
    return session.scalar(
        select(func.min(Measurement.latency_ms)).where(
            Measurement.device_key == device_key, Measurement.protocol_digest == protocol.digest
        )
    )


def _check(fit: DeviceFit, asked: SpaceRequest, label: str, limit: float) -> None:
    try:
        space = space_of(asked)
    except InvalidInput:
        return
    quickest = smallest(space, lambda architectures: fit.latency.predict(Shapes.of(architectures)).ms)
    ms, low, high = (float(column[0]) for column in fit.latency.predict(Shapes.of([quickest])))
    if limit >= OUT_OF_REACH * low:
        return
    seconds = f"; if it was meant in seconds, it is {1000 * limit:g} ms" if 1000 * limit >= low else ""
    raise InvalidInput(
        f"latency_ms {limit:g} is below every model of {space.name}: on {label!r} the quickest is predicted to "
        f"take {ms:.3g} ms ({low:.3g} to {high:.3g}){seconds}",
        field="latency_ms",
        value=limit,
        allowed=f"at least about {high:.3g} ms",
    )
