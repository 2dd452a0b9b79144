"""Anchors: every device measures one small fixed model regularly, and its history says whether it is still the same.

A device whose anchor has moved by more than its noise is marked, and so are its results from then on. One whose anchor
fails, cannot be true or is left alone three times in a row is quarantined: what it reports of others says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.measurement.drift import LEAST_REFERENCE, REFERENCE, drift
from edgefront.core.measurement.protocol import MeasurementProtocol, MemoryMethod
from edgefront.core.measurement.record import conditions_of
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.measurement.statistics import median
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import quarantine
from edgefront.core.services.measuring.queries import anchors as rows
from edgefront.core.services.measuring.queries import belief
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import Purpose
from edgefront.core.wire.service import AnchorPoint, AnchorView

EVERY = timedelta(minutes=30)
"""While a device is online."""
SHOWN = 100
MOST_FAILED = 3
MOST_MARK = 400
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
_RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "pytorch", "openvino")
_MEMORY: tuple[MemoryMethod, ...] = ("anonymous", "resident")
LEFT_ALONE = "the device measured other models meanwhile, and not its anchor"


def request(session: Session, now: datetime) -> None:
    """A wanted launch of the anchor for each device that is online and has had none for `EVERY`. For the sweep."""
    found = rows.candidates(session, now - ONLINE, now - EVERY)
    keys = {one.id: key_of_device(one.id) for one in found}
    protocols = {one.id: protocol_for(one.facts) for one in found}
    if not keys:
        return
    _end_left_alone(session, {keys[one.id]: one for one in found}, protocols, now)
    recent = rows.latest(session, ARCHITECTURE.digest, keys.values(), now - EVERY)
    for one in found:
        protocol = protocols[one.id]
        if protocol is None or keys[one.id] in recent:
            continue
        want = demand.Want(ARCHITECTURE.digest, ARCHITECTURE.canonical, SEED)
        made = demand.measurements(session, keys[one.id], protocol.model_dump(mode="json"), protocol.digest, [want])
        belief.add_launch(session, made[want.digest].id, None, keys[one.id], Purpose.ANCHOR, now)


def _end_left_alone(
    session: Session, devices: Mapping[str, Any], protocols: Mapping[str, MeasurementProtocol | None], now: datetime
) -> None:
    """An anchor that its device has not measured within `EVERY`, though it still had results after that, has failed.
    One by a protocol that the device cannot run any more is withdrawn.

    `devices`: by device key, rows of `anchors.candidates`.
    """
    for row in rows.wanted(session, ARCHITECTURE.digest, devices, now - EVERY):
        device = devices[row.device_key]
        protocol = protocols[device.id]
        if protocol is None or protocol.digest != row.protocol_digest:
            rows.end_wanted(session, row.id, "cancelled", "the device cannot run this any more", device.id, now)
        elif device.reported_at is not None and device.reported_at > row.created_at + EVERY:
            rows.end_wanted(session, row.id, "failed", LEFT_ALONE, device.id, now)
            _count_failed(session, device.id, row.device_key, device.trusted_at or device.enrolled_at, LEFT_ALONE)


def _count_failed(session: Session, device_id: str, device_key: str, since: datetime, why: str | None) -> None:
    """Quarantines a device whose anchor has just failed, if that was once too often."""
    failed = rows.failed_in_a_row(session, ARCHITECTURE.digest, device_key, since)
    if failed >= MOST_FAILED:
        quarantine.put_in(session, device_id, f"its anchor failed {failed} times: {why}")


def protocol_for(facts: Mapping[str, Any]) -> MeasurementProtocol | None:
    """How a device with these facts measures its anchor, whatever their order; None if it can run none."""
    methods = {runtime["runtime"]: runtime["memory_methods"] for runtime in facts["runtimes"]}
    for runtime in _RUNTIMES:
        for memory in _MEMORY:
            if memory in methods.get(runtime, ()):
                protocol = MeasurementProtocol(runtime=runtime, memory=memory, sequence_length=64, warmup=5, repeats=20)
                if can_run(facts, protocol):
                    return protocol
    return None


def take_in(session: Session, launches: Iterable[Any], refusals: Mapping[str, str]) -> None:
    """Marks devices whose anchor has moved, and quarantines those whose anchor fails or cannot be true. Bad conditions,
    which are a mark of their own, begin none.

    `launches` are settled rows of `launches.lock_reported`; `refusals`: by id, why a result cannot be true.
    """
    for launch in sorted(launches, key=lambda one: str(one.device_id)):
        device = rows.device(session, launch.device_id)
        since = device.trusted_at or device.enrolled_at
        refusal = refusals.get(launch.id)
        if refusal is not None or launch.result["outcome"] != "done":
            _count_failed(session, launch.device_id, launch.device_key, since, refusal or launch.reason)
            continue
        usual = rows.first_and_latest_done(session, launch, since, REFERENCE)
        if len(usual) < LEAST_REFERENCE:
            continue  # too few by this protocol: what another one has said of the device stays
        moved = drift([*map(_latency_ms, usual), _latency_ms(launch.result)])
        is_explained = moved is not None and conditions_of(launch.result) is not None
        if moved != device.drift and not is_explained:
            belief.set_drift(session, launch.device_id, moved)


def mark_of(launch: Any, device: Any) -> str | None:
    """What to know of the conditions that a launch was measured in: as its agent says, and as its anchor does."""
    conditions = (conditions_of(launch.result) or "")[:MOST_MARK]
    drifted = None if device is None or launch.purpose == Purpose.ANCHOR else device.drift
    return "; ".join(text for text in (conditions, drifted) if text) or None


def anchor_view(session: Session, principal: Principal, id_or_name: str) -> AnchorView:
    """The history of a device's anchor, oldest first. NotFound if there is no such device."""
    device = get_device(session, principal, id_or_name)
    protocol = protocol_for(device.facts)
    by = None if protocol is None else protocol.digest
    found = rows.history(session, ARCHITECTURE.digest, key_of_device(device.id), by, SHOWN)
    return AnchorView(
        device_id=device.id,
        digest=ARCHITECTURE.digest,
        drift=device.drift,
        points=tuple(
            AnchorPoint(
                launch_id=row.id,
                measured_at=row.finished_at,
                latency_ms=_latency_ms(row.result),
                clock_mhz=_number(row.result, "clock_mhz"),
                load_1m=_number(row.result, "load_1m"),
                temperature_c=_number(row.result, "temperature_c"),
                mark=row.mark,
            )
            for row in found
        ),
    )


def _latency_ms(result: Mapping[str, Any]) -> float:
    samples: Sequence[float] = result["latency"]["samples_ms"]
    return median(samples)


def _number(result: Mapping[str, Any], name: str) -> float | None:
    value = result["environment"].get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
