"""Whether limits make sense on a device: what is known of it says so, before anything is measured."""

from __future__ import annotations

from sqlalchemy import func, select

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import EdgefrontError, InvalidInput, within
from edgefront.core.common.states import KeyRole
from edgefront.core.common.units import MB, plain, rounded, rounded_up
from edgefront.core.schemas.jobs import JobRequest, SpaceRequest
from edgefront.core.search.proposals import smallest
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs.placement import find_devices
from edgefront.core.services.prediction.fits import DeviceFit, Fits
from edgefront.core.services.spaces import space_of
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Measurement

OUT_OF_REACH = 0.5
"""A limit is out of reach below this share of the least that the quickest model of a space is predicted to take; above
it the job finds out, and answers with what comes nearest."""
NO_LIMIT = 10.0
"""A memory limit above so many times the device's own memory was meant in another unit."""


def check_limits(database: Database, principal: Principal, request: JobRequest, fits: Fits) -> None:
    """Takes up to seconds where a latency is below everything that was measured on its device, else next to nothing.

    Raises `InvalidInput`, with the path of the limit, where even the quickest model of the space is predicted to take
    far longer, or where no device has a tenth of the memory. What else is wrong with a request is left to its
    submission.
    """
    principal.require(KeyRole.USER)
    for index, target in enumerate(request.targets):
        limit, memory_mb = target.limits.latency_ms, target.limits.memory_mb
        if limit is None and memory_mb is None:
            continue
        try:
            with database.read() as session:
                device_key, label, devices = find_devices(session, target)
                total = max((int(device.facts["memory_bytes"]) for device in devices), default=None)
                there = Measurement.device_key == device_key, Measurement.protocol_digest == target.protocol.digest
                fastest = session.scalar(select(func.min(Measurement.latency_ms)).where(*there))
                below = fastest is not None and limit is not None and limit < fastest
                asked = fits.read(session, device_key, target.protocol) if below else None
        except EdgefrontError:
            continue
        with within("targets", index, "limits"):
            if memory_mb is not None and total is not None:
                _check_memory(memory_mb, total, label)
            fit = None if asked is None else fits.fit(asked)
            if fit is not None and limit is not None:
                _check_latency(fit, request.space, label, limit)


def _check_memory(limit_mb: float, total: int, label: str) -> None:
    if limit_mb * MB <= NO_LIMIT * total:
        return
    meant = limit_mb / MB
    sensible = 1 <= meant <= NO_LIMIT * total / MB
    unit = f"; if it was meant in bytes, it is {meant:.0f} MB" if sensible else ""
    raise InvalidInput(
        f"memory_mb {plain(limit_mb)} is no limit: {label!r} has {total / MB:.0f} MB of memory{unit}",
        field="memory_mb",
        value=limit_mb,
        allowed=f"MB, at most about {total / MB:.0f}",
    )


def _check_latency(fit: DeviceFit, asked: SpaceRequest, label: str, limit: float) -> None:
    try:
        space = space_of(asked)
    except InvalidInput:
        return
    quickest = smallest(space, lambda architectures: fit.latency.predict(Shapes.of(architectures)).ms)
    ms, low, high = (float(column[0]) for column in fit.latency.predict(Shapes.of([quickest])))
    least = OUT_OF_REACH * low
    if limit >= least:
        return
    seconds = f"; if it was meant in seconds, it is {plain(1000 * limit)} ms" if 1000 * limit >= low else ""
    raise InvalidInput(
        f"latency_ms {plain(limit)} is below every model of {space.name}: on {label!r} the quickest is predicted to "
        f"take {rounded(ms, 3)} ms ({rounded(low, 3)} to {rounded(high, 3)}){seconds}",
        field="latency_ms",
        value=limit,
        allowed=f"at least {plain(rounded_up(least))} ms",
    )
