"""Forward passes of an architecture under a protocol: checks whether a pass is possible, costs, and source length."""

from __future__ import annotations

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Sru, Srupp
from edgefront.core.architectures.catalogue import expressible
from edgefront.core.architectures.cost.costs import CostOptions, Costs, costs
from edgefront.core.architectures.gguf import gguf_fault
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GGUF_BLOCK, GGUF_QUANTISED
from edgefront.core.measurement.generation import last_length, token_pass
from edgefront.core.measurement.protocol import MeasurementProtocol

MAX_INT = (1 << 63) - 1
"""Maximum FLOPs or bytes of a forward pass: the largest integer that databases store."""


def protocol_costs(architecture: Architecture, protocol: MeasurementProtocol) -> Costs:
    """Costs of one forward pass under the protocol, or of a whole generation in mode generate.

    Raises `InvalidInput`, which names the field of the protocol, if the architecture does not support the mode, the
    memory or the sequence length, if the runtime cannot run the architecture, or if a cost exceeds `MAX_INT`.
    """
    fault = runtime_fault(architecture, protocol)
    if fault is not None:
        raise fault
    generates = protocol.mode == "generate"
    costs = (
        _generation_costs(architecture, protocol) if generates else _pass_costs(architecture, protocol, protocol.mode)
    )
    most = max(costs.flops, costs.weight_bytes, costs.state_bytes)
    if most > MAX_INT:
        raise InvalidInput(
            f"batch: {protocol.batch} sequences of {protocol.sequence_length} tokens take {most:.1e} FLOPs or bytes by "
            f"this model, but at most {MAX_INT:.1e} can be counted",
            field="batch",
            value=protocol.batch,
            allowed="fewer and shorter sequences, or a smaller model",
        )
    return costs


def _pass_costs(architecture: Architecture, protocol: MeasurementProtocol, mode: str) -> Costs:
    return costs(
        architecture,
        CostOptions(
            sequence_length=protocol.sequence_length,
            batch=protocol.batch,
            dtype=protocol.dtype,
            logits=protocol.logits,
            mode=mode,
            memory_length=protocol.memory_length,
            weights=protocol.weights,
            block_size=protocol.block_size,
            kv_cache=protocol.kv_cache,
        ),
    )


def _generation_costs(architecture: Architecture, protocol: MeasurementProtocol) -> Costs:
    """Costs of a whole generation: FLOPs of the prompt and all later tokens, and the state after the final token."""
    fault = generation_fault(architecture, protocol)
    if fault is not None:
        raise fault
    prompt, token = generation_passes(architecture, protocol)
    whole = protocol.model_copy(update={"memory_length": last_length(protocol) - 1, "sequence_length": 1})
    flops = prompt.flops + (protocol.new_tokens - 1) * token.flops
    state_bytes = _pass_costs(architecture, whole, "decode").state_bytes
    return prompt.model_copy(update={"mode": "generate", "flops": flops, "state_bytes": state_bytes})


def generation_passes(architecture: Architecture, protocol: MeasurementProtocol) -> tuple[Costs, Costs]:
    """Costs of the forward pass over the prompt, and of the forward pass of a token in the middle of the generation.

    Raises the same `InvalidInput` as `protocol_costs` if either pass is impossible.
    """
    prompt = _pass_costs(architecture, protocol, "decode" if protocol.memory_length else "prefill")
    return prompt, _pass_costs(architecture, token_pass(protocol), "decode")


def generation_fault(architecture: Architecture, protocol: MeasurementProtocol) -> InvalidInput | None:
    """The error if this architecture cannot generate text under the protocol; otherwise None."""
    if not architecture.causal or architecture.source is not None or architecture.output.kind != "tokens":
        reason = "a causal model without a source, whose output is the next token"
        return InvalidInput(
            f"mode: generate needs {reason}", field="mode", value="generate", allowed=f"forward, or {reason}"
        )
    length, most = last_length(protocol), architecture.max_length
    if most is None or length <= most:
        return None
    context = f"{protocol.memory_length} of context and " if protocol.memory_length else ""
    least = f"{protocol.sequence_length} of the prompt and {protocol.new_tokens} new ones"
    return InvalidInput(
        f"sequence_length: {context}{least} are {length} tokens, but the model has only {most} learned positions",
        field="sequence_length",
        value=protocol.sequence_length,
        allowed=f"at most {most} tokens of context, prompt and generation together",
    )


def runtime_fault(architecture: Architecture, protocol: MeasurementProtocol) -> InvalidInput | None:
    """The error if the protocol's runtime cannot run this architecture; otherwise None."""
    models = [architecture] if architecture.source is None else [architecture, architecture.source]
    if protocol.runtime == "openvino" and any(isinstance(b, Sru | Srupp) for model in models for b in model.blocks):
        reason = "OpenVINO cannot read the recurrence of SRU and SRU++ (a Scan that uses a weight from outside it)"
        return InvalidInput(f"runtime: {reason}", field="runtime", value="openvino", allowed="onnxruntime or pytorch")
    if protocol.runtime == "llamacpp":
        fault = gguf_fault(architecture, protocol.number_format)
        if fault is not None:
            return InvalidInput(
                f"runtime: llamacpp reads only GGUF files, but {fault}",
                field="runtime",
                value="llamacpp",
                allowed=f"another runtime, or {expressible()}",
            )
        return _kv_cache_fault(architecture, protocol)
    return None


def _kv_cache_fault(architecture: Architecture, protocol: MeasurementProtocol) -> InvalidInput | None:
    """The error if a head's width is no multiple of llama.cpp's block size for quantised keys and values; else None."""
    if protocol.kv_cache not in GGUF_QUANTISED:
        return None
    for index, block in enumerate(architecture.blocks):
        width = architecture.d_head(block) if isinstance(block, Attention) else GGUF_BLOCK
        if width % GGUF_BLOCK:
            return InvalidInput(
                f"kv_cache: llama.cpp stores keys and values as {protocol.kv_cache} in blocks of {GGUF_BLOCK}, but the "
                f"heads of blocks.{index} have {width} features",
                field="kv_cache",
                value=protocol.kv_cache,
                allowed=f"f16, f32, or heads of a multiple of {GGUF_BLOCK} features",
            )
    return None


def source_length(protocol: MeasurementProtocol) -> int:
    """Number of source tokens of a translation model: the sequence length, or the memory length in mode decode."""
    return protocol.memory_length if protocol.mode == "decode" else protocol.sequence_length
