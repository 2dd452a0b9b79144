"""Anchors: every device regularly measures one small fixed model (its anchor), to show whether the device has changed.

A device measures the anchor on the processor and on each accelerator. A device is quarantined if the anchor failed, had
an impossible result, or had a latency off by more than the noise, three times in a row, because the device's reports on
other models are then not reliable. A protocol that an accelerator does not support is not a failure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product
from statistics import median

import orjson
from pydantic import BaseModel, ValidationError
from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.states import LIVE_LAUNCHES, DeviceState, LaunchState, Purpose
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol, MemoryMethod
from edgefront.core.measurement.provider import PROCESSOR, Provider
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.runtimes import INSTALLATIONS, Runtime
from edgefront.core.measurement.statistics import robust_std
from edgefront.core.schemas.service import AnchorPoint, AnchorView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import quarantine
from edgefront.core.services.measuring.decision import Decision
from edgefront.core.services.measuring.queries.launches import RESULT, LaunchRow
from edgefront.core.services.stored import RowReader
from edgefront.core.store.clock import between, is_ahead
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Device, Launch, Measurement
from edgefront.core.store.tables.measurement import WANTED

REFERENCE, MIN_REFERENCE = 10, 3
"""Maximum and minimum number of first latencies that define the usual latency, so that a slow drift is detected. The
noise is computed from all these latencies, the median from the first half, so that a jump among them is detected.
"""
MOVED = 3
"""Number of consecutive latencies that must be off, because one or two may have been disturbed."""
MIN_MOVE, SPREADS = math.log(1.15), 4.0


def drift(history_ms: Sequence[float]) -> str | None:
    """Describes in a sentence how the latest `MOVED` latencies of `history_ms` (ms, oldest first) differ from the usual
    latency. None if the history is too short, or if not all of them are off to the same side by more than 15 % and by
    more than four times the noise.
    """
    logs = [math.log(value) for value in history_ms]
    usual, latest = logs[:-MOVED][:REFERENCE], logs[-MOVED:]
    if len(usual) < MIN_REFERENCE:
        return None
    middle = statistics.median(usual[: max(MIN_REFERENCE, len(usual) // 2)])
    most = max(MIN_MOVE, SPREADS * _noise(usual))
    if not (min(latest) - middle > most or middle - max(latest) > most):
        return None
    now = statistics.median(latest)
    return (
        f"its anchor takes {math.exp(now - middle):.2f} times as long as it did, {MOVED} times in a row: "
        f"{math.exp(now):.4g} ms, usually {math.exp(middle):.4g} ms"
    )


def _noise(logs: Sequence[float]) -> float:
    """Standard deviation of at least two logarithms of latency, not raised by single jumps and steady drift: the lower
    of two deviations, the one around the median and the one of the steps between neighbours, divided by √2.
    """
    middle = statistics.median(logs)
    around = robust_std([value - middle for value in logs])
    steps = robust_std([after - before for before, after in pairwise(logs)])
    return min(around, steps / math.sqrt(2))


EVERY = timedelta(minutes=30)
"""Time between two anchor launches of a device that is online."""
SHOWN = 100
MAX_FAILED = 3
SEED = 1
ARCHITECTURE = Architecture.parse(
    {
        "version": 1,
        "d_model": 128,
        "embedding": {"vocab_size": 1000},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 512}] * 2,
    }
)
_PROVIDERS = (
    PROCESSOR,
    "cuda",
    "cuda0",
    "rocm",
    "rocm0",
    "mps",
    "metal",
    "coreml",
    "xpu",
    "gpu",
    "npu",
    "vulkan0",
    "dml",
)
"""Providers that measure an anchor. Other providers of the same hardware, such as TensorRT, compile for minutes."""
_MEMORY: tuple[MemoryMethod, ...] = ("anonymous", "resident")
_MEMORY_THERE: tuple[MemoryMethod, ...] = ("allocator", "device", *_MEMORY)
"""Memory methods for an accelerator."""
_PASSES = {"sequence_length": 64, "warmup": 5, "repeats": 20}
_DTYPES: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")


def request(session: Session, now: datetime) -> None:
    """Requests a launch of the anchor for the processor and each accelerator of online devices, unless the anchor was
    launched on this hardware within `EVERY`. The sweep calls this function.
    """
    online = select(Device.id, Device.facts).where(
        Device.state == DeviceState.ACTIVE,
        Device.quarantine.is_(None),
        between(Device.last_seen_at, now - ONLINE, now),
        ~between(Device.enrolled_at, now - EVERY, now),
    )
    devices = session.execute(online.order_by(Device.id))
    protocols = {key_of_device(id_): _readable_protocols(facts) for id_, facts in devices}
    if not protocols:
        return
    _cancel_left_alone(session, protocols, now)
    recent = _latest(session, protocols, now)
    want = demand.Want(ARCHITECTURE.digest, ARCHITECTURE.canonical, SEED)
    for key, by_hardware in protocols.items():
        for protocol in by_hardware.values():
            if (key, protocol.digest) not in recent:
                made = demand.measurements(session, key, protocol.model_dump(mode="json"), protocol.digest, [want])
                measurement = made[want.digest]
                # Checked again under the lock, because another sweep may have added a launch meanwhile.
                query = select(Launch.id).where(*_anchors_of([measurement.id]), _is_recent(now))
                if not session.scalar(select(query.exists())):
                    demand.add_first(session, measurement.id, None, key, Purpose.ANCHOR, now)


def count_failed(session: Session, launch: LaunchRow, why: str | None, now: datetime) -> None:
    """Quarantines a device if its anchor, which has just failed, failed too often in a row on this hardware."""
    device_id, hardware = launch.holder, _hardware(launch)
    there = [
        row.id for row in _measurements(session, device_id) if Provider(row.protocol["provider"]).hardware == hardware
    ]
    # Accelerators may lack reported features; every processor that has the runtime can measure the anchor.
    failed = _failed_in_a_row(session, device_id, there, now, unsupported=hardware == PROCESSOR)
    if failed >= MAX_FAILED:
        where = "" if hardware == PROCESSOR else f" on {hardware}"
        quarantine.put_in(session, device_id, f"its anchor{where} failed {failed} times: {why}")


def protocols_for(facts: Document) -> dict[str, MeasurementProtocol]:
    """Returns hardware (`Provider.hardware`) → protocol for the anchor, for the processor and each accelerator of a
    device with these facts. The order of the facts does not matter. Empty if the device cannot run the anchor.
    """
    runtimes = {fact["runtime"]: fact for fact in facts["runtimes"]}
    by_hardware: dict[str, MeasurementProtocol] = {}
    for runtime in (installed for installed in INSTALLATIONS if installed in runtimes):
        for provider in (name for name in _PROVIDERS if name in runtimes[runtime]["providers"]):
            protocol = _protocol(facts, runtime, provider, runtimes[runtime]["memory_methods"])
            if protocol is not None:
                by_hardware.setdefault(Provider(provider).hardware, protocol)
    return by_hardware


def _readable_protocols(facts: Document) -> dict[str, MeasurementProtocol]:
    """Returns `protocols_for(facts)`; empty for unreadable facts, which must not stop the anchors of other devices."""
    return RowReader().read(lambda: protocols_for(facts)) or {}


def _protocol(facts: Document, runtime: Runtime, provider: str, methods: Collection[str]) -> MeasurementProtocol | None:
    """Returns the first protocol with this provider by which the device can run the anchor; None if there is none."""
    memories = [method for method in (_MEMORY if provider == PROCESSOR else _MEMORY_THERE) if method in methods]
    for memory, dtype in product(memories, _DTYPES):
        asked = {"runtime": runtime, "provider": provider, "dtype": dtype, "memory": memory}
        try:
            protocol = MeasurementProtocol.model_validate({**asked, **_PASSES})
        except ValidationError:  # devices may report incompatible features
            continue
        if can_run(facts, protocol):
            return protocol
    return None


def apply_result(session: Session, decision: Decision, now: datetime) -> None:
    """Quarantines a device if its anchor failed, or had a latency off the usual one, too often in a row. Latencies that
    were measured in disturbed conditions are ignored.
    """
    launch = decision.row
    if decision.state != LaunchState.DONE:
        count_failed(session, launch, decision.reason, now)
        return
    # The result is compared with the first and the latest `REFERENCE` done ones since the device is trusted.
    known = between(Launch.finished_at, _trusted_since(session, launch.holder, now), launch.reported_at)
    others = _done(launch.measurement_id).where(known, Launch.id != launch.id)
    first, latest = (session.execute(others.order_by(*order).limit(REFERENCE)).all() for order in (_OLDEST, _NEWEST))
    history = {row.id: row.result for row in (*first, *reversed(latest))}
    undisturbed = [result for result in (*history.values(), launch.result) if result.conditions is None]
    moved = None if launch.result.conditions is not None else drift([*map(_latency_ms, undisturbed)])
    if moved is not None:
        hardware = _hardware(launch)
        quarantine.put_in(session, launch.holder, moved if hardware == PROCESSOR else f"on {hardware} {moved}")


def _hardware(launch: LaunchRow) -> str:
    return Provider(orjson.loads(launch.protocol_json)["provider"]).hardware


def anchor_view(session: Session, principal: Principal, id_or_name: str) -> AnchorView:
    """Returns the history of a device's anchor, oldest first. `NotFound` if the device does not exist."""
    device = get_device(session, principal, id_or_name)
    by = {protocol.digest for protocol in _readable_protocols(device.facts).values()}
    points = [
        AnchorPoint(
            launch_id=row.id,
            measured_at=row.finished_at,
            provider=measurement.protocol["provider"],
            latency_ms=_latency_ms(row.result),
            clock_mhz=_number(row.result, "clock_mhz"),
            load_1m=_number(row.result, "load_1m"),
            temperature_c=_number(row.result, "temperature_c"),
            mark=row.mark,
        )
        for measurement in _measurements(session, device.id)
        if not by or measurement.protocol_digest in by
        for row in session.execute(_done(measurement.id).order_by(*_NEWEST).limit(SHOWN))
    ]
    return AnchorView(
        device_id=device.id,
        digest=ARCHITECTURE.digest,
        points=tuple(sorted(points, key=lambda point: (point.measured_at, point.launch_id))),
    )


