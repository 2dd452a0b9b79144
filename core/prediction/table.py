"""Reads a table of latencies by architecture, of the form of HW-GPT-Bench's (arXiv 2405.10299).

CSV, also compressed (.gz), one architecture a row: `embed_dim`, `n_layer`, `n_head` and `mlp_ratio` (a value a layer,
joined by `-`), `bias` (0 or 1: whether linear layers have one), then a column of positive numbers for each device.
A layer is an attention and a feed-forward block, d_head = embed_dim / n_head, d_inner = mlp_ratio · embed_dim.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.columns import attention_biases, feed_forward_biases, norm_parameters
from edgefront.core.cost.shapes import ATTENTION, FEED_FORWARD, Shapes, block_columns
from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol

ARCHITECTURE = ("embed_dim", "n_layer", "n_head", "mlp_ratio", "bias")
PROTOCOL = MeasurementProtocol(runtime="pytorch", sequence_length=1024, logits="all")
"""The pass that the published table was measured with, as far as features read it."""
_VOCABULARY = 50257
_MAX_WIDTH, _MAX_LAYERS = 1 << 16, 512


@dataclass(frozen=True)
class Table:
    """Architectures and what was measured of them."""

    shapes: Shapes
    columns: Mapping[str, NDArray[np.float64]]
    """Device → (n,) in the unit of the file."""


def read_table(path: Path, columns: Sequence[str] | None = None) -> Table:
    """The rows of the file with these columns, or all that are not of the architecture.

    Raises `InvalidInput` that names row (its line in the file) and field.
    """
    lines = csv.DictReader(io.StringIO(_text(path), newline=""))
    try:
        header = list(lines.fieldnames or ())
        numbered = [(lines.line_num, cells) for cells in lines]
    except csv.Error as error:
        raise _unreadable(path, error) from None
    for name in (*ARCHITECTURE, *(columns or ())):
        if name not in header:
            raise InvalidInput(
                f"{path.name}: column {name} is missing; it has {', '.join(header) or 'none'}",
                field=name,
                allowed=", ".join(ARCHITECTURE) + ", and a column for each device",
            )
    value_columns = tuple(columns or (name for name in header if name not in ARCHITECTURE))
    if not value_columns:
        raise InvalidInput(f"{path.name}: no column of latencies", field="columns", allowed="at least one")
    rows, values = [], []
    for number, cells in numbered:
        row = _Row(path.name, number, cells)
        rows.append(row.layers())
        values.append([row.positive(name) for name in value_columns])
    if not rows:
        raise InvalidInput(f"{path.name}: no rows below the header", field="rows", value=0, allowed="at least one")
    return Table(
        _shapes(rows), {name: np.array([value[place] for value in values]) for place, name in enumerate(value_columns)}
    )


@dataclass(frozen=True)
class _Layers:
    d_model: int
    n_head: list[int]
    d_inner: list[int]
    bias: bool


@dataclass(frozen=True)
class _Row:
    """One line; its errors name file, row and field."""

    file: str
    line: int
    cells: Mapping[str, str | None]

    def layers(self) -> _Layers:
        width = self._whole("embed_dim", self._text("embed_dim"), _MAX_WIDTH)
        depth = self._whole("n_layer", self._text("n_layer"), _MAX_LAYERS)
        heads = [self._whole("n_head", text, _MAX_WIDTH) for text in self._by_layer("n_head", depth)]
        ratios = [self._number("mlp_ratio", text) for text in self._by_layer("mlp_ratio", depth)]
        bias = self._text("bias").lower()
        if bias not in ("0", "1", "true", "false"):
            raise self._wrong("bias", bias, "0 or 1")
        return _Layers(width, heads, [max(1, round(ratio * width)) for ratio in ratios], bias in ("1", "true"))

    def positive(self, name: str) -> float:
        return self._number(name, self._text(name))

    def _text(self, name: str) -> str:
        text = self.cells[name]
        if text is None or not text.strip():
            raise self._wrong(name, text, "a value")
        return text.strip()

    def _by_layer(self, name: str, depth: int) -> list[str]:
        texts = self._text(name).split("-")
        if len(texts) != depth:
            raise self._wrong(name, self._text(name), f"{depth} values joined by -, one a layer")
        return texts

    def _whole(self, name: str, text: str, most: int) -> int:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise self._wrong(name, text, f"a whole number from 1 to {most}")
        return int(text)

    def _number(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0:
            raise self._wrong(name, text, "a number above zero")
        return value

    def _wrong(self, name: str, value: object, allowed: str) -> InvalidInput:
        return InvalidInput(
            f"{self.file}, row {self.line}: {name} must be {allowed}, not {value!r}",
            field=f"rows.{self.line}.{name}",
            value=value,
            allowed=allowed,
        )


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput(
        f"{path}: cannot be read: {error}", field="table", value=str(path), allowed="a CSV file, also as .gz"
    )


def _shapes(rows: Sequence[_Layers]) -> Shapes:
    count, longest = len(rows), 2 * max(len(row.n_head) for row in rows)
    kind = np.full((count, longest), -1)
    heads, width, other = (np.zeros((count, longest), dtype=np.int64) for _ in range(3))
    for place, row in enumerate(rows):
        d, depth = row.d_model, 2 * len(row.n_head)
        inner = np.array(row.d_inner, dtype=np.int64)
        kind[place, 0:depth:2], kind[place, 1:depth:2] = ATTENTION, FEED_FORWARD
        heads[place, 0:depth:2] = row.n_head
        width[place, 0:depth:2], width[place, 1:depth:2] = d, inner
        other[place, :depth] = norm_parameters("layer", d)
        if row.bias:
            other[place, 0:depth:2] += attention_biases("all", d, d, d)
            other[place, 1:depth:2] += feed_forward_biases(d, inner, gated=False)
    d_model = np.array([row.d_model for row in rows], dtype=np.int64)
    attention = kind == ATTENTION
    blocks = block_columns(
        d_model=d_model[:, None],
        kind=kind,
        other_parameters=other,
        heads=heads,
        width=width,
        own_keys=attention,
        kv_width=width * attention,
        biased=(kind >= 0) & np.array([row.bias for row in rows])[:, None],
    )
    return Shapes.from_columns(
        blocks,
        d_model=d_model,
        d_embed=d_model,
        div=np.ones(count, dtype=np.int64),
        vocab_size=np.full(count, _VOCABULARY, dtype=np.int64),
        embedding_parameters=_VOCABULARY * d_model,
        position_parameters=np.zeros(count, dtype=np.int64),
        final_norms=norm_parameters("layer", d_model),
        output_weights=_VOCABULARY * d_model,
        embedding_weights=np.zeros(count, dtype=np.int64),
        source_embedding_weights=np.zeros(count, dtype=np.int64),
        pooled=np.zeros(count),
        causal=np.ones(count),
    )
