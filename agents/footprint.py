"""What a model needs at the very least, to refuse what cannot fit before it takes the device down."""

from __future__ import annotations

from core.cost.costs import costs
from core.measurement.protocol import MeasurementProtocol
from core.spaces.architecture import Architecture, Attention, FeedForward

_ITEM = 4


def least_footprint_bytes(architecture: Architecture, protocol: MeasurementProtocol) -> int:
    """Weights and the largest activation with its input: no runtime gets by with less."""
    weights = costs(architecture, sequence_length=1).weight_bytes
    rows = protocol.batch * protocol.sequence_length
    hidden = rows * architecture.d_model
    inner = max((rows * block.d_inner for block in architecture.blocks if isinstance(block, FeedForward)), default=0)
    heads = max((block.n_head for block in architecture.blocks if isinstance(block, Attention)), default=0)
    # One head's scores at a time: kernels that fuse attention hold no more of the square.
    scores = protocol.sequence_length if heads else 0
    outputs = {"all": rows, "last": protocol.batch, "none": 0}[protocol.logits] * architecture.embedding.vocab_size
    return weights + _ITEM * (hidden + max(inner, scores, outputs))
