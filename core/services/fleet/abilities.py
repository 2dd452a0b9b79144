"""What devices can run, kept in this process: their facts are read when they change, not with every lease."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.fleet.capability import can_run, descriptions_of
from edgefront.core.services.fleet.queries import OwnDevice, facts_of
from edgefront.core.spaces.versions import fields_of

KEPT = 50_000

_lock = threading.Lock()
_known: OrderedDict[tuple[str, str | None, str], int] = OrderedDict()
"""Device id, digest of its facts (None of facts that an old release stored), and the question: the digest of a
protocol, or which descriptions it reads."""


def can_run_on(session: Session, device: OwnDevice, protocol: MeasurementProtocol) -> bool:
    """`capability.can_run` with the device's facts."""
    return bool(_kept(session, device, protocol.digest, lambda facts: can_run(facts, protocol)))


def can_read_on(session: Session, device: OwnDevice, description: Mapping[str, Any]) -> bool:
    """`capability.can_read` with the device's facts."""
    return fields_of(description) <= _kept(session, device, "descriptions", descriptions_of)


def _kept(session: Session, device: OwnDevice, question: str, answer: Callable[[Mapping[str, Any]], int]) -> int:
    key = (device.id, device.facts_digest, question)
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
            return found
    found = answer(facts_of(session, device.id))
    with _lock:
        _known[key] = found
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return found
