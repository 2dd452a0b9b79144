"""Estimates jobs before submission, lists the reasons to refuse a job, and checks limits against predictions.

One short session reads the data of the devices. Checks and fits take place outside the session. Nothing is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Row, func, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.formatting import layers_in_words
from edgefront.core.common.errors import EdgefrontError, InvalidInput, within
from edgefront.core.common.states import KeyRole, LaunchState
from edgefront.core.common.units import MB, plain, rounded, rounded_up
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest, SpaceRequest
from edgefront.core.schemas.predictions import Count, JobEstimate, Refusal, Source, StockEstimate, TargetEstimate
from edgefront.core.search.proposals import smallest
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.device_keys import key_of_class, parsed
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.jobs.incumbents import has_one_answer
from edgefront.core.services.jobs.placement import Placement, find_devices, place_targets
from edgefront.core.services.jobs.progress import LATER, RESERVED
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.resolve import resolve
from edgefront.core.services.jobs.resolved import SearchPlan, sizes_of
from edgefront.core.services.measuring.queries.measurements import launch_variance
from edgefront.core.services.prediction.fits import DeviceFit, FitInputs, Fits, launches_of
from edgefront.core.services.quality.expected import law_note
from edgefront.core.services.search.refining import optimism
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Launch, Measurement

EXAMPLES = 48
"""Number of sampled architectures that represent the candidates of a search."""
EVENT_BYTES = 570
"""Size of a job's event log per candidate, bytes."""


@dataclass(frozen=True)
class _Known:
    """Data of a target's device."""

    baselines: Mapping[str, int]
    """Digest of a baseline → number of launches of the baseline (`launches_of`)."""
    measured: int
    """Number of architectures measured on the device by this protocol."""
    precise: bool
    """Whether one launch reaches the precision that the protocol requires."""
    online: int
    past: PastLaunches
    to_fit: FitInputs


def estimate(
    database: Database, principal: Principal, request: JobRequest, fits: Fits, settings: Settings | None = None
) -> JobEstimate:
    """Returns the estimate of a job. Takes up to seconds, like a submission. `settings`: same as in `submit_job`."""
    principal.require(KeyRole.USER)
    resolution = resolve(database, principal, request, settings)
    request, job, errors = resolution.request, resolution.job, resolution.errors
    errors.collect(lambda: check_limits(database, principal, request, fits))
    plans = (
        [] if job is None or list(errors) else [job.plan(target.protocol, target.limits) for target in request.targets]
    )
    baselines = [{baseline.digest for baseline in plan_.baselines()} for plan_ in plans]
    placed: list[tuple[int, Placement, _Known]] = []
    with database.read() as session:
        places = place_targets(session, request, errors)
        for index, place in places.items() if plans else ():
            placed.append((index, place, _known(session, database, request, index, place, baselines[index], fits)))
    examples = [plans[index].examples(EXAMPLES) for index, _, _ in placed]
    targets = [
        _target(request, index, plans[index], place, data, drawn, fits)
        for (index, place, data), drawn in zip(placed, examples, strict=True)
    ]
    size = sizes_of(request).baselines if placed else 0
    stock = [Count(expected=size, at_most=size)] * len(placed)
    stored = _sum([*(target.candidates for target in targets), *stock])
    keys = [place.device_key for _, place, _ in placed]
    bytes_ = [plans[0].costs(architecture).total_parameters * 4 for drawn in examples for architecture in drawn]
    return JobEstimate(
        request=request,
        refusals=tuple(_refusal(error) for error in errors),
        targets=tuple(targets),
        launches=_sum([target.launches for target in targets]),
        minutes=_together(keys, [target.minutes for target in targets]),
        minutes_at_most=_together(keys, [target.minutes_at_most for target in targets]),
        candidates=stored,
        event_bytes=Count(expected=stored.expected * EVENT_BYTES, at_most=stored.at_most * EVENT_BYTES),
        note="" if job is None else law_note(request, job.law),
        model_bytes=round(sum(bytes_) / len(bytes_)) if bytes_ else None,
    )


def _known(
    session: Session,
    database: Database,
    request: JobRequest,
    index: int,
    place: Placement,
    baselines: set[str],
    fits: Fits,
) -> _Known:
    protocol = request.targets[index].protocol
    to_fit = fits.read(session, place.device_key, protocol)
    variance = launch_variance(session, place.device_key, protocol.digest)
    devices = job_queries.devices_of(session, place.device_key)
    kind, _ = parsed(place.device_key)
    keys = [place.device_key, *({key_of_class(device.device_class) for device in devices} if kind == "device" else ())]
    seen = job_queries.devices_seen(session, [place.device_key], database.now(session) - ONLINE)
    return _Known(
        baselines=launches_of(session, place.device_key, protocol.digest, request.seed, baselines),
        measured=to_fit.extent.measurements,
        precise=bool(variance.degrees) and 1 not in optimism(protocol, variance),
        online=seen[place.device_key],
        past=past_launches(session, keys, protocol.digest),
        to_fit=to_fit,
    )


