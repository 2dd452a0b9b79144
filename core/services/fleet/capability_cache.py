"""What devices can run, kept in this process: their facts are read when they change, not with every lease."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache

import orjson
from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.fleet.capability import can_run, descriptions_of
from edgefront.core.services.fleet.queries import OwnDevice, facts_of
from edgefront.core.spaces.versions import FIELDS, fields_of
from edgefront.core.store.sql import Document

KEPT = 50_000

_lock = threading.Lock()
_known: OrderedDict[tuple[str, str | None, str], int] = OrderedDict()
"""Device id, digest of its facts (None of facts that an old release stored), and the question: the digest of a
protocol, or which descriptions it reads."""


def runnable(session: Session, device: OwnDevice, protocols: Iterable[MeasurementProtocol]) -> set[str]:
    """Digests of those that `capability.can_run` with the device's facts, which are read once at most."""
    facts = cache(lambda: facts_of(session, device.id))

    def able(protocol: MeasurementProtocol) -> bool:
        return bool(_kept(device, protocol.digest, facts, lambda device_facts: can_run(device_facts, protocol)))

    return {protocol.digest for protocol in protocols if able(protocol)}


def can_read_on(session: Session, device: OwnDevice, description: str) -> bool:
    """`capability.can_read` of a description as JSON with the device's facts."""
    fields = _kept(device, "descriptions", lambda: facts_of(session, device.id), descriptions_of)
    return fields >= FIELDS or fields_of(orjson.loads(description)) <= fields


def _kept(device: OwnDevice, question: str, facts: Callable[[], Document], answer: Callable[[Document], int]) -> int:
    key = (device.id, device.facts_digest, question)
    with _lock:
        value = _known.get(key)
        if value is not None:
            _known.move_to_end(key)
            return value
    value = answer(facts())
    with _lock:
        _known[key] = value
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return value
