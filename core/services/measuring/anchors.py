"""Anchors: every device measures one small fixed model regularly, and its history says whether it is still the same.

It does so on its processor and on each accelerator that it has. A device whose anchor three times in a row has failed,
had a result that cannot be true, or has moved by more than its noise is quarantined: what it reports of others says
little. What an accelerator turns out not to support is no failure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product

from pydantic import ValidationError
from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol, MemoryMethod
from edgefront.core.measurement.provider import PROCESSOR, Provider
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.runtimes import INSTALLATIONS, Runtime
from edgefront.core.measurement.statistics import median
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import quarantine
from edgefront.core.services.measuring.queries import anchors as rows
from edgefront.core.services.measuring.queries import reported
from edgefront.core.services.measuring.queries.launches import ReportedLaunch
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import LaunchOutcome, Purpose
from edgefront.core.statistics import robust_std
from edgefront.core.store.sql import Document
from edgefront.core.wire.service import AnchorPoint, AnchorView

REFERENCE, MIN_REFERENCE = 10, 3
"""The first so many latencies, of which there are at least so few, say what is usual, so that a slow drift is not
followed: their noise is that of all of them, their middle that of the first half, so that a move among them is seen.
"""
MOVED = 3
"""Latencies in a row that have to be off: one or two may have been disturbed."""
MIN_MOVE, SPREADS = math.log(1.15), 4.0


def drift(history_ms: Sequence[float]) -> str | None:
    """How the last `MOVED` of these latencies (ms, oldest first) differ from the usual one, as a sentence. None if they
    do not, all to one side by more than 15 % and four times the noise, or while too few are known.
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
    """Standard deviation of these logarithms, at least two, without what moves once or steadily: the lower of that of
    their distances from the middle and that of the steps from each to the next.
    """
    middle = statistics.median(logs)
    around = robust_std([value - middle for value in logs])
    steps = robust_std([after - before for before, after in pairwise(logs)])
    return min(around, steps / math.sqrt(2))


EVERY = timedelta(minutes=30)
"""Time between two launches of a device that is online."""
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
"""Providers that measure an anchor. Others of the same hardware, such as TensorRT, compile a model for minutes."""
_MEMORY: tuple[MemoryMethod, ...] = ("anonymous", "resident")
_MEMORY_THERE: tuple[MemoryMethod, ...] = ("allocator", "device", *_MEMORY)
"""Memory methods for an accelerator."""
_PASSES = {"sequence_length": 64, "warmup": 5, "repeats": 20}
_DTYPES: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")


def request(session: Session, now: datetime) -> None:
    """Requests a launch of the anchor for the processor and each accelerator of a device that is online and has had
    none there for `EVERY`. The sweep calls it.
    """
    devices = rows.candidates(session, now - ONLINE, now - EVERY, now)
    keys = {device.id: key_of_device(device.id) for device in devices}
    if not keys:
        return
    protocols = {keys[device.id]: protocols_for(device.facts) for device in devices}
    rows.cancel_left_alone(session, keys.values(), now - EVERY, now)
    recent = rows.latest(session, ARCHITECTURE.digest, keys.values(), now - EVERY, now)
    want = demand.Want(ARCHITECTURE.digest, ARCHITECTURE.canonical, SEED)
    for key, by_hardware in protocols.items():
        for protocol in by_hardware.values():
            if (key, protocol.digest) not in recent:
                made = demand.measurements(session, key, protocol.model_dump(mode="json"), protocol.digest, [want])
                measurement = made[want.digest]
                # Locked now: another sweep may have made one meanwhile.
                if not rows.has_one(session, measurement.id, now - EVERY, now):
                    reported.add_launch(session, measurement.id, None, key, Purpose.ANCHOR, now)


def count_failed(session: Session, device_id: str, provider: str, why: str | None, now: datetime) -> None:
    """Quarantines a device whose anchor on this provider has just failed, if it did so once too often there."""
    hardware = Provider(provider).hardware
    since = rows.trusted_since(session, device_id, now)
    measured = rows.measurements(session, ARCHITECTURE.digest, key_of_device(device_id))
    there = [row.id for row in measured if Provider(row.protocol["provider"]).hardware == hardware]
    # An accelerator may lack what it seemed to have; every processor that has the runtime measures the anchor.
    failed = rows.failed_in_a_row(session, there, since, now, unsupported=hardware == PROCESSOR)
    if failed >= MAX_FAILED:
        where = "" if hardware == PROCESSOR else f" on {hardware}"
        quarantine.put_in(session, device_id, f"its anchor{where} failed {failed} times: {why}")


def protocols_for(facts: Document) -> dict[str, MeasurementProtocol]:
    """How a device with these facts measures its anchor on its processor and on each of its accelerators, whatever the
    order of the facts; by `Provider.hardware`. Empty if it can run none.
    """
    runtimes = {fact["runtime"]: fact for fact in facts["runtimes"]}
    by_hardware: dict[str, MeasurementProtocol] = {}
    for runtime in (installed for installed in INSTALLATIONS if installed in runtimes):
        for provider in (name for name in _PROVIDERS if name in runtimes[runtime]["providers"]):
            protocol = _protocol(facts, runtime, provider, runtimes[runtime]["memory_methods"])
            if protocol is not None:
                by_hardware.setdefault(Provider(provider).hardware, protocol)
    return by_hardware


def _protocol(facts: Document, runtime: Runtime, provider: str, methods: Collection[str]) -> MeasurementProtocol | None:
    """The first that the device can run, of those that measure the anchor with this provider."""
    memories = [method for method in (_MEMORY if provider == PROCESSOR else _MEMORY_THERE) if method in methods]
    for memory, dtype in product(memories, _DTYPES):
        asked = {"runtime": runtime, "provider": provider, "dtype": dtype, "memory": memory}
        try:
            protocol = MeasurementProtocol.model_validate({**asked, **_PASSES})
        except ValidationError:  # devices may report what does not go together
            continue
        if can_run(facts, protocol):
            return protocol
    return None


def apply_result(session: Session, launch: ReportedLaunch, provider: str, refusal: str | None, now: datetime) -> None:
    """Quarantines the device if its anchor has failed, or moved, once too often. A launch under bad conditions
    is no evidence of a move.

    Args:
        launch: a processed one. provider: of its measurement. refusal: why its result cannot be true.
    """
    if refusal is not None or launch.result.outcome != LaunchOutcome.DONE:
        count_failed(session, launch.device_id, provider, refusal or launch.reason, now)
        return
    since = rows.trusted_since(session, launch.device_id, now)
    history = rows.first_and_latest_done(session, launch, since, REFERENCE)
    undisturbed = [result for result in (*history, launch.result) if result.conditions is None]
    moved = None if launch.result.conditions is not None else drift([*map(_latency_ms, undisturbed)])
    if moved is not None:
        hardware = Provider(provider).hardware
        quarantine.put_in(session, launch.device_id, moved if hardware == PROCESSOR else f"on {hardware} {moved}")


def anchor_view(session: Session, principal: Principal, id_or_name: str) -> AnchorView:
    """The history of a device's anchor, oldest first. NotFound if there is no such device."""
    device = get_device(session, principal, id_or_name)
    by = {protocol.digest for protocol in protocols_for(device.facts).values()}
    measured = [
        row
        for row in rows.measurements(session, ARCHITECTURE.digest, key_of_device(device.id))
        if not by or row.protocol_digest in by
    ]
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
        for measurement in measured
        for row in rows.history(session, measurement.id, SHOWN)
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
