"""Predicts peak memory as the exact bytes of the weights plus a fitted sum of other exact sizes.

The other sizes are the widest block's activations, the residual stream, attention weights, the key/value cache, logits,
and a constant of the runtime. The number of copies of each size at the peak is fitted by non-negative least squares of
the relative error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from edgefront.core.architectures.cost import weight_bytes as cost_of_weights
from edgefront.core.architectures.cost.costs import BYTES
from edgefront.core.architectures.cost.flops import Tokens, cache_size, executed_blocks
from edgefront.core.architectures.cost.shapes import FEED_FORWARD, SHORT_CONV, Shapes
from edgefront.core.common.number_formats import KV_CACHE_BYTES
from edgefront.core.measurement.generation import prompt_pass, token_pass
from edgefront.core.measurement.prediction.calibration import half_width
from edgefront.core.measurement.prediction.features import enough_different, pass_of, positive
from edgefront.core.measurement.prediction.regression import rounded
from edgefront.core.measurement.protocol import MeasurementProtocol

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


@dataclass(frozen=True)
class MemoryPredictor:
    """A fitted predictor of peak memory on one device under one protocol."""

    protocol: MeasurementProtocol
    launches: int
    copies: Floats
    """(p,) coefficients of `MEMORY_FEATURES`: numbers of copies, or bytes for the features `runtime` and `blocks`."""
    half_width: float
    """Half-width of the 95 % interval of a peak, on the logarithm."""
    error: float
    """Mean relative error of leave-one-out predictions."""

    @classmethod
    def fit(cls, shapes: Shapes, protocol: MeasurementProtocol, peak_bytes: ArrayLike) -> MemoryPredictor:
        """Fits a predictor to n architectures with these peaks. Raises `InvalidInput` if a value is wrong or there are
        fewer than three different architectures.
        """
        measured = positive("peak_bytes", peak_bytes, len(shapes))
        weights, counted = weight_bytes(shapes, protocol).astype(float), memory_features(shapes, protocol)
        enough_different(np.column_stack([weights, counted]))
        order = np.lexsort(np.column_stack([measured, weights, counted]).T)
        weights, counted, measured = weights[order], counted[order], measured[order]
        errors = np.empty(len(order))
        for row in range(len(order)):
            seen = np.arange(len(order)) != row
            copies = _solve(counted[seen], weights[seen], measured[seen])
            errors[row] = np.log(measured[row] / (weights[row] + counted[row] @ copies))
        reach = max(half_width(errors, counted.shape[1]), _MIN_HALF_WIDTH)
        error = float(np.mean(np.abs(np.expm1(errors))))
        return cls(protocol, len(order), _solve(counted, weights, measured), reach, error)

    def predict(self, shapes: Shapes) -> tuple[Floats, Floats, Floats]:
        """Predicts the expected peak, and the lower and upper end of the 95 % interval, of n architectures; (n,) bytes
        each. The lower end is at least the bytes of the weights.
        """
        weights = weight_bytes(shapes, self.protocol)
        mean = weights + memory_features(shapes, self.protocol) @ self.copies
        low = np.maximum(weights, mean * np.exp(-self.half_width))
        high = mean * np.exp(self.half_width)
        return rounded(mean, _DIGITS), rounded(low, _DIGITS), rounded(high, _DIGITS)

    def parts(self, shapes: Shapes, row: int = 0) -> dict[str, float]:
        """Bytes of each part of one row's expected peak: `weights` and `MEMORY_FEATURES` (`copies` are second copies of
        weights). The parts sum to the peak, up to rounding.
        """
        shape = shapes.take([row])
        learnt = memory_features(shape, self.protocol)[0] * self.copies
        held = {"weights": float(weight_bytes(shape, self.protocol)[0])}
        for name, size in zip(MEMORY_FEATURES, learnt, strict=True):
            if size > 0:
                held["copies" if name == "weights" else name] = float(size)
        return held


def weight_bytes(shapes: Shapes, protocol: MeasurementProtocol) -> NDArray[np.int64]:
    """(n,) bytes of all weights of each architecture in the protocol's number format."""
    width, block_size = BYTES[protocol.dtype], protocol.block_size
    return cost_of_weights.weight_bytes(shapes, width, protocol.weights, block_size)


def memory_features(shapes: Shapes, protocol: MeasurementProtocol) -> Floats:
    """(n, len(MEMORY_FEATURES)) features in bytes, except for `runtime` and `blocks`.

    In mode generate, each feature is the maximum over the forward passes of the prompt and of a later token.
    """
    if protocol.mode == "generate":
        both = (memory_features(shapes, as_pass(protocol)) for as_pass in (prompt_pass, token_pass))
        return np.asarray(np.maximum(*both))
    width, run = BYTES[protocol.dtype], pass_of(protocol)
    running = executed_blocks(shapes, run)
    tokens = Tokens.of(running, run)
    inner = running.width * (running.kind == FEED_FORWARD) * (1 + running.gated)
    inner = inner + 3 * running.d_model[:, None] * (running.kind == SHORT_CONV)
    weights = tokens.new * tokens.keys * running.heads * (running.attends & (running.kind >= 0))
    # llama.cpp has a key/value cache in every mode.
    keeps = protocol.mode != "forward" or protocol.kv_cache is not None
    state = cache_size(shapes, run.batch, run.memory + run.tokens, run.encoder_tokens).keys_and_values * keeps
    cache_width = width if protocol.kv_cache is None else float(KV_CACHE_BYTES[protocol.kv_cache])
    return np.stack(
        [
            np.ones(len(shapes)),
            width * run.batch * run.tokens * shapes.d_model.astype(float),
            width * run.batch * (tokens.new * inner).max(axis=1, initial=0).astype(float),
            width * run.batch * weights.max(axis=1, initial=0).astype(float),
            cache_width * state.astype(float),
            width * run.positions * shapes.vocab_size.astype(float),
            (shapes.kind >= 0).sum(axis=1).astype(float),
            width * (run.positions > 0) * shapes.output_weights.astype(float),
            weight_bytes(shapes, protocol).astype(float),
        ],
        axis=1,
    )


def _solve(features: Floats, weights: Floats, peak: Floats) -> Floats:
    rows = features / peak[:, None]
    scale = rows.mean(axis=0)
    used = scale > 0
    left = np.vstack([rows[:, used] / scale[used], _RIDGE * np.eye(int(used.sum()))])
    solution, _ = nnls(left, np.concatenate([1 - weights / peak, np.zeros(int(used.sum()))]))
    copies = np.zeros(len(used))
    copies[used] = solution / scale[used]
    return rounded(copies)
