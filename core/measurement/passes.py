"""What a pass of a protocol is for an architecture: whether it can be made at all, what it costs, how long a source."""

from __future__ import annotations

from dataclasses import replace

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
"""FLOPs or bytes of a pass: what databases count."""


def protocol_costs(architecture: Architecture, protocol: MeasurementProtocol) -> Costs:
    """Costs of one pass as the protocol makes it; of a whole generation where that is what it makes.

    Raises `InvalidInput` that names the field of the protocol which does not go with this architecture: a mode or a
    memory that it does not have, lengths that its positions do not reach, a runtime that cannot express it, more work
    than can be counted.
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
            "this model, more than can be counted",
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
    """FLOPs of the prompt and of every further token (each as the middle one), state after all of them."""
    fault = generation_fault(architecture, protocol)
    if fault is not None:
        raise fault
    prompt, token = generation_passes(architecture, protocol)
    whole = protocol.model_copy(update={"memory_length": last_length(protocol) - 1, "sequence_length": 1})
    return replace(
        prompt,
        mode="generate",
        flops=prompt.flops + (protocol.new_tokens - 1) * token.flops,
        state_bytes=_pass_costs(architecture, whole, "decode").state_bytes,
    )


def generation_passes(architecture: Architecture, protocol: MeasurementProtocol) -> tuple[Costs, Costs]:
    """Costs of the pass over the prompt, and of that of each further token (as the middle one).

    Raises `InvalidInput` as `protocol_costs` does, where one of the passes cannot be made.
    """
    prompt = _pass_costs(architecture, protocol, "decode" if protocol.memory_length else "prefill")
    return prompt, _pass_costs(architecture, token_pass(protocol), "decode")


def generation_fault(architecture: Architecture, protocol: MeasurementProtocol) -> InvalidInput | None:
    """Why this architecture cannot generate as the protocol says; None if it can."""
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
        f"sequence_length: {context}{least} are {length} tokens, and it has {most} learned positions",
        field="sequence_length",
        value=protocol.sequence_length,
        allowed=f"at most {most} tokens of context, prompt and generation together",
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
                allowed=f"another runtime, or {expressible()}",
            )
        return _kv_cache_fault(architecture, protocol)
    return None


def _kv_cache_fault(architecture: Architecture, protocol: MeasurementProtocol) -> InvalidInput | None:
    """llama.cpp quantises keys and values in blocks of a head's numbers, and refuses heads that blocks do not fill."""
    if protocol.kv_cache not in GGUF_QUANTISED:
        return None
    for index, block in enumerate(architecture.blocks):
        width = architecture.d_head(block) if isinstance(block, Attention) else GGUF_BLOCK
        if width % GGUF_BLOCK:
            return InvalidInput(
                f"kv_cache: llama.cpp keeps keys and values as {protocol.kv_cache} in blocks of {GGUF_BLOCK}, and the "
                f"heads of blocks.{index} have {width} features",
                field="kv_cache",
                value=protocol.kv_cache,
                allowed=f"f16, f32, or heads of a multiple of {GGUF_BLOCK} features",
            )
    return None


def source_length(protocol: MeasurementProtocol) -> int:
    """Tokens of the source of a translation model: as many as of the sequence, in decode as of the memory."""
    return protocol.memory_length if protocol.mode == "decode" else protocol.sequence_length
