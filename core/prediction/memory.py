"""Predicts peak memory: the exact bytes of the weights, and what launches say of everything else.

Beside its weights a pass holds few kinds of things: activations of the widest block, the residual stream, attention's
weights, keys and values that are kept, scores of tokens, and what a runtime needs for itself. Their bytes are counted
exactly; how many copies of each a runtime holds at its peak is learnt by non-negative least squares of the relative
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from edgefront.core.cost.costs import BYTES
from edgefront.core.cost.shapes import Shapes
from edgefront.core.measurement.generation import prompt_pass, token_pass
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.number_formats import GGUF_BLOCK, GGUF_BLOCK_BYTES, GGUF_QUANTISED, KV_CACHE_BYTES
from edgefront.core.prediction.calibration import half_width
from edgefront.core.prediction.checks import enough_different, positive
from edgefront.core.prediction.features import earlier
from edgefront.core.prediction.regression import rounded
from edgefront.core.spaces.block import BLOCK_KINDS

Floats = NDArray[np.float64]

MEMORY_FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "runtime": "1: bytes that every model needs",
        "stream": "bytes of the residual stream: B·n·d_model",
        "inner": "bytes of the widest activations of a feed-forward block, B·n·d_inner (2· where gated), or of a short "
        "convolution, 3·B·n·d_model",
        "attention_weights": "bytes of the softmax of the block with most heads: B·n·K·n_head",
        "state": "bytes of keys and values that prefill and decode keep: 2·B·K·width of every block that attends, K at "
        "most its window",
        "logits": "bytes of the scores of tokens",
        "blocks": "number of blocks",
        "output": "bytes of the output layer's weights, held in another order",
        "weights": "bytes of weights that are held a second time",
    }
)
_RIDGE = 1e-3
_MIN_HALF_WIDTH = 1e-3
_DIGITS = 6
_ATTENTION, _FEED_FORWARD, _SRU, _SRUPP, _, _SHORT_CONV = range(len(BLOCK_KINDS))


@dataclass(frozen=True)
class MemoryPredictor:
    """What launches of a device under a protocol have taught of peak memory."""

    protocol: MeasurementProtocol
    launches: int
    copies: Floats
    """(p,) by `MEMORY_FEATURES`: bytes; of what is counted in bytes, how many times it is held."""
    half_width: float
    """Of the 95 % interval, relative."""
    error: float
    """Mean relative error on launches that were predicted from the others."""

    @classmethod
    def fit(cls, shapes: Shapes, protocol: MeasurementProtocol, peak_bytes: ArrayLike) -> MemoryPredictor:
        """Learns from n architectures and the peak of each. Errors are those of `LatencyPredictor.fit`."""
        measured = positive("peak_bytes", peak_bytes, len(shapes))
        known, counted = weight_bytes(shapes, protocol).astype(float), memory_features(shapes, protocol)
        enough_different(np.column_stack([known, counted]))
        order = np.lexsort(np.column_stack([measured, known, counted]).T)
        known, counted, measured = known[order], counted[order], measured[order]
        errors = np.empty(len(order))
        for row in range(len(order)):
            seen = np.arange(len(order)) != row
            copies = _solve(counted[seen], known[seen], measured[seen])
            errors[row] = np.log(measured[row] / (known[row] + counted[row] @ copies))
        reach = max(half_width(errors, counted.shape[1]), _MIN_HALF_WIDTH)
        error = float(np.mean(np.abs(np.expm1(errors))))
        return cls(protocol, len(order), _solve(counted, known, measured), reach, error)

    def predict(self, shapes: Shapes) -> tuple[Floats, Floats, Floats]:
        """(n,) bytes each: the peak that is expected, and the ends of the 95 % interval.

        The lower end is at least the bytes of the weights.
        """
        known = weight_bytes(shapes, self.protocol)
        mean = known + memory_features(shapes, self.protocol) @ self.copies
        low = np.maximum(known, mean * np.exp(-self.half_width))
        high = mean * np.exp(self.half_width)
        return rounded(mean, _DIGITS), rounded(low, _DIGITS), rounded(high, _DIGITS)

    def parts(self, shapes: Shapes, row: int = 0) -> dict[str, float]:
        """What holds how many bytes of one row's expected peak: `weights` exactly, the others by `MEMORY_FEATURES` as
        far as they were learnt, where `copies` are weights that are held a second time. They sum to the peak, up to
        rounding.
        """
        one = shapes.take([row])
        learnt = memory_features(one, self.protocol)[0] * self.copies
        held = {"weights": float(weight_bytes(one, self.protocol)[0])}
        for name, size in zip(MEMORY_FEATURES, learnt, strict=True):
            if size > 0:
                held["copies" if name == "weights" else name] = float(size)
        return held


def weight_bytes(shapes: Shapes, protocol: MeasurementProtocol) -> NDArray[np.int64]:
    """(n,) bytes of all weights in the protocol's number type, as `core.cost.costs` counts them."""
    width = BYTES[protocol.dtype]
    total = shapes.total_parameters
    if protocol.quantisation == "full":
        return width * total
    quantised, maps = _linear_layers(shapes)
    if protocol.quantisation in GGUF_QUANTISED:
        matrices = quantised + shapes.embedding_parameters
        blocks = matrices // GGUF_BLOCK
        return np.asarray((total - matrices) * 4 + blocks * GGUF_BLOCK_BYTES[protocol.quantisation])
    if protocol.quantisation == "int4":
        return (total - quantised) * width + _int4_bytes(shapes, protocol.block_size)
    return (total - quantised + maps) * width + quantised


