"""The types of the catalogue of published models: one row a model, with its scores, and one row a table of scores."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.validation import form

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
    """Bits of one weight, as `core.number_formats.BITS` has them."""
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
