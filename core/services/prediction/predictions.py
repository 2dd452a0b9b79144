"""Predicts latency, memory and quality of architectures on a device without running them.

A short session reads the data. Fits and predictions take place outside the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import Conflict, within
from edgefront.core.common.states import KeyRole
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.prediction.features import MIN_ARCHITECTURES
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.shipped import law_for
from edgefront.core.schemas.candidates import CandidateParts, MemoryPart
from edgefront.core.schemas.jobs import PredictionBudget, TargetRequest
from edgefront.core.schemas.predictions import (
    MeasuredView,
    PartView,
    PredictedView,
    PredictionRequest,
    PredictionsView,
    PredictionView,
)
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, target_of
from edgefront.core.services.fleet.device_keys import key_of_class, parsed
from edgefront.core.services.jobs.placement import check_runtime, find_devices
from edgefront.core.services.measuring.queries.measurements import launch_variance
from edgefront.core.services.prediction.fits import DeviceFit, Fits, extent, measured_by_digest, protocols
from edgefront.core.services.quality import laws
from edgefront.core.services.quality.expected import perplexities
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.services.trainings import paces
from edgefront.core.store.database import Database
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Measurement

_NAMED = 3
"""Maximum number of protocols that an error message names."""
MEANINGS = {
    "weights": "weights",
    "runtime": "the runtime itself",
    "stream": "the residual stream",
    "inner": "activations of the widest block",
    "attention_weights": "attention weights",
    "state": "cached keys and values",
    "logits": "scores of tokens",
    "blocks": "a share for each block",
    "output": "the output layer in another order",
    "copies": "second copy of the weights",
}
"""Names of the components of memory (`core.measurement.prediction.memory.MEMORY_FEATURES`, and the weights) in words.
"""
_TOO_FEW = (
    f"Predictions need at least {MIN_ARCHITECTURES} different architectures that were measured on this device by this "
    "protocol."
)


def predict(database: Database, principal: Principal, request: PredictionRequest, fits: Fits) -> PredictionsView:
    """Predicts latency, memory and quality of each architecture, with 95 % intervals. Takes up to seconds.

    Raises:
        InvalidInput: an architecture is invalid or does not fit the protocol, or none of the devices supports the
            protocol. The error names the field.
        NotFound: the device, class or named model does not exist.
        Conflict: fewer than three different architectures were measured on the device by this protocol. The error lists
            the device's other protocols.
    """
    principal.require(KeyRole.USER, KeyRole.VIEWER)
    protocol = request.protocol
    architectures: list[Architecture] = []
    for index, given in enumerate(request.architectures):
        with within("architectures", index):
            architecture = named_model(given).architecture if isinstance(given, str) else Architecture.parse(given)
            protocol_costs(architecture, protocol)
        architectures.append(architecture)
    place = TargetRequest(device=request.device, device_class=request.device_class, protocol=protocol)
    with database.read() as session:
        device_key, label, devices = find_devices(session, place)
        asked = fits.read(session, device_key, protocol)
        measured = measured_by_digest(
            session, device_key, protocol.digest, {architecture.digest for architecture in architectures}
        )
        variance = launch_variance(session, device_key, protocol.digest)
        named = None if request.law is None else laws.named(session, principal.owner, request.law)
        request = paces.with_pace(session, principal.owner, request)
    for index, architecture in enumerate(architectures):
        if isinstance(named, PruningPredictor):
            with within("architectures", index):
                named.table.align_part(architecture)
    by_law = [_law(architecture, named, request) for architecture in architectures]
    fit = fits.fit(asked)
    if fit is None:
        check_runtime(place, devices, label)
        with database.read() as session:
            raise _too_few(session, device_key, label, protocol, asked.extent.measurements, devices[0].device_class)
    quality = [perplexities(law, [each])[0] for law, each in zip(by_law, architectures, strict=True)]
    predictions = _predictions(fit, architectures, protocol, measured, variance, quality)
    return PredictionsView(
        device=label,
        protocol=protocol,
        measurements=fit.extent.measurements,
        learnt_from=fit.latency.launches,
        latency_error=fit.latency.error,
        memory_error=fit.memory.error,
        hard_to_predict=fit.hard_to_predict,
        note=fit.note,
        perplexity_of="; ".join(dict.fromkeys(law.about for law in by_law if law is not None)),
        predictions=predictions,
    )


def _law(
    architecture: Architecture, named: PerplexityPredictor | None, budget: PredictionBudget
) -> PerplexityPredictor | None:
    """Returns the scaling law that predicts the model's quality after this training; None if none covers the model.
    Raises `InvalidInput`, which names the field, if the law does not permit the budget, or if a budget has no law.
    """
    law = named or law_for(architecture)
    if law is not None:
        return laws.for_budget(law, budget)
    laws.check_no_budget(budget, "this model")
    return None


def _predictions(
    fit: DeviceFit,
    architectures: Sequence[Architecture],
    protocol: MeasurementProtocol,
    measured: Mapping[str, Measurement],
    variance: LaunchVariance,
    quality: Sequence[Document],
) -> tuple[PredictionView, ...]:
    shapes = Shapes.of(architectures)
    latency = fit.latency.predict(shapes)
    memory = fit.memory.predict(shapes)
    beyond = fit.beyond_measured(shapes)
    views = []
    for row, architecture in enumerate(architectures):
        costs = protocol_costs(architecture, protocol)
        ms, low, high = (float(column[row]) for column in latency)
        peak, least, most = (float(column[row]) for column in memory)
        views.append(
            PredictionView(
                digest=architecture.digest,
                decoder_parameters=costs.decoder_parameters,
                total_parameters=costs.total_parameters,
                weight_bytes=costs.weight_bytes,
                flops=costs.flops,
                predicted=PredictedView(
                    latency_ms=ms,
                    latency_low_ms=low,
                    latency_high_ms=high,
                    memory_bytes=peak,
                    memory_low_bytes=least,
                    memory_high_bytes=most,
                    **quality[row],
                ),
                parts=part_views(fit, shapes, row),
                beyond_measured=bool(beyond[row]),
                measured=_measured(measured.get(architecture.digest), variance),
            )
        )
    return tuple(views)


def part_views(fit: DeviceFit, shapes: Shapes, row: int = 0) -> tuple[PartView, ...]:
    """Returns the predicted latency of each part of the architecture in this row of `shapes`."""
    return tuple(
        PartView(block=part.block, kind=part.kind, ms=part.ms, by_feature=dict(part.by_feature))
        for part in fit.latency.parts(shapes, row)
    )


def candidate_parts(database: Database, principal: Principal, candidate_id: str, fits: Fits) -> CandidateParts:
    """Predicts latency and memory of each part of a candidate. `NotFound` unless the caller's. Takes up to seconds."""
    with database.read() as session:
        candidate, job = candidate_of(session, principal, candidate_id)
        target = target_of(session, job, candidate.target_id)
        protocol = PROTOCOL.read(target.protocol)
        architecture = Architecture.parse(candidate.architecture)
        asked = fits.read(session, target.device_key, protocol)
    fit = fits.fit(asked)
    if fit is None:
        return CandidateParts(note=_TOO_FEW)
    shapes = Shapes.of([architecture])
    held = fit.memory.parts(shapes)
    return CandidateParts(
        latency_ms=float(fit.latency.predict(shapes).ms[0]),
        parts=part_views(fit, shapes),
        memory_bytes=float(sum(held.values())),
        memory_parts=tuple(
            MemoryPart(name=name, meaning=MEANINGS[name], bytes=size)
            for name, size in sorted(held.items(), key=lambda entry: -entry[1])
        ),
        beyond_measured=bool(fit.beyond_measured(shapes)[0]),
        note=fit.note,
    )


