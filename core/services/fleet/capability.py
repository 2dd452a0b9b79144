"""The protocols that a device can run, from its reported facts.

What a device can run is kept in this process: facts are read when they change, not with every lease.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache

from sqlalchemy.orm import Session

from edgefront.core.common.number_formats import QUANTISED
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import FORMER_MODES, DeviceFacts
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device
from edgefront.core.services.fleet.queries import OwnDevice, facts_of
from edgefront.core.store.sql import Document

_UNSUPPORTED = "unsupported:"
_MAX_EXTRA = 60  # DeviceFacts.extra holds 64


def device_keys(device: OwnDevice) -> tuple[str, str]:
    """The device keys of launches that this device may run: its own first, then its class's."""
    return key_of_device(device.id), key_of_class(device.device_class)


def can_run(facts: Document, protocol: MeasurementProtocol) -> bool:
    """Whether a device with these facts (`core.schemas.agent.DeviceFacts` as JSON) can measure by this protocol."""
    if protocol.threads > facts["cores"] or _UNSUPPORTED + protocol.digest[:16] in facts.get("extra", {}):
        return False
    if protocol.mode not in modes_of(facts):
        return False
    return any(
        runtime["runtime"] == protocol.runtime
        and protocol.provider in runtime["providers"]
        and protocol.memory in runtime["memory_methods"]
        and protocol.number_format in numbers_of(runtime, protocol.provider)
        and _reads_kv_cache(runtime, protocol)
        for runtime in facts["runtimes"]
    )


def modes_of(facts: Document) -> Sequence[str]:
    """The modes of the protocol that a device's agent knows."""
    modes: Sequence[str] = facts.get("modes", FORMER_MODES)
    return modes


def numbers_of(runtime: Document, provider: str) -> Sequence[str]:
    """The number formats of a provider of this runtime (`core.schemas.agent.RuntimeFacts` as JSON).

    For agents that do not report them (before protocol version 2) float32 only is assumed.
    """
    supported: Sequence[str] = runtime.get("numbers", {}).get(provider, ("float32",))
    return supported


def _reads_kv_cache(runtime: Document, protocol: MeasurementProtocol) -> bool:
    """Whether an agent can measure with the protocol's `kv_cache`."""
    return protocol.kv_cache in (None, *runtime.get("kv_caches", ()))


def lacking(devices: Sequence[Document], protocol: MeasurementProtocol) -> tuple[str, str] | None:
    """The first protocol field that no device supports together with the fields before it, and the supported values.
    None if one device supports all fields.
    """
    knowing = [facts for facts in devices if protocol.mode in modes_of(facts)]
    if not knowing:
        return "mode", ", ".join(sorted({mode for facts in devices for mode in modes_of(facts)})) or "none"
    offers = {
        (runtime["runtime"], provider, number, memory, _reads_kv_cache(runtime, protocol), facts["cores"])
        for facts in knowing
        for runtime in facts["runtimes"]
        for provider in runtime["providers"]
        for number in numbers_of(runtime, provider)
        for memory in runtime["memory_methods"]
    }
    number = "dtype" if protocol.weights == "full" else "weights"
    asked = (protocol.runtime, protocol.provider, protocol.number_format, protocol.memory)
    for index, (name, value) in enumerate(zip(("runtime", "provider", number, "memory"), asked, strict=True)):
        there = sorted({str(offer[index]) for offer in offers})
        offers = {offer for offer in offers if offer[index] == value}
        if not offers:
            if name in ("dtype", "weights"):
                there = [offered for offered in there if (offered in QUANTISED) == (name == "weights")]
            return name, ", ".join(["full", *there] if name == "weights" else there) or "none"
    offers = {offer for offer in offers if offer[-2]}
    if not offers:
        return "kv_cache", "f32 with dtype float32 or f16 with float16, or an agent of this release"
    cores = max(offer[-1] for offer in offers)
    return None if protocol.threads <= cores else ("threads", f"1 to {cores}")


def refusal(facts: Document, protocol: MeasurementProtocol) -> str:
    """The agent's message when the device turned out not to support the protocol; empty without one."""
    return str(facts.get("extra", {}).get(_UNSUPPORTED + protocol.digest[:16], ""))


def reported(facts: DeviceFacts) -> Document:
    """The facts that an agent reports as JSON, without notes as `without` makes them: those are the service's own."""
    extra = {name: value for name, value in facts.extra.items() if not name.startswith(_UNSUPPORTED)}
    return {**facts.model_dump(mode="json"), "extra": extra}


def without(facts: Document, protocol: MeasurementProtocol, message: str) -> Document | None:
    """These facts with a note that the device turned out not to support the protocol; None if `extra` is full.

    The note is dropped with the next facts that the agent sends, when its process restarts.
    """
    extra, key = dict(facts.get("extra", {})), _UNSUPPORTED + protocol.digest[:16]
    if key not in extra and len(extra) >= _MAX_EXTRA:
        return None
    extra[key] = message[:200]
    return {**facts, "extra": extra}


MAX_ANSWERS = 50_000

_lock = threading.Lock()
_answers: OrderedDict[tuple[str, str | None, str], bool] = OrderedDict()
"""By device id, digest of its facts and digest of a protocol."""


def runnable(session: Session, device: OwnDevice, protocols: Iterable[MeasurementProtocol]) -> set[str]:
    """Digests of those that `can_run` with the device's facts, which are read once at most."""
    facts = cache(lambda: facts_of(session, device.id))

    def able(protocol: MeasurementProtocol) -> bool:
        key = (device.id, device.facts_digest, protocol.digest)
        with _lock:
            answer = _answers.get(key)
            if answer is not None:
                _answers.move_to_end(key)
                return answer
        answer = can_run(facts(), protocol)
        with _lock:
            _answers[key] = answer
            if len(_answers) > MAX_ANSWERS:
                _answers.popitem(last=False)
        return answer

    return {protocol.digest for protocol in protocols if able(protocol)}
