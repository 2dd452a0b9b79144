"""Candidates as a data frame of pandas, from the service's Parquet export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

_CATEGORIES = ("job_id", "target", "target_id", "role", "operator", "state")
_LEFT_OUT = ("architecture",)
_DEPTHS = ("n_layer", "n_block")
"""Genes that say how many layers there are."""
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
"""Arrow's type → that of pandas, which keeps whole numbers whole where some are missing."""


def candidate_frame(file: IO[bytes]) -> pd.DataFrame:
    """One row a candidate; the column `genome` becomes one for each gene."""
    export = pq.ParquetFile(file, read_dictionary=list(_CATEGORIES))
    table = export.read([name for name in export.schema_arrow.names if name not in _LEFT_OUT])
    frame = table.to_pandas(types_mapper=_NULLABLE.get)
    genomes = [json.loads(text) if text else {} for text in table.column("genome").to_pylist()]
    genes = pa.table(_genes(genomes)).to_pandas(types_mapper=_NULLABLE.get)
    return pd.concat([frame.drop(columns="genome"), genes], axis="columns")


def _genes(genomes: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Column → a value for each genome, None where it has none."""
    columns: dict[str, list[Any]] = {}
    for row, genome in enumerate(genomes):
        for name, value in _values(genome):
            if name not in columns:
                columns[name] = [None] * len(genomes)
            columns[name][row] = value
    return columns


def _values(genome: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    depth = next((genome[name] for name in _DEPTHS if name in genome), None)
    for name, value in genome.items():
        if isinstance(value, list):
            # Those of layers beyond the depth stay in a genome, but are in no architecture.
            yield from (
                (f"gene_{name}_{layer}", layer_value) for layer, layer_value in enumerate(value[:depth], start=1)
            )
        else:
            # A gene may follow another one: its value is then that one's name.
            yield f"gene_{name}", genome[value] if isinstance(value, str) and value in genome else value
