"""Decides which measurement protocols a device can run, from the hardware and runtimes that the device's agent reports.

The answers are cached in this process, so a device's reported data is read only after a change, not at every lease.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache

from sqlalchemy.orm import Session

from edgefront.core.common.number_formats import QUANTISED
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import DeviceFacts
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device
from edgefront.core.services.fleet.queries import OwnDevice, facts_of
from edgefront.core.store.sql import Document

_UNSUPPORTED = "unsupported:"
_MAX_EXTRA = 60  # DeviceFacts.extra holds 64


def device_keys(device: OwnDevice) -> tuple[str, str]:
    """Returns the device keys of launches that this device may run: its own key, then the key of its class."""
    return key_of_device(device.id), key_of_class(device.device_class)


def can_run(facts: Document, protocol: MeasurementProtocol) -> bool:
    """Whether a device with these facts (`core.schemas.agent.DeviceFacts` as JSON) can run this protocol."""
    if protocol.threads > facts["cores"] or _UNSUPPORTED + protocol.digest[:16] in facts.get("extra", {}):
        return False
    if protocol.mode not in facts["modes"]:
        return False
    return any(
        runtime["runtime"] == protocol.runtime
        and protocol.provider in runtime["providers"]
        and protocol.memory in runtime["memory_methods"]
        and protocol.number_format in numbers_of(runtime, protocol.provider)
        and _reads_kv_cache(runtime, protocol)
        for runtime in facts["runtimes"]
    )


def numbers_of(runtime: Document, provider: str) -> Sequence[str]:
    """Returns the number formats of a provider of this runtime (`core.schemas.agent.RuntimeFacts` as JSON)."""
    supported: Sequence[str] = runtime.get("numbers", {}).get(provider, ("float32",))
    return supported


def _reads_kv_cache(runtime: Document, protocol: MeasurementProtocol) -> bool:
    """Whether the runtime supports the number format of the protocol's key-value cache."""
    return protocol.kv_cache in (None, *runtime.get("kv_caches", ()))


def first_unsupported(devices: Sequence[Document], protocol: MeasurementProtocol) -> tuple[str, str] | None:
    """Returns a pair: the first protocol field that no device supports in combination with the preceding fields, and
    the supported values. Returns None if one device supports all fields.
    """
    with_mode = [facts for facts in devices if protocol.mode in facts["modes"]]
    if not with_mode:
        return "mode", ", ".join(sorted({mode for facts in devices for mode in facts["modes"]})) or "none"
    offers = {
        (runtime["runtime"], provider, number, memory, _reads_kv_cache(runtime, protocol), facts["cores"])
        for facts in with_mode
        for runtime in facts["runtimes"]
        for provider in runtime["providers"]
        for number in numbers_of(runtime, provider)
        for memory in runtime["memory_methods"]
    }
    number = "dtype" if protocol.weights == "full" else "weights"
    required = (protocol.runtime, protocol.provider, protocol.number_format, protocol.memory)
    for index, (name, value) in enumerate(zip(("runtime", "provider", number, "memory"), required, strict=True)):
        supported = sorted({str(offer[index]) for offer in offers})
        offers = {offer for offer in offers if offer[index] == value}
        if not offers:
            if name in ("dtype", "weights"):
                supported = [offered for offered in supported if (offered in QUANTISED) == (name == "weights")]
            return name, ", ".join(["full", *supported] if name == "weights" else supported) or "none"
    offers = {offer for offer in offers if offer[-2]}
    if not offers:
        return "kv_cache", "f32 with dtype float32 or f16 with float16, or an agent of this release"
    cores = max(offer[-1] for offer in offers)
    return None if protocol.threads <= cores else ("threads", f"1 to {cores}")


def unsupported_reason(facts: Document, protocol: MeasurementProtocol) -> str:
    """Returns the agent's message after a failed attempt to run the protocol; empty if no attempt has failed."""
    return str(facts.get("extra", {}).get(_UNSUPPORTED + protocol.digest[:16], ""))


def reported_facts(facts: DeviceFacts) -> Document:
    """Returns an agent's facts as JSON, without the entries that only `mark_unsupported` may add."""
    extra = {name: value for name, value in facts.extra.items() if not name.startswith(_UNSUPPORTED)}
    return {**facts.model_dump(mode="json"), "extra": extra}


def mark_unsupported(facts: Document, protocol: MeasurementProtocol, message: str) -> Document | None:
    """Returns the device's facts with a note that the protocol is unsupported; None if `extra` has no room for a note.

    A restarted agent reports its facts again, without this note.
    """
    extra, key = dict(facts.get("extra", {})), _UNSUPPORTED + protocol.digest[:16]
    if key not in extra and len(extra) >= _MAX_EXTRA:
        return None
    extra[key] = message[:200]
    return {**facts, "extra": extra}


MAX_ANSWERS = 50_000

_lock = threading.Lock()
_answers: OrderedDict[tuple[str, str | None, str], bool] = OrderedDict()
"""Cache: (device id, digest of the device's facts, digest of a protocol) → result of `can_run`."""


def runnable(session: Session, device: OwnDevice, protocols: Iterable[MeasurementProtocol]) -> set[str]:
    """Returns the digests of the protocols that the device can run. Reads the device's facts at most once."""
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
