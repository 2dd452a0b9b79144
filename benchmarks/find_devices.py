"""Simulated devices that replay tables of real launches, and the search tasks on them (`bench_find.py`).

The latency of an architecture is that of the nearest row of the table, times the ratio of both by a second-degree
polynomial in the logarithms of width, layers, heads and inner widths. So each row has its measured latency, and
architectures near the row have the same residual, with jumps that no sum of costs fits.

- `here`: 200 launches of lts-gpt2 with ONNX Runtime, 192 tokens, of `results/predict_here.jsonl.gz`
  (`bench_predict.py --here`). Peak memory is replayed in the same way.
- `helix`, `alldlc`: the two CPUs of HW-GPT-Bench (arXiv 2405.10299), 1,000 launches of its GPT-2 S, 1,024 tokens. They
  jump: `helix` became 11 % slower for good after 730 rows. Peak memory is computed because the table lacks it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from record import RESULTS, from_tests
from scipy.special import ndtri

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.base_space import Frame, LtsSpace, Stock
from edgefront.core.architectures.catalogue import LTS_GPT2
from edgefront.core.architectures.cost.shapes import ATTENTION, FEED_FORWARD, Shapes
from edgefront.core.architectures.embeddings_and_head import Embedding, LearnedPositions
from edgefront.core.architectures.gene import Gene, Value
from edgefront.core.measurement.prediction.memory import weight_bytes
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.quality.shipped import law_named
from edgefront.core.search.forecast import Forecast
from edgefront.core.search.interface import generator
from edgefront.core.search.population_shapes import PopulationShapes, identity
from edgefront.core.search.problem import Problem
from edgefront.core.search.surrogate import Evolution

hwgpt = from_tests("hwgpt")

Figure = Callable[[Shapes], np.ndarray]
HWGPT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "hwgpt_latency_s.csv.gz"
LAUNCH, MEMORY = 0.01, 0.002
"""Relative standard deviations of a launch's latency and peak memory."""
LAYERS = 12
"""Number of layers of the deepest architecture in the tables."""


class HwGptSpace(LtsSpace):
    """GPT-2 S of HW-GPT-Bench: inner widths of a layer are 2, 3 or 4 times d_model."""

    def _fitting(self, name: str, values: Sequence[Value], width: int) -> tuple[int, ...]:
        fitting = super()._fitting(name, values, width)
        return tuple(value for value in fitting if name != "d_inner" or value in (2 * width, 3 * width, 4 * width))


HWGPT_S = HwGptSpace(
    name="hwgpt-s",
    title="GPT-2 S of HW-GPT-Bench",
    source="HW-GPT-Bench (arXiv 2405.10299)",
    gene_list=(
        Gene("n_layer", (10, 11, 12)),
        Gene("d_model", (192, 384, 768)),
        Gene("n_head", (4, 8, 12), per_layer=True),
        Gene("d_inner", (384, 576, 768, 1152, 1536, 2304, 3072), per_layer=True),
    ),
    stock=Stock(d_model=768, n_head=12, d_inner=3072),
    frame=Frame(embedding=Embedding(vocab_size=50257), positions=LearnedPositions(length=1024), activation="gelu_tanh"),
)
LTS = LTS_GPT2.narrow(
    {
        "n_layer": {"min": 2, "max": LAYERS, "step": 1},
        "d_model": {"min": 128, "max": 768, "step": 64},
        "d_inner": {"min": 256, "max": 3072, "step": 64},
    }
)


@dataclass(frozen=True)
class Device:
    """A replayed device with the search space of its table."""

    name: str
    space: LtsSpace
    protocol: MeasurementProtocol
    law: str
    depths: tuple[int, ...]
    """Numbers of layers of the stock (default) models that are launched first."""
    latency_ms: Figure
    memory_bytes: Figure

    def score(self, shapes: Shapes) -> np.ndarray:
        """Returns predicted perplexity with its sign flipped, so that higher is better."""
        return -np.exp(law_named(self.law).expected(shapes))

    def launch(self, shapes: Shapes, seed: int) -> tuple[float, float]:
        """Returns latency (ms) and peak memory (bytes) of one launch; equal seeds give equal results."""
        (key,) = identity(shapes)
        scatter = standard_normal(np.array([key + np.uint64(1 + 2 * seed), key + np.uint64(2 + 2 * seed)]))
        latency, memory = self.latency_ms(shapes)[0], self.memory_bytes(shapes)[0]
        return float(latency * np.exp(LAUNCH * scatter[0])), float(memory * np.exp(MEMORY * scatter[1]))


@dataclass(frozen=True)
class Task:
    """A device, and limits of latency and memory on it."""

    device: Device
    problem: Problem

    @classmethod
    def of(cls, device: Device, share: float, launches: int) -> Task:
        """Returns a task whose limits are this share of the deepest stock model's latency, and the memory halfway from
        this share to the whole.
        """
        stock = Shapes.of(device.space.baselines(device.depths[-1:]))
        problem = Problem(
            goal="best_within_limits",
            latency_ms=share * float(device.latency_ms(stock)[0]),
            memory_bytes=(1 + share) / 2 * float(device.memory_bytes(stock)[0]),
            candidates=launches - len(device.depths),
            protocol=device.protocol,
            proxy="quality_law",
            custom_score=device.score,
        )
        return cls(device, problem)

    def within(self, latency_ms: float, memory_bytes: float) -> bool:
        return bool(self.problem.violation(np.array([latency_ms]), np.array([memory_bytes]))[0] == 0)

    def best_known(self) -> float:
        """Returns the quality that evolution finds on the device itself, from 240,000 evaluations without scatter."""
        space = self.device.space

        def exact(shapes: Shapes) -> Forecast:
            nothing, none = np.zeros(len(shapes)), np.zeros((len(shapes), 0))
            latency, memory = self.device.latency_ms(shapes), self.device.memory_bytes(shapes)
            return Forecast(self.device.score(shapes), latency, nothing, memory, nothing, none, none)

        evolution = Evolution(
            space.operators, PopulationShapes(space), exact, self.problem, generator(0, 0, "best known")
        )
        pool = evolution.run(space.operators.sample(0, evolution.rng), 4000, 60)
        return float(pool.forecast.quality[pool.forecast.violation(self.problem, 0.0) == 0].max())