def _latency_ms(result: LaunchResult) -> float:
    return median(result.timed.samples_ms)


def _number(result: LaunchResult, name: str) -> float | None:
    value = result.environment.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# Jobs may measure the same model on the same device, so that only the purpose of a launch identifies an anchor.


def _anchors_of(measurement_ids: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return any_of(Launch.measurement_id, measurement_ids), Launch.purpose == Purpose.ANCHOR


def _is_recent(now: datetime) -> ColumnElement[bool]:
    """Returns the condition that a launch was created within `EVERY`, or has not finished yet."""
    return or_(between(Launch.created_at, now - EVERY, now), Launch.state.in_(LIVE_LAUNCHES))


def _measurements(session: Session, device_id: str) -> Sequence[Measurement]:
    """Returns the measurements of the anchor on a device, one per protocol."""
    own = (Measurement.digest == ARCHITECTURE.digest, Measurement.device_key == key_of_device(device_id))
    return session.scalars(select(Measurement).where(*own).order_by(Measurement.id)).all()


def _latest(session: Session, device_keys: Collection[str], now: datetime) -> set[tuple[str, str]]:
    """Returns the device keys with a recent anchor launch, each with the digest of the launch's protocol."""
    query = (
        select(Measurement.device_key, Measurement.protocol_digest)
        .join(Launch, Launch.measurement_id == Measurement.id)
        .where(
            Measurement.digest == ARCHITECTURE.digest,
            any_of(Measurement.device_key, device_keys),
            Launch.purpose == Purpose.ANCHOR,
            _is_recent(now),
        )
    )
    return {(key, digest) for key, digest in session.execute(query.distinct())}


def _cancel_left_alone(session: Session, device_keys: Collection[str], now: datetime) -> None:
    """Cancels old wanted anchor launches of these device keys, because the device may be unable to run them."""
    session.execute(
        update(Launch)
        .where(
            any_of(Launch.device_key, device_keys),
            Launch.purpose == Purpose.ANCHOR,
            Launch.state == WANTED,
            Launch.created_at < now - EVERY,
        )
        .values(state=LaunchState.CANCELLED, reason="the device did not claim the launch", finished_at=now),
        execution_options=_QUIET,
    )


_QUIET = {"synchronize_session": False}
_OLDEST, _NEWEST = (Launch.finished_at, Launch.id), (Launch.finished_at.desc(), Launch.id.desc())


def _done(measurement_id: str) -> Select[str, datetime | None, BaseModel, str | None]:
    """Returns a query of the done anchor launches of a measurement."""
    query = select(Launch.id, Launch.finished_at, RESULT, Launch.mark)
    return query.where(*_anchors_of([measurement_id]), Launch.state == LaunchState.DONE)


def _failed_in_a_row(
    session: Session, device_id: str, measurement_ids: Collection[str], now: datetime, *, unsupported: bool
) -> int:
    """Number of anchor launches of these measurements that failed or had an impossible result, since the latest done
    launch and since the device was trusted. `unsupported`: whether launches with an unsupported protocol count.
    """
    since = _trusted_since(session, device_id, now)
    of_them = (*_anchors_of(measurement_ids), between(Launch.finished_at, since, now))
    if not unsupported:
        of_them += (or_(Launch.reason.is_(None), ~Launch.reason.startswith("unsupported")),)
    last = session.scalar(select(func.max(Launch.finished_at)).where(*of_them, Launch.state == LaunchState.DONE))
    query = select(func.count()).where(
        *of_them,
        Launch.state.in_((LaunchState.FAILED, LaunchState.INFEASIBLE, LaunchState.IMPLAUSIBLE)),
    )
    return int(session.scalar(query if last is None else query.where(Launch.finished_at > last)) or 0)


def _trusted_since(session: Session, device_id: str, now: datetime) -> datetime:
    """Returns the time since which anchor launches of a device count: when the device was last trusted, or else
    enrolled. If the clock was set back and this time lies in the future, it is set to `now`.
    """
    query = select(func.coalesce(Device.trusted_at, Device.enrolled_at)).where(Device.id == device_id)
    since: datetime = session.execute(query).scalar_one()
    if is_ahead(since, now):
        session.execute(update(Device).where(Device.id == device_id).values(trusted_at=now), execution_options=_QUIET)
        return now
    return since
