"""Binary format of a chart's points: a JSON header, then typed columns.

Layout: the header's length in bytes (unsigned 32-bit), the header (UTF-8, padded with spaces so that the columns begin
at a multiple of 8 bytes), then the columns in the header's order, each padded to a multiple of 8 bytes. Numbers are
little-endian. A missing figure is NaN.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefront.core.measurement.figures import CHARTED, FIGURES
from edgefront.core.schemas.agent import Identifier
from edgefront.core.schemas.candidates import GROUPS, Group
from edgefront.core.schemas.messages import View

MEDIA_TYPE = "application/octet-stream"
Axis = Literal["proxy", "predicted"]
"""Quality axis of a chart: the proxy, or the predicted perplexity."""

COLUMNS: dict[str, str] = {
    **{name: "<f8" for name in CHARTED if not FIGURES[name].of_generations},
    "latency_low_ms": "<f8",
    "latency_high_ms": "<f8",
    "decoder_parameters": "<f8",
    "proxy": "<f8",
    "perplexity": "<f8",
    "perplexity_low": "<f8",
    "perplexity_high": "<f8",
    **{name: "<f8" for name in CHARTED if FIGURES[name].of_generations},
    "number": "<i4",
    "group": "|u1",
    "marked": "|u1",
}
"""Column → numpy type. `perplexity` and its interval are predicted; `group` is an index into `GROUPS`; `marked` is 1 if
a valid launch has a mark.
"""
_ALIGNED = 8
_LENGTH = 4


class PointsHeader(View):
    job_id: Identifier
    target_id: Identifier
    rows: int
    total: int
    """Number of measured candidates in the window; more than `rows` if some are left out."""
    measured: dict[Group, int]
    """Number of measured candidates of the whole target by group."""
    latency_ms: tuple[float, float] | None
    """Range over the measured candidates of the whole target; None before the first measurement."""
    memory_bytes: tuple[float, float] | None
    relative_to: str | None = None
    """Model whose perplexity the predictions are relative to; None: predictions are perplexities."""
    label: str = ""
    """Data and training of predicted perplexities in about six words."""
    ids: tuple[Identifier, ...]
    columns: dict[str, str]
    """Column → numpy type, as in `COLUMNS`, without empty columns."""
    groups: tuple[Group, ...] = GROUPS


def encode(header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Encodes points as bytes. `header` must lack `columns`; empty columns are left out."""
    plain = {
        name: np.ascontiguousarray(columns[name], dtype=kind)
        for name, kind in COLUMNS.items()
        if kind != "<f8" or not np.isnan(columns[name]).all()
    }
    kinds = {name: COLUMNS[name] for name in plain}
    text = PointsHeader.model_validate({**header, "columns": kinds}).model_dump_json().encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNED)
    parts = [len(text).to_bytes(_LENGTH, "little"), text]
    for values in plain.values():
        body = values.tobytes()
        parts += [body, b"\0" * (-len(body) % _ALIGNED)]
    return b"".join(parts)


def decode(data: bytes) -> tuple[PointsHeader, dict[str, NDArray[Any]]]:
    """Decodes the header and the columns of points. Empty columns are missing."""
    length = int.from_bytes(data[:_LENGTH], "little")
    header = PointsHeader.model_validate(json.loads(data[_LENGTH : _LENGTH + length]))
    at, columns = _LENGTH + length, {}
    for name, kind in header.columns.items():
        columns[name] = np.frombuffer(data, dtype=kind, count=header.rows, offset=at)
        size = columns[name].nbytes
        at += size + -size % _ALIGNED
    return header, columns
