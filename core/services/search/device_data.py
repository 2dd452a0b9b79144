"""What is known of a target's device beside its search: baselines, measurements of other jobs, and other devices.

A generation stores which measurements it was asked with and their figures then (`generation.device_data`), so that
asking again gives the same proposals. Their architectures never change and stay in their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateRole, MeasurementState
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.interface import Incumbent, Observation, Snapshot, times_of
from edgefront.core.services.jobs.incumbents import incumbent_of
from edgefront.core.services.measuring.queries.measurements import launch_variance
from edgefront.core.store.sql import Document, Items, any_of
from edgefront.core.store.tables import Candidate, Measurement, Target

MAX_MEASUREMENTS = 400
"""Measurements of other jobs that a search learns from at most, the latest: a predictor's fit grows with their cube."""
MAX_PRIOR_DEVICES, MAX_PRIOR_MEASUREMENTS, MIN_PRIOR_MEASUREMENTS = 2, 100, 10
"""Other devices whose measurements say what to expect, and how many of each at most and at least."""

Figures = Items
"""[measurement id, latency_ms, memory_bytes, launches], and of a generation its times."""


@dataclass(frozen=True)
class DeviceData:
    """Rows as they were read: figures, and the architectures (JSON) by measurement id."""

    stored: Document
    """The JSON of `generation.device_data`: `baselines`, `others`, `priors` (a list for each device), `noise`, `rival`
    (fields of `Incumbent`; absent if there is none)."""
    architectures: Mapping[str, Document]

    def known_to(self, snapshot: Snapshot, protocol: MeasurementProtocol) -> Snapshot:
        """The snapshot with what is known of the device. Fits predictors of other devices, so outside transactions."""
        fits = (self._fit(rows, protocol) for rows in self.stored["priors"])
        incumbent = self.stored.get("rival")
        return replace(
            snapshot,
            baselines=self._observations(self.stored["baselines"]),
            others=self._observations(self.stored["others"]),
            launch_noise=self.stored["noise"],
            priors=tuple(fit for fit in fits if fit is not None),
            incumbent=None if incumbent is None else Incumbent(**incumbent),
        )

    def _observations(self, rows: Iterable[Figures]) -> tuple[Observation, ...]:
        return tuple(
            Observation(Architecture.model_validate(self.architectures[id_]), *figures)
            for id_, *figures in rows
            if id_ in self.architectures
        )

    def _fit(self, rows: Sequence[Figures], protocol: MeasurementProtocol) -> LatencyPredictor | None:
        observed = self._observations(rows)
        shapes = Shapes.of([observation.architecture for observation in observed])
        try:
            return LatencyPredictor.fit(
                shapes,
                protocol,
                [observation.latency_ms for observation in observed],
                launches=[observation.launches for observation in observed],
            )
        except InvalidInput:  # too few, or all alike
            return None


def take(session: Session, target: Target, *, with_incumbent: bool = False) -> DeviceData:
    """What is known now of the target's device, and what its job's other targets have found there."""
    own = select(Candidate.measurement_id).where(Candidate.target_id == target.id)
    of_device = (Measurement.device_key == target.device_key, Measurement.protocol_digest == target.protocol_digest)
    baselines = select(Candidate.measurement_id).where(
        Candidate.target_id == target.id, Candidate.role == CandidateRole.BASELINE
    )
    stored = {
        "baselines": _figures(session, MAX_MEASUREMENTS, Measurement.id.in_(baselines)),
        "others": _figures(
            session,
            MAX_MEASUREMENTS,
            *of_device,
            Measurement.id.not_in(own.where(Candidate.measurement_id.is_not(None))),
        ),
        **_beside(session, target.device_key, target.protocol_digest),
    }
    incumbent = incumbent_of(session, target) if with_incumbent else None
    if incumbent is not None:
        stored["rival"] = asdict(incumbent)
    return load(session, stored)


def of_device(session: Session, device_key: str, protocol_digest: str) -> DeviceData:
    """What is known now of a device (class) by a protocol, whichever job asked for it."""
    own = (Measurement.device_key == device_key, Measurement.protocol_digest == protocol_digest)
    others = _figures(session, MAX_MEASUREMENTS, *own)
    return load(session, {"baselines": [], "others": others, **_beside(session, device_key, protocol_digest)})


def load(session: Session, stored: Document) -> DeviceData:
    """What a generation was asked with."""
    ids = [row[0] for rows in (stored["baselines"], stored["others"], *stored["priors"]) for row in rows]
    rows = session.execute(select(Measurement.id, Measurement.architecture).where(any_of(Measurement.id, ids)))
    return DeviceData(stored, {row.id: row.architecture for row in rows})


def _beside(session: Session, device_key: str, protocol_digest: str) -> Document:
    """What other devices say of it, and how far its launches scatter."""
    return {
        "priors": [
            _figures(
                session,
                MAX_PRIOR_MEASUREMENTS,
                Measurement.protocol_digest == protocol_digest,
                Measurement.device_key == key,
            )
            for key in _similar(session, device_key, protocol_digest)
        ],
        "noise": launch_variance(session, device_key, protocol_digest).relative,
    }


_FIGURES = (Measurement.id, Measurement.latency_ms, Measurement.memory_bytes, Measurement.launches)
_TIMES = (Measurement.first_token_ms, Measurement.token_ms, Measurement.total_ms)


def _figures(session: Session, most: int, *conditions: ColumnElement[bool]) -> list[Figures]:
    """The latest measurements, in the order of their ids."""
    rows = session.execute(
        select(*_FIGURES, *_TIMES)
        .where(Measurement.state == MeasurementState.MEASURED, *conditions)
        .order_by(Measurement.measured_at.desc(), Measurement.id)
        .limit(most)
    )
    every = [[*row[:4], *([times] if (times := times_of(row)) else [])] for row in rows]
    return sorted(every, key=lambda figures: figures[0])


def _similar(session: Session, device_key: str, protocol_digest: str) -> list[str]:
    """Device keys with the most measurements by the same protocol."""
    count = func.count()
    rows = session.execute(
        select(Measurement.device_key, count)
        .where(
            Measurement.protocol_digest == protocol_digest,
            Measurement.device_key != device_key,
            Measurement.state == MeasurementState.MEASURED,
        )
        .group_by(Measurement.device_key)
        .having(count >= MIN_PRIOR_MEASUREMENTS)
        .order_by(count.desc(), Measurement.device_key)
        .limit(MAX_PRIOR_DEVICES)
    )
    return [key for key, _ in rows]
