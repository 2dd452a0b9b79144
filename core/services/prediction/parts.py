"""Where a candidate's milliseconds and bytes go, as predicted from what was measured on its device."""

from __future__ import annotations

from edgefront.core.cost.shapes import Shapes
from edgefront.core.prediction.checks import MIN_ARCHITECTURES
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, target_of
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.prediction.predictions import part_views
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import Database
from edgefront.core.wire.candidates import CandidateParts, MemoryPart

MEANINGS = {
    "weights": "weights",
    "runtime": "the runtime itself",
    "stream": "the residual stream",
    "inner": "activations of the widest block",
    "attention_weights": "attention weights",
    "state": "keys and values that are kept",
    "logits": "scores of tokens",
    "blocks": "a share for each block",
    "output": "the output layer in another order",
    "copies": "weights held a second time",
}
"""What holds memory, in words: those of `core.prediction.memory.MEMORY_FEATURES`, and the weights."""
_TOO_FEW = (
    f"Nothing is predicted here yet: that needs {MIN_ARCHITECTURES} different architectures, measured on this device "
    "by this protocol."
)


def candidate_parts(database: Database, principal: Principal, candidate_id: str, fits: Fits) -> CandidateParts:
    """Takes up to seconds. NotFound if there is no such candidate or it is another owner's."""
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
