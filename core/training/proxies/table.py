"""Reads tables of trained models: JSON lines or CSV (also compressed by gzip), one model per row.

A row has the quality of a trained model, and either the model's description (`architecture`, or the fields of LTS's
logs) or a proxy's value in a column. Nested objects become columns with dots:
`params.total`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import MAX_BLOCKS
from edgefront.core.architectures.catalogue import space
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import lines_of, object_in

Row = dict[str, Any]

QUALITIES: dict[str, bool] = {
    # Column → whether higher is better. The first column that the table has is used.
    "valid_ppl": False,
    "perplexity": False,
    "word_perplexity": False,
    "bpc": False,
    "test_ppl": False,
    "ppl": False,
    "loss": False,
    "bleu": True,
    "accuracy": True,
    "score": True,
}

ALIASES: dict[str, tuple[str, ...]] = {
    "decoder_parameters": ("params.nonembedding", "nonembedding_parameters", "encoder_parameters", "NonEmbParams"),
    "total_parameters": ("params.total", "TotalParams"),
}
"""Alternative column names for the values of a proxy."""

_KINDS = "a .jsonl or .csv file, or one of these with .gz"

_SPACES = {
    "gpt2": "lts-gpt2",
    "txl": "lts-transformer-xl",
    "transfo_xl": "lts-transformer-xl",
    "mem_transformer": "lts-transformer-xl",
    "opt": "lts-opt",
    "bert": "bert",
}
"""Backbones of LTS, and the search spaces with the same fixed parts."""

LTS_FIELDS = ("backbone", "n_layer", "d_model", "d_inner", "n_head")
"""Columns that describe a model."""

TOKENS = "tokens"
"""Column of training tokens. Several rows of one model with different tokens are its learning curve."""


@dataclass(frozen=True)
class Quality:
    """Column that contains the quality of a model, and whether higher is better."""

    column: str
    higher_is_better: bool

    def oriented(self, value: float) -> float:
        return value if self.higher_is_better else -value


def read_table(path: Path) -> list[Row]:
    """Reads the rows of a table with flat columns. Raises `InvalidInput`, which names an invalid line."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = suffixes[-1:] == [".gz"]
    kind = "".join(suffixes[:-1][-1:] if compressed else suffixes[-1:])
    try:
        text = (gzip.decompress(path.read_bytes()) if compressed else path.read_bytes()).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise _wrong(path, getattr(error, "strerror", None) or str(error), _KINDS) from None
    except UnicodeDecodeError:
        raise _wrong(path, "not UTF-8 text", _KINDS) from None
    rows = _cells(path, text) if kind == ".csv" else [_line(path, number, line) for number, line in lines_of(text)]
    if not rows:
        raise _wrong(path, "no rows", "a table with one trained model per row")
    return [_flat(row) for row in rows]


def quality_of(rows: Sequence[Row], name: str | None = None, higher_is_better: bool | None = None) -> Quality:
    """Returns the column of quality: the column `name`, or if None the first of `QUALITIES` that the table has.

    Columns of `QUALITIES` and columns that end in ppl or loss have a known direction; others need `higher_is_better`.
    """
    columns = {name for row in rows for name in row}
    if name is None:
        name = next((name for name in QUALITIES if name in columns), None)
        if name is None:
            raise InvalidInput(
                f"no column has the quality of a model; the table has {', '.join(sorted(columns))}",
                field="quality",
                allowed=f"a column of one of these names: {', '.join(QUALITIES)}; or the name of another column",
            )
    if name not in columns:
        allowed = ", ".join(sorted(columns))
        raise InvalidInput(f"no column {name!r}; there are {allowed}", field="quality", value=name, allowed=allowed)
    higher = QUALITIES.get(name.rpartition(".")[2])
    if higher is None and name.endswith(("ppl", "perplexity", "loss")):
        higher = False
    direction = higher if higher_is_better is None else higher_is_better
    if direction is None:
        raise InvalidInput(
            f"it is unknown whether a higher {name} is better",
            field="quality",
            value=name,
            allowed=f"{name}:higher or {name}:lower",
        )
    return Quality(name, direction)


def where(rows: Sequence[Row], conditions: Mapping[str, str]) -> list[Row]:
    """Returns the rows with these values (column → value), compared as text or as numbers."""
    return [
        row
        for row in rows
        if all(str(row.get(name)) == value or row.get(name) == _number(value) for name, value in conditions.items())
    ]


def best_of(rows: Sequence[Row], keys: Sequence[str], quality: Quality) -> list[Row]:
    """Returns the row with the best quality for each combination of values in the columns `keys`.

    In a translation benchmark, LTS takes the best learning rate of each architecture in this way (Appendix J).
    """
    kept: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = tuple(json.dumps(row.get(name), sort_keys=True) for name in keys)
        value = number_in(row, quality.column)
        if value is None:
            continue
        former = kept.get(key)
        if former is None or quality.oriented(value) > quality.oriented(former[quality.column]):
            kept[key] = row
    return list(kept.values())


