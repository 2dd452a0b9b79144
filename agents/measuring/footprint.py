"""A lower bound of a model's memory, to refuse models that cannot fit before they exhaust the device's memory."""

from __future__ import annotations

from math import prod

from edgefront.agents.measuring.inputs import state_sizes
from edgefront.core.cost.shapes import Shapes
from edgefront.core.cost.state import kept, kept_bytes
from edgefront.core.graph.formats import OF_DTYPE, bytes_of
from edgefront.core.measurement.generation import prompt_pass, token_pass
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward

_VOCABULARY = ("tokens", "masked_tokens")


def least_footprint_bytes(architecture: Architecture, protocol: MeasurementProtocol) -> int:
    """Weights, the state that a pass reads, and its largest activation with its input: a lower bound for every
    runtime.
    """
    passes = [prompt_pass(protocol), token_pass(protocol)] if protocol.mode == "generate" else [protocol]
    weights = protocol_costs(architecture, protocol).weight_bytes
    return weights + max(_beside_weights(architecture, pass_) for pass_ in passes)


def _beside_weights(architecture: Architecture, protocol: MeasurementProtocol) -> int:
    item = bytes_of(1, OF_DTYPE[protocol.dtype])
    rows = protocol.batch * protocol.sequence_length
    hidden = rows * architecture.d_model
    inner = max((rows * block.d_inner for block in architecture.blocks if isinstance(block, FeedForward)), default=0)
    # The scores of one head only: fused attention kernels need no more.
    attends = any(isinstance(block, Attention) for block in architecture.blocks)
    scores = protocol.sequence_length + protocol.memory_length if attends else 0
    outputs = 0
    if architecture.output.kind in _VOCABULARY:
        outputs = {"all": rows, "last": protocol.batch, "none": 0}[protocol.logits] * architecture.embedding.vocab_size
    return _state(architecture, protocol, item) + item * (hidden + max(inner, scores, outputs))


def _state(architecture: Architecture, protocol: MeasurementProtocol, item: int) -> int:
    if protocol.runtime == "llamacpp":  # it has its cache in every mode, with room for the new tokens
        tokens = protocol.memory_length + protocol.sequence_length
        state = kept(Shapes.of([architecture]), protocol.batch, tokens)
        return int(kept_bytes(state, item, protocol.kv_cache)[0])
    return item * sum(prod(size) for size in state_sizes(architecture, protocol).values())