# Replaying ------------------------------------------------------------------------------------------------------------


def replayed(shapes: Shapes, measured: np.ndarray) -> Figure:
    """Returns a function that interpolates the figure of any architecture from a table of launches."""
    totals, positions = np.log(_totals(shapes)), _positions(shapes)
    centre, spread = totals.mean(axis=0), totals.std(axis=0)
    scale = np.maximum(positions.std(axis=0), 1e-9)
    # d_model and n_layer have the same weight as all layers together.
    scale[:2] /= positions.shape[1]

    def polynomial(values: np.ndarray) -> np.ndarray:
        standard = (values - centre) / spread
        first, second = np.triu_indices(standard.shape[1])
        return np.column_stack([np.ones(len(values)), standard, standard[:, first] * standard[:, second]])

    coefficients = np.linalg.pinv(polynomial(totals)) @ np.log(measured)
    off = np.log(measured) - polynomial(totals) @ coefficients
    known = positions / scale

    def figure(queried: Shapes) -> np.ndarray:
        at = _positions(queried) / scale
        squares = (at**2).sum(axis=1)[:, None] + (known**2).sum(axis=1) - 2 * at @ known.T
        nearest = squares.argmin(axis=1)
        return np.exp(polynomial(np.log(_totals(queried))) @ coefficients + off[nearest])

    return figure


def activations_and_weights(shapes: Shapes, protocol: MeasurementProtocol) -> np.ndarray:
    """Returns the bytes of the weights, the largest block's activations and the runtime together, (n,)."""
    tokens, attends = protocol.sequence_length, shapes.kind == 0
    scores = np.where(attends, 2 * tokens * shapes.heads + 4 * shapes.d_model[:, None], 0)
    inner = np.where(shapes.kind == 1, 2 * shapes.width + shapes.d_model[:, None], 0)
    return weight_bytes(shapes, protocol) + 4.0 * tokens * np.maximum(scores, inner).max(axis=1, initial=0) + 8e6


def standard_normal(keys: np.ndarray) -> np.ndarray:
    """Returns a reproducible standard normal number for each key (splitmix64, then the quantile function)."""
    mixed = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return ndtri((mixed.astype(np.float64) + 0.5) / 2.0**64)


def _totals(shapes: Shapes) -> np.ndarray:
    """Returns d_model, layers, heads and inner widths summed over all layers, (n, 4)."""
    attention, inner = shapes.kind == ATTENTION, shapes.kind == FEED_FORWARD
    sums = (attention, shapes.heads * attention, shapes.width * inner)
    return np.column_stack([shapes.d_model, *(part.sum(axis=1) for part in sums)]).astype(float)


def _positions(shapes: Shapes) -> np.ndarray:
    """Returns (n, 2 + 2 · `LAYERS`) coordinates: logarithm of d_model, layers, and heads and share of inner width of
    each layer.
    """
    layers = np.zeros((2, len(shapes), LAYERS))
    heads, width = shapes.heads[:, 0::2], shapes.width[:, 1::2] / shapes.d_model[:, None]
    layers[0, :, : heads.shape[1]], layers[1, :, : width.shape[1]] = heads, width
    depth = (shapes.kind == ATTENTION).sum(axis=1)
    return np.column_stack([np.log(shapes.d_model), depth, layers[0], layers[1]])


@cache
def device(name: str) -> Device:
    """Returns the device of this name."""
    if name == "here":
        rows = [
            json.loads(line) for line in gzip.decompress((RESULTS / "predict_here.jsonl.gz").read_bytes()).splitlines()
        ]
        selected = [
            row for row in rows if (row["space"], row["runtime"], row["mode"]) == ("lts-gpt2", "onnxruntime", "forward")
        ]
        shapes = Shapes.of([Architecture.parse(row["architecture"]) for row in selected])
        figures = [
            replayed(shapes, np.array([row[key] for row in selected], dtype=float))
            for key in ("latency_ms", "peak_bytes")
        ]
        return Device(name, LTS, MeasurementProtocol(), "lts-gpt2-wikitext103", (3, 6, 9, 12), *figures)
    found = hwgpt.read_table(HWGPT)
    latency = replayed(found.shapes, found.columns[DEVICES[name]])

    def memory(shapes: Shapes) -> np.ndarray:
        return activations_and_weights(shapes, hwgpt.PROTOCOL)

    return Device(name, HWGPT_S, hwgpt.PROTOCOL, "hwgpt-gpt2-openwebtext", (10, 11, 12), latency, memory)


DEVICES = {"here": "latency_ms", "helix": "helix_cpu_ms", "alldlc": "cpu_alldlc_ms"}
"""Device name → latency column of its table."""
