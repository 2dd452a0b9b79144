"""Predictors fitted to all measurements of a device by a protocol, cached until a new measurement arrives."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import MeasurementState
from edgefront.core.measurement.prediction.calibration import HARD
from edgefront.core.measurement.prediction.features import descriptors, features
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.prediction.memory import MemoryPredictor
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.interface import Snapshot
from edgefront.core.services.search import snapshots
from edgefront.core.services.search.snapshots import DeviceData
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Measurement

MAX_FITS = 32
ENOUGH = 20
"""Minimum number of measurements at which a large error means that the device is hard to predict."""
EXTRAPOLATION = 1.5
"""Predictions extrapolate above the most multiply-accumulates of the measured models times this factor, and below the
least divided by this factor.
"""


@dataclass(frozen=True)
class DeviceFit:
    """Predictors of latency and memory of a device under a protocol."""

    extent: Extent
    latency: LatencyPredictor
    memory: MemoryPredictor
    log_macs: tuple[float, float]
    """Logarithms of the least and the most multiply-accumulates of the measured models."""

    def beyond_measured(self, shapes: Shapes) -> NDArray[np.bool_]:
        """(n,) whether each shape has far more, or far fewer, multiply-accumulates than every measured model."""
        asked, (least, most) = _log_macs(shapes, self.latency.protocol), self.log_macs
        return np.asarray((asked < least - math.log(EXTRAPOLATION)) | (asked > most + math.log(EXTRAPOLATION)))

    @property
    def hard_to_predict(self) -> bool:
        return self.latency.launches >= ENOUGH and self.latency.error > HARD

    @property
    def note(self) -> str:
        """Warning about the predictions for this device; empty if there is no reason for a warning."""
        if self.hard_to_predict:
            return (
                f"This device is hard to predict: the mean error is {self.latency.error:.1%} when each of "
                f"{self.latency.launches} measurements is predicted from the others. The intervals are therefore wide: "
                "measure important models."
            )
        if self.latency.launches < ENOUGH:
            return (
                f"Fitted to {self.latency.launches} measurements only: intervals become narrower with {ENOUGH} or more."
            )
        return ""


@dataclass(frozen=True)
class FitInputs:
    """Data of a device, read in a session; the fit takes place outside the session."""

    key: tuple[str, str]
    """Device key and protocol digest."""
    protocol: MeasurementProtocol
    extent: Extent
    data: DeviceData | None
    """None if a current fit is cached."""


class Fits:
    """Cache of the latest `MAX_FITS` fits of a process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], DeviceFit] = OrderedDict()

    def read(self, session: Session, device_key: str, protocol: MeasurementProtocol) -> FitInputs:
        """Reads the data of a fit, unless a fit of the same measurements is cached."""
        key = device_key, protocol.digest
        newest = extent(session, *key)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.extent == newest:
            return FitInputs(key, protocol, newest, None)
        return FitInputs(key, protocol, newest, snapshots.current_device_data(session, *key))

    def fit(self, asked: FitInputs) -> DeviceFit | None:
        """Returns the cached fit or a new fit (up to a second); None if too few architectures are measured."""
        with self._lock:
            kept = self._kept.get(asked.key)
        if kept is not None and kept.extent == asked.extent:
            return kept
        if asked.data is None:  # a newer fit replaced the cached one since the data was read
            return kept
        made = _fitted(asked.data, asked.protocol, asked.extent)
        if made is None:
            return None
        with self._lock:
            self._kept[asked.key] = made
            self._kept.move_to_end(asked.key)
            if len(self._kept) > MAX_FITS:
                self._kept.popitem(last=False)
        return made


def _fitted(data: DeviceData, protocol: MeasurementProtocol, measured: Extent) -> DeviceFit | None:
    learnable = data.known_to(Snapshot(), protocol)
    shapes = Shapes.of([other.architecture for other in learnable.others])
    try:
        latency = LatencyPredictor.fit(
            shapes,
            protocol,
            [other.latency_ms for other in learnable.others],
            launches=[other.launches for other in learnable.others],
            noise=learnable.launch_noise,
            prior=learnable.priors,
        )
        memory = MemoryPredictor.fit(shapes, protocol, [other.memory_bytes for other in learnable.others])
    except InvalidInput:
        return None
    macs = _log_macs(shapes, protocol)
    return DeviceFit(measured, latency, memory, (float(macs.min()), float(macs.max())))


def _log_macs(shapes: Shapes, protocol: MeasurementProtocol) -> NDArray[np.float64]:
    """(n,) logarithms of the multiply-accumulates of a forward pass."""
    return np.asarray(descriptors(shapes, features(shapes, protocol))[:, 0])


# Queries -------------------------------------------------------------------------------------------------------------

_NO_MORE = 1 << 30


class Extent(NamedTuple):
    """Version of a device's measurements by a protocol. Every new measurement or launch changes the version."""

    measurements: int
    launches: int
    latest: datetime | None


def extent(session: Session, device_key: str, protocol_digest: str) -> Extent:
    """Returns the version of the measurements of a device (class) by a protocol."""
    query = select(func.count(), func.sum(Measurement.launches), func.max(Measurement.measured_at))
    row = session.execute(query.where(*measured_at(device_key, protocol_digest))).one()
    return Extent(int(row[0]), int(row[1] or 0), row[2])


def measured_by_digest(
    session: Session, device_key: str, protocol_digest: str, digests: Collection[str]
) -> dict[str, Measurement]:
    """Returns architecture digest → measurement; of several seeds, the measurement with the most launches."""
    query = select(Measurement).where(*measured_at(device_key, protocol_digest), any_of(Measurement.digest, digests))
    rows = session.scalars(query.order_by(Measurement.launches, Measurement.id.desc()))
    return {row.digest: row for row in rows}


def launches_of(
    session: Session, device_key: str, protocol_digest: str, seed: int, digests: Collection[str]
) -> dict[str, int]:
    """Returns architecture digest → number of launches with this seed; a large number if no more are possible."""
    rows = session.execute(
        select(Measurement.digest, Measurement.launches, Measurement.state).where(
            Measurement.device_key == device_key,
            Measurement.protocol_digest == protocol_digest,
            Measurement.seed == seed,
            any_of(Measurement.digest, digests),
        )
    )
    has_launches = (MeasurementState.WANTED, MeasurementState.MEASURED)
    return {row.digest: row.launches if row.state in has_launches else _NO_MORE for row in rows}


def protocols(session: Session, device_key: str, most: int) -> list[tuple[MeasurementProtocol, int]]:
    """Returns the protocols with the most measurements of a device, each with the number of measurements."""
    count = func.count()
    groups = session.execute(
        select(func.min(Measurement.id), count)
        .where(Measurement.device_key == device_key, Measurement.state == MeasurementState.MEASURED)
        .group_by(Measurement.protocol_digest)
        .order_by(count.desc(), func.min(Measurement.id))
        .limit(most)
    )
    by_use = []
    for id_, measurements in groups.all():
        protocol = PROTOCOL.read_or(session.get_one(Measurement, id_).protocol, None)
        if protocol is not None:
            by_use.append((protocol, int(measurements)))
    return by_use


def measured_at(device_key: str, protocol_digest: str) -> tuple[ColumnElement[bool], ...]:
    """Returns query conditions: measured on this device (class) by this protocol."""
    return (
        Measurement.device_key == device_key,
        Measurement.protocol_digest == protocol_digest,
        Measurement.state == MeasurementState.MEASURED,
    )