def _target(
    request: JobRequest,
    index: int,
    plan_: SearchPlan,
    place: Placement,
    data: _Known,
    examples: Sequence[Architecture],
    fits: Fits,
) -> TargetEstimate:
    baselines = plan_.baselines()
    sizes = sizes_of(request)
    fit = fits.fit(data.to_fit)
    seconds, source = data.past.pace([*baselines, *examples], plan_.protocol, fit)
    minutes_s = math.inf if request.budget.minutes is None else 60 * request.budget.minutes * max(1, data.online)
    in_time = int(min(1e9, minutes_s / seconds)) if seconds else 10**9
    lacking = [max(0, sizes.baseline_launches - data.baselines.get(baseline.digest, 0)) for baseline in baselines]
    repeats = min(sum(lacking), sizes.baselines * sizes.baseline_launches, max(1, in_time // RESERVED))
    most = min(sizes.candidates, max(1, in_time - repeats))
    later = index > 0 and has_one_answer(request)
    expected = min(most, LATER) if later else plan_.algorithm.expected_candidates(data.measured, most)
    share = request.budget.refinement
    none = data.precise or later  # of a job with one answer over its targets, only one target is refined
    further = max(0, in_time - repeats - expected), max(0, in_time - repeats - most)
    refinements = Count(
        expected=0 if none else min(further[0], int(share * expected)), at_most=min(further[1], int(share * most))
    )
    launches = Count(expected=repeats + expected + refinements.expected, at_most=repeats + most + refinements.at_most)
    minutes = [
        None if seconds is None else _minutes(request, plan_, count, searched, seconds, data.online)
        for count, searched in ((launches.expected, expected), (launches.at_most, most))
    ]
    _, name = parsed(place.device_key)
    asked = request.targets[index]
    offline = "" if data.online else "No agent of this device is online: the job waits for one."
    return TargetEstimate(
        name=place.name,
        device=asked.device or asked.device_class or name,
        baseline_launches=repeats,
        candidates=Count(expected=expected, at_most=most),
        refinements=refinements,
        launches=launches,
        seconds_per_launch=seconds,
        seconds_from=source,
        minutes=minutes[0],
        minutes_at_most=minutes[1],
        note=" ".join(text for text in (offline, plan_.algorithm.note) if text),
        stock=() if fit is None else _stock(baselines, fit),
    )


def _stock(baselines: Sequence[Architecture], fit: DeviceFit) -> tuple[StockEstimate, ...]:
    by_size = sorted(baselines, key=lambda baseline: len(baseline.blocks))
    ends = by_size[:1] + by_size[1:][-1:]
    shapes = Shapes.of(ends)
    latency, memory = fit.latency.predict(shapes), fit.memory.predict(shapes)
    return tuple(
        StockEstimate(
            name=layers_in_words(baseline.canonical["blocks"]),
            latency_ms=float(latency.ms[row]),
            latency_low_ms=float(latency.low[row]),
            latency_high_ms=float(latency.high[row]),
            memory_bytes=float(memory[0][row]),
        )
        for row, baseline in enumerate(ends)
    )


def _minutes(
    request: JobRequest, plan_: SearchPlan, launches: int, candidates: int, seconds: float, online: int
) -> float:
    spent = launches * seconds / max(1, online)
    spent += plan_.algorithm.seconds_per_generation * candidates / plan_.algorithm.generation_size(1)
    return spent / 60 if request.budget.minutes is None else min(spent / 60, request.budget.minutes)


def _together(device_keys: Sequence[str], minutes: Sequence[float | None]) -> float | None:
    """Sums the minutes of targets on one device and takes the maximum over devices. None if any time is unknown."""
    total: dict[str, float] = {}
    for key, spent in zip(device_keys, minutes, strict=True):
        if spent is None:
            return None
        total[key] = total.get(key, 0.0) + spent
    return max(total.values(), default=None)


def _refusal(error: EdgefrontError) -> Refusal:
    extra = error.extra
    return Refusal(
        status=error.status,
        kind=error.kind,
        detail=error.detail,
        field=error.field,
        value=extra.get("value"),
        allowed=extra.get("allowed", ""),
    )


def _sum(counts: Sequence[Count]) -> Count:
    return Count(expected=sum(count.expected for count in counts), at_most=sum(count.at_most for count in counts))


LATEST = 60
"""Maximum number of launches that the pace is computed from."""


@dataclass(frozen=True)
class PastLaunches:
    """The latest launches of a device: by the same protocol or, if there are none, by other protocols."""

    same: Sequence[Row[Any]]
    others: Sequence[Row[Any]]

    def pace(
        self, architectures: Sequence[Architecture], protocol: MeasurementProtocol, fit: DeviceFit | None
    ) -> tuple[float | None, Source]:
        """Returns the mean seconds per launch of these architectures (None if unknown), and the number's source."""
        if not architectures:
            return None, "unknown"
        passes = protocol.warmup + protocol.repeats
        if self.same and fit is not None:
            latency_ms = float(np.mean(fit.latency.predict(Shapes.of(architectures)).ms))
            return _overhead_s(self.same, architectures) + passes * latency_ms / 1000, "predicted"
        if self.same:
            return median(launch.result["wall_s"] for launch in self.same), "measured"
        speed = _flops_per_ms(self.others)
        if speed is None:
            return None, "unknown"
        flops = float(np.mean([protocol_costs(architecture, protocol).flops for architecture in architectures]))
        return _overhead_s(self.others, architectures) + passes * flops / speed / 1000, "flops"


def past_launches(session: Session, device_keys: Sequence[str], protocol_digest: str) -> PastLaunches:
    """Returns the latest launches of the first device key with launches by the protocol, else with any launches."""
    for key in device_keys:
        same = _latest(session, Launch.device_key == key, Measurement.protocol_digest == protocol_digest)
        if same:
            return PastLaunches(same, ())
    for key in device_keys:
        others = _latest(session, Launch.device_key == key)
        if others:
            return PastLaunches((), others)
    return PastLaunches((), ())


def _latest(session: Session, *conditions: ColumnElement[bool]) -> list[Row[Any]]:
    rows = session.execute(
        select(Launch.result, Measurement.latency_ms, Measurement.protocol, Measurement.architecture)
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .where(Launch.state == LaunchState.DONE, Measurement.latency_ms.is_not(None), *conditions)
        .order_by(Launch.finished_at.desc(), Launch.id)
        .limit(LATEST)
    )
    return [row for row in rows if row.result is not None]


def _overhead_s(past: Sequence[Row[Any]], architectures: Sequence[Architecture]) -> float:
    """Overhead of a launch of such models, s: process start and model construction. It is that of the median past
    launch, and for larger models the seconds a parameter of the launch with the fewest.
    """
    seconds = [max(0.0, launch.result["wall_s"] - launch.result["measuring_s"]) for launch in past]
    known = [_architecture(launch) for launch in past]
    sizes = Shapes.of([architecture for architecture in known if architecture is not None]).total_parameters
    if len(sizes) < len(past):
        return float(median(seconds))
    further = float(np.mean(Shapes.of(architectures).total_parameters) - np.median(sizes))
    return float(median(seconds) + max(0.0, further) * np.min(seconds / sizes))


def _architecture(launch: Row[Any]) -> Architecture | None:
    """Returns the launched model; None if it is stored in a form that this release cannot read."""
    with suppress(EdgefrontError):
        return Architecture.model_validate(launch.architecture)
    return None


def _flops_per_ms(past: Sequence[Row[Any]]) -> float | None:
    """Median speed of past launches, FLOPs per ms; None if this release can read none of the stored launches."""
    speeds = []
    for launch in past:
        architecture = _architecture(launch)
        with suppress(EdgefrontError):
            if architecture is not None:
                speeds.append(protocol_costs(architecture, PROTOCOL.read(launch.protocol)).flops / launch.latency_ms)
    return median(speeds) if speeds else None


# Limits --------------------------------------------------------------------------------------------------------------

OUT_OF_REACH = 0.5
"""A latency limit is refused below this share of the lower end of the fastest model's predicted interval."""
NO_LIMIT = 10.0
"""A memory limit above this multiple of the device's memory is refused, because the limit's unit is probably wrong."""


def check_limits(database: Database, principal: Principal, request: JobRequest, fits: Fits) -> None:
    """Raises `InvalidInput`, with the path of the limit, if the space's fastest model is predicted to be far slower
    than a limit, or if a memory limit exceeds ten times the device's memory. Ignores other errors of the request.

    Takes up to seconds if a limit is below every measured latency of the device, else milliseconds.
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
