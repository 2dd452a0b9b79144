"""Stores and exactly restores the input of a generation: a snapshot of the search, and data of the device.

A snapshot stores only the results that changed since the previous generation (candidate number, state, latency, peak
memory, launches, and in mode generate the times), so the total size is linear in the number of candidates. Constant
columns are read from the candidates' rows.

Device data (baselines, measurements of other jobs, priors from other devices) store measurement ids with figures.
Architectures are read from the measurements' rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateRole, CandidateState, MeasurementState
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.interface import Evaluated, Incumbent, Observation, Predicted, Snapshot, Times, times_of
from edgefront.core.services.jobs.incumbents import incumbent_of
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries.candidates import SearchCandidate
from edgefront.core.services.measuring.queries.measurements import launch_variance
from edgefront.core.store.sql import Document, Items, any_of
from edgefront.core.store.tables import Candidate, Measurement, Target

_Result = tuple[str, float | None, int | None, int, Times]


def take(session: Session, target_id: str, generation: int) -> tuple[Items, Snapshot]:
    """Returns a pair: the changed results to store with `generation`, and the snapshot of all current results."""
    before = _folded(job_queries.snapshots(session, target_id, generation - 1))
    rows = candidate_queries.search_rows(session, target_id)
    now: dict[int, _Result] = {
        row.number: (row.state, row.latency_ms, row.memory_bytes, row.launches, times_of(row)) for row in rows
    }
    changed = [
        [number, *result[:4], *([result[4]] if result[4] else [])]
        for number, result in now.items()
        if before.get(number) != result
    ]
    return changed, _snapshot(rows, now)


def restore(session: Session, target_id: str, generation: int) -> Snapshot:
    """Returns the snapshot that a generation was proposed from."""
    then = _folded(job_queries.snapshots(session, target_id, generation))
    return _snapshot((row for row in candidate_queries.search_rows(session, target_id) if row.number in then), then)


def _folded(stored: Iterable[Items]) -> dict[int, _Result]:
    # Times exist only in mode generate.
    return {
        number: (state, latency_ms, memory_bytes, launches, times[0] if times else {})
        for changes in stored
        for number, state, latency_ms, memory_bytes, launches, *times in changes
    }


def _snapshot(rows: Iterable[SearchCandidate], results: dict[int, _Result]) -> Snapshot:
    return Snapshot(tuple(_evaluated(row, results[row.number]) for row in rows))


def _evaluated(row: SearchCandidate, result: _Result) -> Evaluated:
    state, latency_ms, memory_bytes, launches, times = result
    return Evaluated(
        id=row.id,
        genome=row.genome,
        digest=row.digest,
        state=CandidateState(state),
        proxy=row.proxy,
        latency_ms=latency_ms,
        memory_bytes=memory_bytes,
        generation=row.generation,
        parents=tuple(row.parents),
        operator=row.operator,
        launches=launches,
        times=times,
        predicted=_predicted(row.predicted),
    )


def _predicted(stored: Document | None) -> Predicted | None:
    """Returns the stored prediction of latency and memory; None if there is none."""
    if stored is None or stored.get("latency_ms") is None:
        return None
    return Predicted(**{field.name: stored[field.name] for field in fields(Predicted)})


# Device data ---------------------------------------------------------------------------------------------------------

MAX_MEASUREMENTS = 400
"""Maximum number of measurements of other jobs, the latest ones; the time of a fit is cubic in this number."""
MAX_PRIOR_DEVICES, MAX_PRIOR_MEASUREMENTS, MIN_PRIOR_MEASUREMENTS = 2, 100, 10
"""Number of other devices that give priors, and the maximum and minimum number of measurements of each."""

Figures = Items
"""[measurement id, latency_ms, memory_bytes, launches], and in mode generate the times."""


@dataclass(frozen=True)
class DeviceData:
    """Stored figures of a device's measurements, and the measured architectures."""

    stored: Document
    """The JSON of `generation.device_data`: `baselines`, `others`, `priors` (a list for each device), `noise`,
    `incumbent` (fields of `Incumbent`; absent without one)."""
    architectures: Mapping[str, Document]

    def known_to(self, snapshot: Snapshot, protocol: MeasurementProtocol) -> Snapshot:
        """Returns the snapshot with the device data. Fits predictors of other devices: call it outside transactions."""
        fits = (self._fit(rows, protocol) for rows in self.stored["priors"])
        incumbent = self.stored.get("incumbent")
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
        except InvalidInput:  # too few measurements, or all are equal
            return None


def take_device_data(session: Session, target: Target, *, with_incumbent: bool = False) -> DeviceData:
    """Reads the present data of the target's device; `with_incumbent` adds the incumbent of the job's other targets."""
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
        stored["incumbent"] = asdict(incumbent)
    return load_device_data(session, stored)


def current_device_data(session: Session, device_key: str, protocol_digest: str) -> DeviceData:
    """Reads the present data of a device (class) by a protocol, of all jobs."""
    own = (Measurement.device_key == device_key, Measurement.protocol_digest == protocol_digest)
    others = _figures(session, MAX_MEASUREMENTS, *own)
    return load_device_data(
        session, {"baselines": [], "others": others, **_beside(session, device_key, protocol_digest)}
    )


def load_device_data(session: Session, stored: Document) -> DeviceData:
    """Restores the device data of a generation from the stored figures."""
    ids = [row[0] for rows in (stored["baselines"], stored["others"], *stored["priors"]) for row in rows]
    rows = session.execute(select(Measurement.id, Measurement.architecture).where(any_of(Measurement.id, ids)))
    return DeviceData(stored, {row.id: row.architecture for row in rows})


def _beside(session: Session, device_key: str, protocol_digest: str) -> Document:
    """Returns `priors` (other devices' measurements by this protocol) and `noise` (scatter of this device's)."""
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
    """Returns the latest measurements that meet the conditions, ordered by id."""
    rows = session.execute(
        select(*_FIGURES, *_TIMES)
        .where(Measurement.state == MeasurementState.MEASURED, *conditions)
        .order_by(Measurement.measured_at.desc(), Measurement.id)
        .limit(most)
    )
    every = [[*row[:4], *([times] if (times := times_of(row)) else [])] for row in rows]
    return sorted(every, key=lambda figures: figures[0])


def _similar(session: Session, device_key: str, protocol_digest: str) -> list[str]:
    """Returns keys of the other devices with the most measurements by the same protocol."""
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
