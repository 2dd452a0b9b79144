"""What a pass of a protocol is for an architecture: whether it can be made at all, what it costs, how long a source."""

from __future__ import annotations

from edgefront.core.cost.costs import Costs, costs
from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Sru, Srupp
from edgefront.core.spaces.gguf import gguf_fault


def protocol_costs(architecture: Architecture, protocol: MeasurementProtocol) -> Costs:
    """Costs of one pass as the protocol makes it.

    Raises `InvalidInput` that names the field of the protocol which does not go with this architecture: a mode or a
    memory that it does not have, lengths that its positions do not reach, a runtime that cannot express it.
    """
    fault = runtime_fault(architecture, protocol)
    if fault is not None:
        raise fault
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


def runtime_fault(architecture: Architecture, protocol: MeasurementProtocol) -> InvalidInput | None:
    """Why the protocol's runtime cannot run this architecture; None if it can."""
    models = [architecture] if architecture.source is None else [architecture, architecture.source]
    if protocol.runtime == "openvino" and any(isinstance(b, Sru | Srupp) for model in models for b in model.blocks):
        reason = "OpenVINO cannot read the recurrence of SRU and SRU++ (a Scan that uses a weight from outside it)"
        return InvalidInput(f"runtime: {reason}", field="runtime", value="openvino", allowed="onnxruntime or pytorch")
    if protocol.runtime == "llamacpp":
        fault = gguf_fault(architecture, protocol.number_format)
        if fault is not None:
            return InvalidInput(
                f"runtime: llamacpp reads GGUF files, and {fault}",
                field="runtime",
                value="llamacpp",
                allowed="another runtime, or one of the named models gpt2-* (`edgefront measure`): no search space has "
                "models that GGUF expresses yet",
            )
    return None


def source_length(protocol: MeasurementProtocol) -> int:
    """Tokens of the source of a translation model: as many as of the sequence, in decode as of the memory."""
    return protocol.memory_length if protocol.mode == "decode" else protocol.sequence_length
