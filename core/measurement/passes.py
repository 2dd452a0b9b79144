"""What a pass of a protocol is for an architecture: whether it can be made at all, what it costs, how long a source."""

from __future__ import annotations

from edgefront.core.cost.costs import Costs, costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture


def protocol_costs(architecture: Architecture, protocol: MeasurementProtocol) -> Costs:
    """Costs of one pass as the protocol makes it.

    Raises `InvalidInput` that names the field of the protocol which does not go with this architecture: a mode or a
    memory that it does not have, lengths that its positions do not reach.
    """
    return costs(
        architecture,
        sequence_length=protocol.sequence_length,
        batch=protocol.batch,
        dtype=protocol.dtype,
        logits=protocol.logits,
        mode=protocol.mode,
        memory_length=protocol.memory_length,
        weights=protocol.quantisation,
        block_size=protocol.block_size,
    )


def source_length(protocol: MeasurementProtocol) -> int:
    """Tokens of the source of a translation model: as many as of the sequence, in decode as of the memory."""
    return protocol.memory_length if protocol.mode == "decode" else protocol.sequence_length