def _measured(row: Measurement | None, variance: LaunchVariance) -> MeasuredView | None:
    if row is None or row.latency_ms is None or row.memory_bytes is None:
        return None
    return MeasuredView(
        latency_ms=row.latency_ms,
        latency_half_width_ms=half_width_ms(row.latency_ms, row.log_launches, variance),
        memory_bytes=row.memory_bytes,
        launches=row.launches,
    )


def _too_few(
    session: Session,
    device_key: str,
    label: str,
    protocol: MeasurementProtocol,
    measurements: int,
    device_class: str,
) -> Conflict:
    """Returns the error for too few measurements. The error suggests other protocols and the device's class."""
    there = [
        f"{used.one_pass} by {used.runtime} on {used.provider}, {used.threads} thread(s), batch {used.batch}, logits "
        f"{used.logits}, {used.number_format} ({count})"
        for used, count in protocols(session, device_key, _NAMED)
    ]
    hints = ["measure architectures by a job, as `edgefront job submit` does"]
    if there:
        hints.append(f"or use a protocol with measurements on this device: {'; '.join(there)}")
    kind, _ = parsed(device_key)
    if kind == "device":
        of_class = extent(session, key_of_class(device_class), protocol.digest).measurements
        if of_class >= MIN_ARCHITECTURES:
            hints.append(f"or use device_class {device_class!r}, which has {of_class} measurements")
    enough = f"{MIN_ARCHITECTURES} different architectures, measured on the device by this protocol"
    return Conflict(
        f"{label!r} has {measurements} measurements by this protocol ({protocol.one_pass}, {protocol.runtime} on "
        f"{protocol.provider}), but a prediction needs {enough}. To continue, {'; '.join(hints)}",
        field="device" if kind == "device" else "device_class",
        value=label,
        allowed=f"a device with {enough}",
    )
