"""Published models: facts about checkpoints on the Hugging Face Hub, and the checkpoints' published benchmark scores.

Each line of `models.jsonl` is a `PublishedModel`, of `tables.jsonl` a `ScoreTable`, of `formats.jsonl` a `FormatLoss`.
The file in `EDGEFRONT_CATALOGUE` has more models in the same format, and may replace models of this release by id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import lines_of, object_in
from edgefront.core.common.validation import existing, form, invalid_input

# The catalogue has one row for each published model, with its scores, and one for each table of scores.

Kind = Literal["base", "instruct", "post-trained"]

HUB_ID = form(r"^[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*$", "an id of the Hugging Face Hub: OWNER/NAME")
_STATED = form(r"^([0-9]{1,18}|[0-9]{1,9}(\.[0-9]{1,6})?[KMB])$", "a count such as 134515008, 362M or 1.71B")

Text = Annotated[str, Field(min_length=1, max_length=500)]
Id = Annotated[str, Field(max_length=200, pattern=HUB_ID)]
Count = Annotated[int, Field(strict=True, ge=1, le=10**18)]
Value = Annotated[float, Field(allow_inf_nan=False)]


class Score(BaseModel):
    """Scores of one model in one published result table. Scores from different tables are not comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: Text
    values: Annotated[dict[str, Value], Field(min_length=1)]
    """Benchmark → value, in the source's own words and units."""
    weight_format: Text | None = None
    """Format of the evaluated weights; absent for the published weights."""
    note: Text | None = None


class PublishedModel(BaseModel):
    """Facts about a published model. A fact without a source is absent and has no default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Id
    kind: Kind
    base: Id | None = None
    """Model from which the training started."""
    licence: Text | None = None
    context_length: Count | None = None
    """Maximum number of tokens of a sequence."""
    training_tokens: Count | None = None
    parameters: Annotated[str, Field(pattern=_STATED)] | None = None
    """Number of parameters as stated by the source: `134515008`, `362M`."""
    vocab_size: Count | None = None
    """Number of rows of the embedding."""
    config: dict[str, Any] | None = None
    """Fields of the model's config.json that describe the architecture."""
    unknown: tuple[Text, ...] = ()
    """Required fields of the model's config.json that no source states."""
    needs: Text | None = None
    """Features of the architecture that a description may be unable to express."""
    notes: tuple[Text, ...] = ()
    sources: dict[str, Text] = Field(default_factory=dict)
    """Name of a field → source of its value."""
    scores: tuple[Score, ...] = ()


class PublishedView(PublishedModel):
    """Facts about a published model, with the digest and number of parameters of its architecture."""

    # Clients of an older release ignore unknown fields.
    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str | None = None
    counted_parameters: int | None = None
    not_expressible: str | None = None
    """Reason why this model has no description; absent if the model has one."""


class ScoreTable(BaseModel):
    """Source and evaluation protocol of a published result table."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Text
    protocol: Text
    """Evaluation harness, number of shots, and meaning of the values."""
    source: Text
    licence: Text | None = None
    """Licence of the table's source."""


class FormatLoss(BaseModel):
    """Published loss of quality of a model when its weights are quantised to a format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Id
    bits: Count
    """Bits per weight, as in `core.common.number_formats.BITS`."""
    what: Text
    source: Text


class PublishedCatalogue(BaseModel):
    """Published models, and the published result tables with the models' scores."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tables: tuple[ScoreTable, ...]
    models: tuple[PublishedView, ...]


PERMISSIVE = "permissive"
PERMISSIVE_LICENCES = frozenset({"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc0-1.0"})
"""Licences that permit use, change and sale with attribution as the only condition."""
_LOWER_IS_BETTER = ":ppl"
"""Suffix of the names of benchmarks that are perplexities."""


@dataclass(frozen=True)
class ScoreName:
    """Name of one benchmark in one published result table."""

    table: str
    benchmark: str

    def __str__(self) -> str:
        return f"{self.table}:{self.benchmark}"

    def of(self, model: PublishedModel) -> float | None:
        """Score of a model with its published weights in this benchmark; None if the model has no such score."""
        for score in model.scores:
            if score.table == self.table and score.weight_format is None and self.benchmark in score.values:
                return score.values[self.benchmark]
        return None


