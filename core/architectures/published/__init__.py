"""Published models: facts about checkpoints on the Hugging Face Hub, and their scores by table.

`models.jsonl` has one `PublishedModel` a line, `tables.jsonl` one `ScoreTable`, `formats.jsonl` one `FormatLoss`. The
file that `EDGEFRONT_CATALOGUE` names has models of one's own in the same form; one with the id of a row here replaces
it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import lines_of, object_in
from edgefront.core.common.validation import existing, form, invalid_input

# The types of the catalogue of published models: one row a model, with its scores, and one row a table of scores.

Kind = Literal["base", "instruct", "post-trained"]

HUB_ID = form(r"^[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*$", "an id of the Hugging Face Hub: OWNER/NAME")
_STATED = form(r"^([0-9]{1,18}|[0-9]{1,9}(\.[0-9]{1,6})?[KMB])$", "a count such as 134515008, 362M or 1.71B")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}

Text = Annotated[str, Field(min_length=1, max_length=500)]
Id = Annotated[str, Field(max_length=200, pattern=HUB_ID)]
Count = Annotated[int, Field(strict=True, ge=1, le=10**18)]
Value = Annotated[float, Field(allow_inf_nan=False)]


class Score(BaseModel):
    """What one table says of one model. Values of different tables are not comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: Text
    values: Annotated[dict[str, Value], Field(min_length=1)]
    """Benchmark → value, in the table's own words and units."""
    weight_format: Text | None = None
    """Format of the weights that were evaluated; absent: those that were published."""
    note: Text | None = None


class PublishedModel(BaseModel):
    """The facts about a model that somebody published. What no source states is absent, never a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Id
    kind: Kind
    base: Id | None = None
    """The model that it was trained from."""
    licence: Text | None = None
    context_length: Count | None = None
    """Tokens."""
    training_tokens: Count | None = None
    parameters: Annotated[str, Field(pattern=_STATED)] | None = None
    """Number of parameters as stated: `134515008`, `362M`."""
    vocab_size: Count | None = None
    """Tokens of its tokenizer, as the embedding has rows."""
    config: dict[str, Any] | None = None
    """The fields of its config.json that describe the architecture."""
    unknown: tuple[Text, ...] = ()
    """Fields of its config.json that no source states and without which there is no architecture."""
    needs: Text | None = None
    """What the architecture has that a description may lack."""
    notes: tuple[Text, ...] = ()
    sources: dict[str, Text] = Field(default_factory=dict)
    """Field → where it was read."""
    scores: tuple[Score, ...] = ()


class PublishedView(PublishedModel):
    """The facts about a published model, and what is counted from its architecture."""

    # Clients of an older release pass over fields that they do not know.
    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str | None = None
    counted_parameters: int | None = None
    not_expressible: str | None = None
    """Why no description has this model; absent where one has."""


class ScoreTable(BaseModel):
    """The source of a table of scores, and how they were made."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Text
    protocol: Text
    """Harness, shots, and what the values are."""
    source: Text
    licence: Text | None = None
    """Licence of the source, where it was read."""


class FormatLoss(BaseModel):
    """What is published of the quality that a format of weights costs a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Id
    bits: Count
    """Bits of one weight, as `core.common.number_formats.BITS` has them."""
    what: Text
    source: Text


class PublishedCatalogue(BaseModel):
    """Published models and the tables of their scores."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tables: tuple[ScoreTable, ...]
    models: tuple[PublishedView, ...]


def agrees(stated: str, counted: int) -> bool:
    """Whether a stated count is the counted one, rounded or cut off at the digits that are stated."""
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?([KMB]?)", stated)
    assert match is not None
    whole, decimals, unit = match[1], match[2] or "", match[3]
    step = Fraction(_UNITS[unit], 10 ** len(decimals))
    distance = counted - int(whole + decimals) * step
    return distance == 0 if unit == "" else -step / 2 <= distance < step


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


MAX_CATALOGUE_BYTES = 1 << 26
_Row = TypeVar("_Row", PublishedModel, ScoreTable)


def published_models() -> Mapping[str, PublishedModel]:
    """Every published model by Hub id, those of one's own included. Each file is read once a process.

    Raises `NotFound` and `InvalidInput` about the file that `EDGEFRONT_CATALOGUE` names.
    """
    path = os.environ.get("EDGEFRONT_CATALOGUE", "")
    return _with_own(path) if path else shipped_models()


@lru_cache(maxsize=1)
def shipped_models() -> Mapping[str, PublishedModel]:
    """The published models of this release alone."""
    return MappingProxyType(_rows(PublishedModel, _text("models.jsonl"), "models.jsonl"))


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
