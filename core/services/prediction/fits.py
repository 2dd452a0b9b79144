"""Predictors that have learnt from all that is known of a device by a protocol, kept while nothing new is measured."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.prediction.calibration import HARD
from edgefront.core.measurement.prediction.features import descriptors, features
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.prediction.memory import MemoryPredictor
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.interface import Snapshot
from edgefront.core.services.prediction.queries import Extent, extent
from edgefront.core.services.search import device_data
from edgefront.core.services.search.device_data import DeviceData

KEPT = 32
TELLING = 20
"""Measurements from which a large error says that a device is hard to predict: few alone explain one."""
FAR = 1.5
"""Products, as a factor beyond the most or below the least of what was measured, from which it says little."""


@dataclass(frozen=True)
class DeviceFit:
    """What the measurements of a device by a protocol teach."""

    extent: Extent
    latency: LatencyPredictor
    memory: MemoryPredictor
    products: tuple[float, float]
    """Logarithms of the least and the most products of what was measured."""

    def beyond_measured(self, shapes: Shapes) -> NDArray[np.bool_]:
        """(n,) whether each does much more, or much less, than anything that was measured."""
        asked, (least, most) = _products(shapes, self.latency.protocol), self.products
        return np.asarray((asked < least - math.log(FAR)) | (asked > most + math.log(FAR)))

    @property
    def hard_to_predict(self) -> bool:
        return self.latency.launches >= TELLING and self.latency.error > HARD

    @property
    def note(self) -> str:
        """What a person should know of its predictions; empty where there is nothing."""
        if self.hard_to_predict:
            return (
                f"This device is hard to predict: {self.latency.launches} measurements, each predicted from the "
                f"others, were missed by {self.latency.error:.1%} in the mean. The intervals are as wide as that asks "
                "for; measure what matters."
            )
        if self.latency.launches < TELLING:
            return (
                f"Learnt from {self.latency.launches} measurements only: intervals become narrower with "
                f"{TELLING} or more."
            )
        return ""


@dataclass(frozen=True)
class ToFit:
    """What was read of a device: fitted outside of any session, unless a fit of it is kept."""

    key: tuple[str, str]
    """Device key and protocol digest."""
    protocol: MeasurementProtocol
    extent: Extent
    data: DeviceData | None
    """It is None where a fit is kept."""


class Fits:
    """The fits of one process, the latest `KEPT`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], DeviceFit] = OrderedDict()

    def read(self, session: Session, device_key: str, protocol: MeasurementProtocol) -> ToFit:
        """What a fit needs; where one is kept of the same measurements, only that there is nothing new."""
        key = device_key, protocol.digest
        newest = extent(session, *key)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.extent == newest:
            return ToFit(key, protocol, newest, None)
        return ToFit(key, protocol, newest, device_data.of_device(session, *key))

    def fit(self, asked: ToFit) -> DeviceFit | None:
        """The fit of what was read, which takes up to a second; None where too few architectures differ."""
        with self._lock:
            kept = self._kept.get(asked.key)
        if kept is not None and kept.extent == asked.extent:
            return kept
        if asked.data is None:  # replaced since it was read: what replaced it is newer
            return kept
        made = _fitted(asked.data, asked.protocol, asked.extent)
        if made is None:
            return None
        with self._lock:
            self._kept[asked.key] = made
            self._kept.move_to_end(asked.key)
            if len(self._kept) > KEPT:
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
    products = _products(shapes, protocol)
    return DeviceFit(measured, latency, memory, (float(products.min()), float(products.max())))


def _products(shapes: Shapes, protocol: MeasurementProtocol) -> NDArray[np.float64]:
    """(n,) logarithms of the multiply-accumulates of a pass."""
    return np.asarray(descriptors(shapes, features(shapes, protocol))[:, 0])