def score_named(text: str, models: Mapping[str, PublishedModel]) -> ScoreName:
    """Finds a score by its name `TABLE:BENCHMARK`, where a unique prefix of the benchmark is enough.

    Raises `InvalidInput` that names `score` and lists the existing tables, or the benchmarks of the given table.
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
            f"{table}:{chosen[0]} is a score where lower is better; a search needs a score where higher is better",
            field="score",
            value=text,
            allowed=", ".join(name for name in names if not name.endswith(_LOWER_IS_BETTER)),
        )
    return ScoreName(table, chosen[0])


def _benchmarks(models: Iterable[PublishedModel]) -> dict[str, list[str]]:
    """Id of a result table → names of the table's benchmarks, in the order of first occurrence."""
    found: dict[str, dict[str, None]] = {}
    for model in models:
        for score in model.scores:
            found.setdefault(score.table, {}).update(dict.fromkeys(score.values))
    return {table: list(names) for table, names in sorted(found.items())}


def is_permitted(model: PublishedModel, licence: str) -> bool:
    """Whether a model has this licence, or a permissive licence for `permissive`; False for an unknown licence."""
    if model.licence is None:
        return False
    if licence == PERMISSIVE:
        return model.licence.lower() in PERMISSIVE_LICENCES
    return model.licence.lower() == licence.lower()


def stated_licence(model: PublishedModel) -> str | None:
    """Stated licence of a model; if none is stated, the base model's as `of the base model: apache-2.0`; else None."""
    base = None if model.base is None else published_models().get(model.base)
    if model.licence is not None or base is None or base.licence is None:
        return model.licence
    return f"of the base model: {base.licence}"


MAX_CATALOGUE_BYTES = 1 << 26
_Row = TypeVar("_Row", PublishedModel, ScoreTable)


def published_models() -> Mapping[str, PublishedModel]:
    """Every published model by Hub id, with the models of `EDGEFRONT_CATALOGUE`. Each file is read once per process.

    Raises `NotFound` or `InvalidInput` if the file in `EDGEFRONT_CATALOGUE` is missing or invalid.
    """
    path = os.environ.get("EDGEFRONT_CATALOGUE", "")
    return _with_own(path) if path else shipped_models()


@lru_cache(maxsize=1)
def shipped_models() -> Mapping[str, PublishedModel]:
    """Published models of this release, by Hub id."""
    return MappingProxyType(_rows(PublishedModel, _text("models.jsonl"), "models.jsonl"))


@lru_cache(maxsize=1)
def score_tables() -> Mapping[str, ScoreTable]:
    """Published result tables by id, in the order of the file."""
    return MappingProxyType(_rows(ScoreTable, _text("tables.jsonl"), "tables.jsonl"))


def format_loss(model: str, bits: int) -> FormatLoss | None:
    """Published loss of quality of a model with `bits` bits per weight; None if no source states the loss."""
    return _format_losses().get((model, bits))


@lru_cache(maxsize=1)
def _format_losses() -> Mapping[tuple[str, int], FormatLoss]:
    rows = (FormatLoss.model_validate(object_in(line)) for _, line in lines_of(_text("formats.jsonl")))
    return MappingProxyType({(row.model, row.bits): row for row in rows})


def read_catalogue(path: Path) -> dict[str, PublishedModel]:
    """Reads the models in a JSON lines file.

    Raises `NotFound` if the file is missing, and `InvalidInput` that names the first invalid line and its field.
    """
    allowed = f"a JSON lines file of at most {MAX_CATALOGUE_BYTES} bytes"
    try:
        if path.stat().st_size > MAX_CATALOGUE_BYTES:
            raise InvalidInput(f"{path} is too large", field="EDGEFRONT_CATALOGUE", allowed=allowed)
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text", field="EDGEFRONT_CATALOGUE", allowed=allowed) from None
    except OSError as error:
        raise NotFound(f"the catalogue {path} cannot be read: {error.strerror}", allowed=allowed) from None
    return _rows(PublishedModel, text, str(path))


@lru_cache(maxsize=8)
def _with_own(path: str) -> Mapping[str, PublishedModel]:
    return MappingProxyType({**shipped_models(), **read_catalogue(Path(path))})


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _rows(kind: type[_Row], text: str, name: str) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for number, line in lines_of(text):
        where = f"{name}, line {number}"
        try:
            row = kind.model_validate(object_in(line))
        except ValidationError as error:  # a ValueError, too
            refused = invalid_input(error, InvalidInput, model=kind)
            raise InvalidInput(
                f"{where}: {refused.detail}", field=refused.path, value=refused.value, allowed=refused.allowed
            ) from None
        except ValueError as error:
            raise InvalidInput(f"{where} {error}", allowed="one JSON object a line") from None
        if row.id in rows:
            allowed = "an id that no other line has"
            raise InvalidInput(f"{where}: another line has the id {row.id}", field="id", value=row.id, allowed=allowed)
        rows[row.id] = row
    return rows