def number_in(row: Row, column: str) -> float | None:
    """Returns the number in a column of a row; None if the cell is not a finite number."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def columns_of(proxy: str) -> tuple[str, ...]:
    """Names of the columns that may contain the proxy's values; `value_of` takes the first column with a number."""
    return (proxy, *ALIASES.get(proxy, ()))


def value_of(row: Row, proxy: str) -> float | None:
    """Returns the proxy's value in the row; None if the row has no value of this proxy."""
    values = (number_in(row, column) for column in columns_of(proxy))
    return next((value for value in values if value is not None), None)


def has_scores(rows: Sequence[Row], proxy: str) -> bool:
    """Whether at least one row has the proxy's value or describes a model that can be scored."""
    return any(value_of(row, proxy) is not None or architecture_of(row) is not None for row in rows)


def architecture_of(row: Row) -> Architecture | None:
    """Returns the architecture that the row describes; None without one. Raises `InvalidInput` if it is invalid."""
    described = row.get("architecture")
    if described:
        return Architecture.parse(described)
    frame = _SPACES.get(str(row.get("backbone")))
    return None if frame is None or _missing(row) else _lts(row, frame)


def missing_fields(row: Row) -> tuple[str, ...]:
    """Names the missing fields of LTS's logs; `architecture` if the row has none of the logs' own fields."""
    return _missing(row) if any(row.get(name) is not None for name in ("backbone", "d_inner")) else ("architecture",)


def _missing(row: Row) -> tuple[str, ...]:
    return tuple(name for name in LTS_FIELDS if row.get(name) is None)


def _lts(row: Row, frame: str) -> Architecture:
    """Returns the model in a row of LTS's logs; all other settings are those of the backbone's search space."""
    described = dict(space(frame).baselines([1])[0].canonical)
    embedding = dict(described["embedding"])
    if row.get("n_token") is not None:
        embedding["vocab_size"] = _integer_in(row, "n_token")
    if "cutoffs" in embedding:
        # All vocabularies have the same cut-offs up to the size of the vocabulary.
        embedding["cutoffs"] = [cut for cut in embedding["cutoffs"] if cut < embedding["vocab_size"]]
        embedding["div"] = _integer_in(row, "div_val") if row.get("div_val") else 1
    if row.get("d_embed") and _integer_in(row, "d_embed") > 0:  # -1 in LTS's logs: as wide as the model
        embedding["d_embed"] = _integer_in(row, "d_embed")
    else:
        embedding.pop("d_embed", None)
    blocks = _blocks(row)
    return Architecture.parse(
        {**described, "d_model": _integer_in(row, "d_model"), "embedding": embedding, "blocks": blocks}
    )


def _blocks(row: Row) -> list[dict[str, Any]]:
    """Returns the blocks, attention and feed-forward per layer."""
    layers = _integer_in(row, "n_layer")
    if layers > MAX_BLOCKS:
        raise InvalidInput(
            f"n_layer is {row['n_layer']!r}", field="n_layer", value=row["n_layer"], allowed=f"at most {MAX_BLOCKS}"
        )
    return [
        block
        for n_head, d_inner in zip(*(_per_layer(row, name, layers) for name in ("n_head", "d_inner")), strict=True)
        for block in ({"kind": "attention", "n_head": n_head}, {"kind": "feed_forward", "d_inner": d_inner})
    ]


def _per_layer(row: Row, name: str, layers: int) -> list[int]:
    """Returns a number per layer; the cell has a list, or one number for all layers."""
    value = row[name]
    if not isinstance(value, list):
        return [_integer(value, name)] * layers
    if len(value) < layers:
        raise InvalidInput(
            f"{name} has {len(value)} numbers for {layers} layers",
            field=name,
            value=row[name],
            allowed="a number for each layer",
        )
    return [_integer(item, name) for item in value[:layers]]


def _integer_in(row: Row, name: str) -> int:
    return _integer(row[name], name)


def _integer(value: Any, name: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or (isinstance(value, float) and number != value):
        raise InvalidInput(f"{name} is {value!r}, not a whole number", field=name, value=value, allowed="whole numbers")
    return number


def _flat(row: Mapping[str, Any]) -> Row:
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and name != "architecture":
            flat |= {f"{name}.{inner}": entry for inner, entry in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def _cells(path: Path, text: str) -> list[Any]:
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise _wrong(path, f"not CSV: {error}", _KINDS) from None
    for number, row in enumerate(rows, 1):
        if None in row:
            if ";" in text.partition("\n")[0]:
                raise _wrong(path, "its cells are separated by semicolons", "commas between cells, points in numbers")
            raise _wrong(path, f"row {number} has more cells than the header has columns", "a cell for each column")
    return [{name: _number(value) for name, value in row.items()} for row in rows]


def _line(path: Path, number: int, line: str) -> Any:
    try:
        return object_in(line)
    except ValueError as error:
        raise _wrong(path, f"line {number} {error}", "one JSON object a line") from None


def _number(text: str | None) -> Any:
    """Parses a cell of a CSV file: None for an empty cell, a number, a JSON list, or text."""
    if text is None or not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _wrong(path: Path, fault: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{path}: {fault}", field="table", value=str(path), allowed=allowed)
