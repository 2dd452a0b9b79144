"""Exports of candidates as CSV and Parquet, written in batches to a file that is then sent."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy.orm import Session

from edgefront.core.measurement.figures import FIGURES
from edgefront.core.schemas.candidates import CandidateView, FrontierView
from edgefront.core.services.jobs.answers.exports import EXPORT_COLUMNS
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate
from edgefront.core.store.tables.base import UtcDateTime

PARQUET = "application/vnd.apache.parquet"
MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": PARQUET}

BATCH = 2000
_IN_MEMORY = 8 << 20
_CHUNK = 1 << 18

Rows = Callable[[Session], Iterator[dict[str, Any]]]

_ARROW = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_TEXTS = ("target", "predicted_relative_to", "predicted_law", "predicted_label")
"""Exported text columns that are not columns of the database table."""

FRONTIER_COLUMNS = (
    "id",
    "role",
    "number",
    "generation",
    "operator",
    "digest",
    "decoder_parameters",
    "total_parameters",
    "weight_bytes",
    "flops",
    "proxy",
    *FIGURES,
    "launches",
    "marked",
)

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def _cell(value: Any) -> Any:
    """Returns the value of a CSV cell. Text that a spreadsheet would evaluate as a formula is prefixed with an
    apostrophe.

    Somebody else than the reader of the file may have named a target `-1` or `@SUM(A1)`.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def write_export(database: Database, rows: Rows, format: str) -> IO[bytes]:  # noqa: A002
    """Writes all rows to an anonymous temporary file and rewinds the file, which is deleted when closed."""
    file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  (whoever sends it closes it)
    try:
        with database.read() as session:
            (_write_csv if format == "csv" else _write_parquet)(file, rows(session))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def frontier_csv(view: FrontierView) -> str:
    """Returns the points of the frontier and then of the baseline as CSV, with speed-up and memory ratio."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        (*FRONTIER_COLUMNS, "speedup", "speedup_low", "speedup_high", "memory_ratio", "perplexity", "architecture")
    )
    perplexities = {trained.candidate_id: trained.perplexity for trained in view.trained}
    for candidate in (*view.points, *view.baseline):
        writer.writerow(_frontier_row(candidate, perplexities.get(candidate.id)))
    return text.getvalue()


def _frontier_row(candidate: CandidateView, perplexity: float | None) -> tuple[Any, ...]:
    versus = candidate.versus_baseline
    return (
        *(_cell(getattr(candidate, column)) for column in FRONTIER_COLUMNS),
        versus.speedup if versus else None,
        versus.speedup_low if versus else None,
        versus.speedup_high if versus else None,
        versus.memory_ratio if versus else None,
        perplexity,
        json.dumps(candidate.architecture, separators=(",", ":")),
    )


def _write_csv(file: IO[bytes], rows: Iterator[dict[str, Any]]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, [name for name, _ in EXPORT_COLUMNS])
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    text.flush()
    text.detach()


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else _cell(value)


def _write_parquet(file: IO[bytes], rows: Iterator[dict[str, Any]]) -> None:
    # Types are fixed: a first batch without measurements must not get a column of type null.
    schema = pa.schema(
        [pa.field(name, _type(name), metadata={"description": meaning}) for name, meaning in EXPORT_COLUMNS]
    )
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _type(name: str) -> pa.DataType:
    stored = Candidate.__table__.c.get(name)
    if stored is not None and isinstance(stored.type, UtcDateTime):
        return pa.timestamp("us", "UTC")
    if stored is not None:
        return _ARROW.get(stored.type.python_type, pa.string())
    if name == "extrapolated":
        return pa.bool_()
    return pa.string() if name in _TEXTS else pa.float64()
