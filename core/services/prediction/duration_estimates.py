"""How long a launch takes on a device: read in a session, computed outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import EdgefrontError
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.prediction.fits import DeviceFit
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import LaunchState
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Launch, Measurement
from edgefront.core.wire.estimates import Source

LATEST = 60
"""Launches that the pace is taken from."""


class Pace(NamedTuple):
    """Seconds of one launch; None where it is unknown."""

    seconds: float | None
    source: Source


@dataclass(frozen=True)
class _Past:
    wall_s: float
    measuring_s: float
    latency_ms: float
    protocol: Document
    architecture: Document


@dataclass(frozen=True)
class PastLaunches:
    """The latest launches of a device: by the protocol in question, or by others where there are none."""

    same: tuple[_Past, ...]
    others: tuple[_Past, ...]

    def pace(self, architectures: Sequence[Architecture], protocol: MeasurementProtocol, fit: DeviceFit | None) -> Pace:
        """The mean launch of such architectures by the protocol."""
        if not architectures:
            return Pace(None, "unknown")
        passes = protocol.warmup + protocol.repeats
        if self.same and fit is not None:
            latency_ms = float(np.mean(fit.latency.predict(Shapes.of(architectures)).ms))
            return Pace(_overhead_s(self.same) + passes * latency_ms / 1000, "predicted")
        if self.same:
            return Pace(median(launch.wall_s for launch in self.same), "measured")
        speed = _flops_per_ms(self.others)
        if speed is None:
            return Pace(None, "unknown")
        flops = float(np.mean([protocol_costs(architecture, protocol).flops for architecture in architectures]))
        return Pace(_overhead_s(self.others) + passes * flops / speed / 1000, "flops")


def past_launches(session: Session, device_keys: Sequence[str], protocol_digest: str) -> PastLaunches:
    """The latest launches of the first of these keys that has any."""
    for key in device_keys:
        same = _latest(session, Launch.device_key == key, Measurement.protocol_digest == protocol_digest)
        if same:
            return PastLaunches(same, ())
    for key in device_keys:
        others = _latest(session, Launch.device_key == key)
        if others:
            return PastLaunches((), others)
    return PastLaunches((), ())


def _latest(session: Session, *conditions: ColumnElement[bool]) -> tuple[_Past, ...]:
    rows = session.execute(
        select(Launch.result, Measurement.latency_ms, Measurement.protocol, Measurement.architecture)
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .where(Launch.state == LaunchState.DONE, Measurement.latency_ms.is_not(None), *conditions)
        .order_by(Launch.finished_at.desc(), Launch.id)
        .limit(LATEST)
    )
    return tuple(
        _Past(row.result["wall_s"], row.result["measuring_s"], row.latency_ms, row.protocol, row.architecture)
        for row in rows
        if row.result is not None
    )


def _overhead_s(past: Sequence[_Past]) -> float:
    """What a launch takes beside its passes: starting the process and building the model."""
    return median(max(0.0, launch.wall_s - launch.measuring_s) for launch in past)


def _flops_per_ms(past: Sequence[_Past]) -> float | None:
    """The speed that was reached in the median; None where no launch can be read."""
    speeds = []
    for launch in past:
        try:
            architecture = Architecture.model_validate(launch.architecture)
            speeds.append(protocol_costs(architecture, PROTOCOL.read(launch.protocol)).flops / launch.latency_ms)
        except EdgefrontError:  # of a form that this release does not have
            continue
    return median(speeds) if speeds else None
