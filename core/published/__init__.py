"""Published models: facts about checkpoints on the Hugging Face Hub, and their scores by table.

`models.jsonl` has one `PublishedModel` a line, `tables.jsonl` one `ScoreTable`, `formats.jsonl` one `FormatLoss`. The
file that `EDGEFRONT_CATALOGUE` names has models of one's own in the same form; one with the id of a row here replaces
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pydantic import ValidationError

from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.json_lines import lines_of, object_in
from edgefront.core.published.rows import (
    FormatLoss,
    PublishedCatalogue,
    PublishedModel,
    PublishedView,
    Score,
    ScoreTable,
    agrees,
)
from edgefront.core.validation import existing, invalid_input

PERMISSIVE = "permissive"
PERMISSIVE_LICENCES = frozenset({"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc0-1.0"})
"""Licences that permit use, change and sale with no condition but naming the authors."""
_LOWER_IS_BETTER = ":ppl"
"""Ending of the benchmarks that are perplexities."""


@dataclass(frozen=True)
class ScoreName:
    """One benchmark of one table of scores."""

    table: str
    benchmark: str

    def __str__(self) -> str:
        return f"{self.table}:{self.benchmark}"

    def of(self, model: PublishedModel) -> float | None:
        """The model's score, of the weights as they were published; None where the table has none."""
        for score in model.scores:
            if score.table == self.table and score.weight_format is None and self.benchmark in score.values:
                return score.values[self.benchmark]
        return None


def score_named(text: str, models: Mapping[str, PublishedModel]) -> ScoreName:
    """The score that `TABLE:BENCHMARK` names; the benchmark may be cut short where one alone begins so.

    Raises `InvalidInput` that names `score` and lists the tables, or the benchmarks of the table.
    """
    table, _, benchmark = text.partition(":")
    benchmarks = _benchmarks(models.values())
    if table not in benchmarks:
        raise InvalidInput(
            f"no table of scores {table!r}; {existing(table, benchmarks, 'edgefront model list --published --json')}",
            field="score",
            value=text,
            allowed=", ".join(benchmarks),
        )
    names = benchmarks[table]
    chosen = [name for name in names if name == benchmark] or [name for name in names if name.startswith(benchmark)]
    if len(chosen) != 1 or not benchmark:
        listed = ", ".join(chosen if benchmark and chosen else names)
        what = f"{benchmark!r} is none of" if benchmark and not chosen else "name one of"
        raise InvalidInput(
            f"the table {table} has several scores: {what} {listed}", field="score", value=text, allowed=listed
        )
    if chosen[0].endswith(_LOWER_IS_BETTER):
        raise InvalidInput(
            f"{table}:{chosen[0]} is better where it is lower: a search takes scores that are better where higher",
            field="score",
            value=text,
            allowed=", ".join(name for name in names if not name.endswith(_LOWER_IS_BETTER)),
        )
    return ScoreName(table, chosen[0])


def _benchmarks(models: Iterable[PublishedModel]) -> dict[str, list[str]]:
    """Table → the benchmarks of which it has scores, in the order in which they occur."""
    found: dict[str, dict[str, None]] = {}
    for model in models:
        for score in model.scores:
            found.setdefault(score.table, {}).update(dict.fromkeys(score.values))
    return {table: list(names) for table, names in sorted(found.items())}


def is_permitted(model: PublishedModel, licence: str) -> bool:
    """Whether a model has this licence, or a permissive one where that is asked for. An unknown one is neither."""
    if model.licence is None:
        return False
    if licence == PERMISSIVE:
        return model.licence.lower() in PERMISSIVE_LICENCES
    return model.licence.lower() == licence.lower()


__all__ = [
    "CATALOGUE",
    "FormatLoss",
    "PublishedCatalogue",
    "PublishedModel",
    "PublishedView",
    "Score",
    "ScoreTable",
    "agrees",
    "format_loss",
    "published_models",
    "read_catalogue",
    "score_tables",
]

CATALOGUE = "EDGEFRONT_CATALOGUE"
"""The environment variable that names a file with models of one's own."""
MAX_CATALOGUE_BYTES = 1 << 26
_Row = TypeVar("_Row", PublishedModel, ScoreTable)


def published_models() -> Mapping[str, PublishedModel]:
    """Every published model by Hub id, those of one's own included. Each file is read once a process.

    Raises `NotFound` and `InvalidInput` about the file that `EDGEFRONT_CATALOGUE` names.
    """
    return _with_own(os.environ.get("EDGEFRONT_CATALOGUE", ""))


@lru_cache(maxsize=1)
def score_tables() -> Mapping[str, ScoreTable]:
    """The tables of the scores by id, in the order in which they are listed."""
    return MappingProxyType(_rows(ScoreTable, _text("tables.jsonl"), "tables.jsonl"))


def format_loss(model: str, bits: int) -> FormatLoss | None:
    """What is published of the quality that weights of so many bits cost a model; None where nothing is."""
    return _format_losses().get((model, bits))


@lru_cache(maxsize=1)
def _format_losses() -> Mapping[tuple[str, int], FormatLoss]:
    rows = (FormatLoss.model_validate(object_in(line)) for _, line in lines_of(_text("formats.jsonl")))
    return MappingProxyType({(row.model, row.bits): row for row in rows})


def read_catalogue(path: Path) -> dict[str, PublishedModel]:
    """The models in a JSON lines file.

    Raises `NotFound` where there is none, and `InvalidInput` that names the first bad line and its field.
    """
    try:
        if path.stat().st_size > MAX_CATALOGUE_BYTES:
            allowed = f"at most {MAX_CATALOGUE_BYTES} bytes"
            raise InvalidInput(f"{path} has more than {MAX_CATALOGUE_BYTES} bytes", field=CATALOGUE, allowed=allowed)
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text", field=CATALOGUE, allowed="a JSON lines file") from None
    except OSError as error:
        raise NotFound(f"the catalogue {path} cannot be read: {error.strerror}", allowed="a JSON lines file") from None
    return _rows(PublishedModel, text, str(path))


@lru_cache(maxsize=8)
def _with_own(path: str) -> Mapping[str, PublishedModel]:
    models = _shipped()
    return MappingProxyType({**models, **read_catalogue(Path(path))} if path else models)


@lru_cache(maxsize=1)
def _shipped() -> dict[str, PublishedModel]:
    return _rows(PublishedModel, _text("models.jsonl"), "models.jsonl")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _rows(kind: type[_Row], text: str, name: str) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    numbers: dict[str, int] = {}
    for number, line in lines_of(text):
        where = f"{name}, line {number}"
        try:
            row = kind.model_validate(object_in(line))
        except ValidationError as error:  # a ValueError, too
            raise _at(where, invalid_input(error, InvalidInput, model=kind)) from None
        except ValueError as error:
            raise InvalidInput(f"{where} {error}", allowed="one JSON object a line") from None
        if (earlier := numbers.setdefault(row.id, number)) != number:
            allowed = "an id that no other line has"
            raise InvalidInput(
                f"{where}: id {row.id} is on line {earlier}, too", field="id", value=row.id, allowed=allowed
            )
        rows[row.id] = row
    return rows


def _at(where: str, error: InvalidInput) -> InvalidInput:
    return InvalidInput(f"{where}: {error.detail}", field=error.path, value=error.value, allowed=error.allowed)
