"""Devices that cost nothing to measure on, made of launches of real ones.

The latency is a sum of costs fitted to a published table of launches; each architecture is off by as much as the
table's rows are off the fit, always by the same, and each launch scatters besides.

- `arm`: the linear model that fits the latencies which the authors of LTS (arXiv 2203.02094) measured on an ARM CPU,
  192 tokens, with a mean error of 1.4 % (`bench_algorithms.arm`, leave-one-out on 45 GPT-2 models).
- `v100`: non-negative costs of a pass, layers' widths, heads and products, fitted to the 1,000 GPT-2 decoders of
  HW-GPT-Bench (arXiv 2405.10299) on a V100, 1,024 tokens, with a mean error of 2.3 %.

Peak memory is exact weights and the largest block's activations, as an agent measures it, to 0.2 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from edgefront.core.cost.shapes import Shapes
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.prediction.memory import weight_bytes
from edgefront.core.search.population_shapes import identity
from edgefront.core.spaces.architecture import Architecture

LAUNCH = 0.01
"""Relative standard deviation of a launch's median."""
MEMORY = 0.002


@dataclass(frozen=True)
class Replayed:
    """A device by the latency of its fit and the standard deviation of what the fit does not explain."""

    name: str
    tokens: int
    fit: Callable[[Shapes], np.ndarray]
    unexplained: float

    @property
    def protocol(self) -> MeasurementProtocol:
        return MeasurementProtocol(sequence_length=self.tokens)

    def latency_ms(self, shapes: Shapes) -> np.ndarray:
        """(n,) what many launches would agree in."""
        return self.fit(shapes) * np.exp(self.unexplained * standard_normal(identity(shapes)))

    def memory_bytes(self, shapes: Shapes) -> np.ndarray:
        return activations_and_weights(shapes, self.protocol)

    def launch(self, architecture: Architecture, seed: int) -> tuple[float, int]:
        """Median latency (ms) and peak memory (bytes) of one launch; the same seed gives the same launch."""
        shapes = Shapes.of([architecture])
        scatter = (
            standard_normal(identity(shapes) + np.uint64(1 + 2 * seed)),
            standard_normal(identity(shapes) + np.uint64(2 + 2 * seed)),
        )
        latency = self.latency_ms(shapes)[0] * np.exp(LAUNCH * scatter[0][0])
        return float(latency), int(self.memory_bytes(shapes)[0] * np.exp(MEMORY * scatter[1][0]))


def activations_and_weights(shapes: Shapes, protocol: MeasurementProtocol) -> np.ndarray:
    """(n,) bytes of the weights, of the largest block's activations and of the runtime."""
    tokens, attends = protocol.sequence_length, shapes.kind == 0
    scores = np.where(attends, 2 * tokens * shapes.heads + 4 * shapes.d_model[:, None], 0)
    inner = np.where(shapes.kind == 1, 2 * shapes.width + shapes.d_model[:, None], 0)
    return weight_bytes(shapes, protocol) + 4.0 * tokens * np.maximum(scores, inner).max(axis=1, initial=0) + 8e6


def standard_normal(keys: np.ndarray) -> np.ndarray:
    """A standard normal number for each key, always the same (splitmix64, then the quantile function)."""
    mixed = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return ndtri((mixed.astype(np.float64) + 0.5) / 2.0**64)


def _totals(shapes: Shapes) -> dict[str, np.ndarray]:
    d, attends, inner = shapes.d_model.astype(float), shapes.kind == 0, shapes.kind == 1
    layers = attends.sum(axis=1)
    width = (shapes.width * inner).sum(axis=1)
    return {"d": d, "layers": layers, "heads": (shapes.heads * attends).sum(axis=1), "inner": width}


def _arm(shapes: Shapes) -> np.ndarray:
    of = _totals(shapes)
    body = 1.026 * of["d"] + 41.98e-6 * shapes.decoder_parameters + 16.52 * of["layers"] + 0.02252 * of["inner"]
    return 168.2 + body + 1.418 * of["heads"]


def _v100(shapes: Shapes) -> np.ndarray:
    of = _totals(shapes)
    products = 0.0721e-6 * 4 * of["layers"] * of["d"] ** 2 + 0.2065e-6 * 2 * of["d"] * of["inner"]
    return 5.5999 + products + 0.0857 * of["heads"] + 2.2591e-3 * of["layers"] * of["d"] + 0.1928e-3 * of["inner"]


DEVICES = {
    "arm": Replayed("arm", 192, _arm, 0.0175),
    "v100": Replayed("v100", 1024, _v100, 0.031),
}