def memory_features(shapes: Shapes, protocol: MeasurementProtocol) -> Floats:
    """(n, len(MEMORY_FEATURES)), in bytes but for the runtime and the blocks.

    Of a generation each is that of the pass where it is larger: the prompt's, or that of a further token.
    """
    if protocol.mode == "generate":
        both = (memory_features(shapes, one(protocol)) for one in (prompt_pass, token_pass))
        return np.asarray(np.maximum(*both))
    width = BYTES[protocol.dtype]
    new = protocol.batch * protocol.sequence_length
    keys = earlier(shapes, protocol) + protocol.sequence_length
    positions = {"all": new, "last": protocol.batch, "none": 0}[protocol.logits]
    inner = shapes.width * (shapes.kind == _FEED_FORWARD) * (1 + shapes.gated)
    inner = inner + 3 * shapes.d_model[:, None] * (shapes.kind == _SHORT_CONV)
    heads = shapes.heads * shapes.attends
    seen_later = np.where(shapes.window > 0, np.minimum(keys, shapes.window - 1), keys)
    # llama.cpp has its cache in every mode.
    kept = 0 if protocol.mode == "forward" and protocol.kv_cache is None else 2 * protocol.batch * seen_later
    of_kept = width if protocol.kv_cache is None else float(KV_CACHE_BYTES[protocol.kv_cache])
    return np.stack(
        [
            np.ones(len(shapes)),
            width * new * shapes.d_model.astype(float),
            width * new * inner.max(axis=1, initial=0).astype(float),
            width * new * (keys * heads).max(axis=1, initial=0).astype(float),
            of_kept * (kept * shapes.kv_width).sum(axis=1).astype(float),
            width * positions * shapes.vocab_size.astype(float),
            (shapes.kind >= 0).sum(axis=1).astype(float),
            width * (positions > 0) * shapes.output_weights.astype(float),
            weight_bytes(shapes, protocol).astype(float),
        ],
        axis=1,
    )


def _linear_layers(shapes: Shapes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n,) weights of the blocks' linear layers, and (n,) how many layers: what int8 and int4 quantise."""
    d, width, kind = shapes.d_model[:, None], shapes.width.astype(np.int64), shapes.kind
    attends = (kind == _SRUPP) & shapes.attends
    weights = 2 * (width + shapes.kv_width) * d * (kind == _ATTENTION) + 4 * width * d * (kind == _SRUPP)
    weights += (2 + shapes.gated) * width * d * (kind == _FEED_FORWARD) + 4 * d * d * (kind == _SHORT_CONV)
    weights += np.where(width > 0, 4 * d * width, 3 * d * d) * (kind == _SRU) + 2 * width * width * attends
    maps = 2 * np.isin(kind, (_ATTENTION, _FEED_FORWARD, _SRUPP, _SHORT_CONV)) + attends
    maps += np.where(width > 0, 2, 1) * (kind == _SRU)
    return weights.sum(axis=1), maps.sum(axis=1)


def _int4_bytes(shapes: Shapes, block_size: int) -> NDArray[np.int64]:
    """(n,) bytes of those layers in int4, as `core.cost.parameters.int4_bytes` counts them."""
    d, width, kind = shapes.d_model[:, None], shapes.width.astype(np.int64), shapes.kind
    of_d, of_width = -(-d // block_size), -(-width // block_size)
    projected = width * of_d + 3 * d * of_width
    blocks = ((width + 2 * shapes.kv_width) * of_d + d * of_width) * (kind == _ATTENTION)
    blocks += ((1 + shapes.gated) * width * of_d + d * of_width) * (kind == _FEED_FORWARD)
    blocks += 4 * d * of_d * (kind == _SHORT_CONV)
    blocks += np.where(width > 0, projected, 3 * d * of_d) * (kind == _SRU)
    blocks += (projected + 2 * width * of_width * shapes.attends) * (kind == _SRUPP)
    return np.asarray(blocks.sum(axis=1) * (block_size // 2 + 4))


def _solve(features: Floats, weights: Floats, peak: Floats) -> Floats:
    rows = features / peak[:, None]
    scale = rows.mean(axis=0)
    used = scale > 0
    left = np.vstack([rows[:, used] / scale[used], _RIDGE * np.eye(int(used.sum()))])
    found, _ = nnls(left, np.concatenate([1 - weights / peak, np.zeros(int(used.sum()))]))
    copies = np.zeros(len(used))
    copies[used] = found / scale[used]
    return rounded(copies)
