"""HW-GPT-Bench's table of latencies by architecture (arXiv 2405.10299), and a choice of its rows that stands for all.

CSV, also compressed (.gz), one architecture a row: `embed_dim`, `n_layer`, `n_head` and `mlp_ratio` (a value a layer,
joined by `-`), `bias` (0 or 1: whether linear layers have one), then a column of positive numbers for each device.
A layer is an attention and a feed-forward block, d_head = embed_dim / n_head, d_inner = mlp_ratio · embed_dim.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.measurement.prediction.features import descriptors, features, standardised
from edgefront.core.measurement.protocol import MeasurementProtocol

ARCHITECTURE = ("embed_dim", "n_layer", "n_head", "mlp_ratio", "bias")
PROTOCOL = MeasurementProtocol(runtime="pytorch", sequence_length=1024, logits="all")
"""The pass that the published table was measured with, as far as features read it."""


@dataclass(frozen=True)
class Table:
    """Architectures and what was measured of them."""

    shapes: Shapes
    columns: Mapping[str, NDArray[np.float64]]
    """Device → (n,) in the unit of the file."""


def read_table(path: Path, columns: Sequence[str] | None = None) -> Table:
    """The rows of the file with these columns, or all that are not of the architecture."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    devices = columns or [name for name in rows[0] if name not in ARCHITECTURE]
    values = {name: np.array([float(row[name]) for row in rows]) for name in devices}
    return Table(Shapes.of([_architecture(row) for row in rows]), values)


def _architecture(row: Mapping[str, str]) -> Architecture:
    width, bias = int(row["embed_dim"]), row["bias"] == "1"
    blocks: list[dict[str, object]] = []
    for heads, ratio in zip(row["n_head"].split("-"), row["mlp_ratio"].split("-"), strict=True):
        blocks.append({"kind": "attention", "n_head": int(heads), "bias": "all" if bias else "none"})
        blocks.append({"kind": "feed_forward", "d_inner": max(1, round(float(ratio) * width)), "bias": bias})
    return Architecture.parse({"d_model": width, "embedding": {"vocab_size": 50257}, "blocks": blocks})


def spread(shapes: Shapes, protocol: MeasurementProtocol, count: int, seed: int) -> NDArray[np.int64]:
    """Rows of `count` architectures that stand for all of them, the same for the same seed.

    The rows are cut into as many cells of nearly equal size, always across the descriptor in which a cell is widest (a
    k-d tree), and one is drawn from each: far apart as in a grid, but as likely to be usual or extreme as any row, so
    that errors on them tell of errors on the others.
    """
    rng = np.random.default_rng(seed)
    rows_of = descriptors(shapes, features(shapes, protocol))
    centre, width = standardised(rows_of)
    scaled = np.round((rows_of - centre) / width, 9)
    ties = rng.random(len(shapes))
    cells, chosen = [(np.arange(len(shapes)), count)], []
    while cells:
        rows, quota = cells.pop()
        if quota == 1:
            chosen.append(int(rows[rng.integers(len(rows))]))
            continue
        widest = int(np.argmax(np.round(scaled[rows].var(axis=0), 9)))
        rows = rows[np.lexsort((ties[rows], scaled[rows, widest]))]
        first = quota // 2
        cut = len(rows) * first // quota
        cells += [(rows[:cut], first), (rows[cut:], quota - first)]
    return np.sort(np.array(chosen, dtype=np.int64))
