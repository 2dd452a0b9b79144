"""Anchors: every device measures one small fixed model regularly, and its history says whether it is still the same.

It does so on its processor and on each accelerator that it has. Where the anchor has moved by more than its noise the
device is marked, and so are its results from then on. A device whose anchor fails, cannot be true or is left alone
three times in a row is quarantined: what it reports of others says little. What an accelerator turns out not to support
is no failure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import product

from pydantic import ValidationError
from sqlalchemy.orm import Session

from edgefront.core.measurement.drift import MIN_REFERENCE, REFERENCE, drift, in_words
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol, MemoryMethod
from edgefront.core.measurement.provider import PROCESSOR, Provider
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.runtimes import INSTALLATIONS, Runtime
from edgefront.core.measurement.statistics import median
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import quarantine
from edgefront.core.services.measuring.queries import anchors as rows
from edgefront.core.services.measuring.queries import validation
from edgefront.core.services.measuring.queries.launches import ReportedLaunch
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import LaunchOutcome, LaunchState, Purpose
from edgefront.core.store.sql import Document
from edgefront.core.wire.service import AnchorPoint, AnchorView

EVERY = timedelta(minutes=30)
"""Time between two launches of a device that is online."""
SHOWN = 100
MAX_FAILED = 3
MAX_MARK = 400
"""Characters of what an agent says of its conditions that a launch's mark keeps."""
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
LEFT_ALONE = "the device measured other models meanwhile, and not its anchor"


def request(session: Session, now: datetime) -> None:
    """Requests a launch of the anchor for the processor and each accelerator of a device that is online and has had
    none there for `EVERY`. The sweep calls it.
    """
    devices = rows.candidates(session, now - ONLINE, now - EVERY)
    keys = {device.id: key_of_device(device.id) for device in devices}
    if not keys:
        return
    protocols = {keys[device.id]: protocols_for(device.facts) for device in devices}
    _end_left_alone(session, {keys[device.id]: device for device in devices}, protocols, now)
    recent = rows.latest(session, ARCHITECTURE.digest, keys.values(), now - EVERY)
    want = demand.Want(ARCHITECTURE.digest, ARCHITECTURE.canonical, SEED)
    for key, by_hardware in protocols.items():
        for protocol in by_hardware.values():
            if (key, protocol.digest) not in recent:
                made = demand.measurements(session, key, protocol.model_dump(mode="json"), protocol.digest, [want])
                measurement = made[want.digest]
                # Locked now: another sweep may have made one meanwhile.
                if not rows.has_one(session, measurement.id, now - EVERY):
                    validation.add_launch(session, measurement.id, None, key, Purpose.ANCHOR, now)


def _end_left_alone(
    session: Session,
    devices: Mapping[str, rows.AnchoredDevice],
    protocols: Mapping[str, Mapping[str, MeasurementProtocol]],
    now: datetime,
) -> None:
    """An anchor that its device has not measured within `EVERY`, though it still had results after that, has failed.
    One by a protocol that the device cannot run any more is withdrawn.

    By device key, `devices` are rows of `anchors.candidates` and `protocols` those of `protocols_for`.
    """
    for row in rows.wanted(session, ARCHITECTURE.digest, devices, now - EVERY):
        device = devices[row.device_key]
        if row.protocol_digest not in {protocol.digest for protocol in protocols[row.device_key].values()}:
            rows.end_wanted(
                session, row.id, LaunchState.CANCELLED, "the device cannot run this any more", device.id, now
            )
        elif device.reported_at is not None and device.reported_at > row.created_at + EVERY:
            rows.end_wanted(session, row.id, LaunchState.FAILED, LEFT_ALONE, device.id, now)
            count_failed(session, device.id, row.protocol["provider"], LEFT_ALONE)


def count_failed(session: Session, device_id: str, provider: str, why: str | None) -> None:
    """Quarantines a device whose anchor on this provider has just failed, if it did so once too often there."""
    hardware = Provider(provider).hardware
    device = rows.device(session, device_id)
    since = device.trusted_at or device.enrolled_at
    measured = rows.measurements(session, ARCHITECTURE.digest, key_of_device(device_id))
    there = [row.id for row in measured if Provider(row.protocol["provider"]).hardware == hardware]
    # An accelerator may lack what it seemed to have; every processor that has the runtime measures the anchor.
    failed = rows.failed_in_a_row(session, there, since, unsupported=hardware == PROCESSOR)
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


def apply_results(
    session: Session, launches: Iterable[ReportedLaunch], providers: Mapping[str, str], refusals: Mapping[str, str]
) -> None:
    """Marks devices whose anchor has moved, and quarantines those whose anchor fails or cannot be true. Bad conditions,
    which are a mark of their own, begin none.

    Args:
        launches: settled rows of `launches.lock_reported`. providers: of their measurements, by id.
        refusals: by id, why a result cannot be true.
    """
    for launch in sorted(launches, key=lambda launch: str(launch.device_id)):
        provider, refusal = providers[launch.measurement_id], refusals.get(launch.id)
        if refusal is not None or launch.result.outcome != LaunchOutcome.DONE:
            count_failed(session, launch.device_id, provider, refusal or launch.reason)
            continue
        device = rows.device(session, launch.device_id)
        usual = rows.first_and_latest_done(session, launch, device.trusted_at or device.enrolled_at, REFERENCE)
        if len(usual) < MIN_REFERENCE:
            continue  # too few by this protocol: what another one has said of the device stays
        moved = drift([*map(_latency_ms, usual), _latency_ms(launch.result)])
        is_explained = moved is not None and launch.result.conditions is not None
        before, hardware = device.drift or {}, Provider(provider).hardware
        if moved != before.get(hardware) and not is_explained:
            others = {name: text for name, text in before.items() if name != hardware}
            validation.set_drift(session, launch.device_id, others if moved is None else {**others, hardware: moved})


def mark_of(launch: ReportedLaunch, device: validation.ReportingDevice | None, provider: str) -> str | None:
    """What to know of the conditions that a launch was measured in: as its agent says, and as the anchor does of what
    it was measured on.
    """
    conditions = (launch.result.conditions or "")[:MAX_MARK]
    drifted = None
    if device is not None and launch.purpose != Purpose.ANCHOR:
        hardware = Provider(provider).hardware
        drifted = in_words({name: text for name, text in (device.drift or {}).items() if name == hardware})
    return "; ".join(text for text in (conditions, drifted) if text) or None


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
        drift=in_words(device.drift),
        points=tuple(sorted(points, key=lambda point: (point.measured_at, point.launch_id))),
    )


def _latency_ms(result: LaunchResult) -> float:
    return median(result.timed.samples_ms)


def _number(result: LaunchResult, name: str) -> float | None:
    value = result.environment.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
