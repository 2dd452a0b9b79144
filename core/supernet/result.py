"""What a search by a supernet found: the architectures, one a seed, and how the probabilities came to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.errors import InvalidInput
from edgefront.core.files import whole_file
from edgefront.core.supernet.settings import CHOICES, LETTERS, Choice, SupernetSettings
from edgefront.core.validation import invalid_input

FILE, SUMMARY = "supernet.json", "result.json"

Row = Annotated[tuple[float, ...], Field(min_length=len(CHOICES), max_length=len(CHOICES))]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Record(_Part):
    """The probabilities after a step: one row a layer, one number for each of `choices`."""

    step: int
    temperature: float
    probabilities: tuple[Row, ...]


class SearchOutcome(_Part):
    """What the search of one seed found."""

    seed: int
    pattern: str
    """The likeliest block of each layer, by the grammar of `core.spaces.pattern`."""
    architecture: dict[str, Any]
    """Its canonical description, over the vocabulary of the data, without identity blocks."""
    digest: str
    converged: bool
    """No layer changed its likeliest block for as long as `patience` asks; else the steps or the budget ended it."""
    steps: int
    changed_at: int
    """The step that last changed a layer's likeliest block."""
    loss: float | None
    """Loss of the supernet, nats a token, mean over the last steps on the architecture's part of the data."""
    expected_ms: float | None = None
    probabilities: tuple[Row, ...]
    records: tuple[Record, ...] = ()
    """Left out of a run's `result.json`."""

    @property
    def letters(self) -> str:
        """The likeliest block of each layer, one letter a layer."""
        return "".join(LETTERS[max(range(len(CHOICES)), key=row.__getitem__)] for row in self.probabilities)


class SupernetResult(_Part):
    """`result/supernet.json` of a run."""

    version: int = 1
    choices: tuple[Choice, ...] = CHOICES
    """What the numbers of a row belong to."""
    settings: SupernetSettings
    searches: tuple[SearchOutcome, ...]

    @classmethod
    def parse(cls, value: Mapping[str, Any] | str | bytes) -> SupernetResult:
        """The result of its JSON form or text; `InvalidInput` names what is wrong with it."""
        try:
            return cls.model_validate(json.loads(value) if isinstance(value, str | bytes) else dict(value))
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under("supernet result") from None
        except ValueError as error:
            raise InvalidInput(f"the supernet's result is not JSON: {error}", allowed=f"a whole {FILE}") from None

    def summary(self) -> dict[str, Any]:
        """The same as JSON without the records over time, which are most of it."""
        return self.model_dump(mode="json", exclude={"searches": {"__all__": {"records"}}})

    def write(self, folder: Path) -> None:
        """Writes both files into `folder`, each whole or not at all. `Unavailable` on a full disk."""
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / FILE) as file:
            file.write(self.model_dump_json(indent=1).encode())
        with whole_file(folder / SUMMARY) as file:
            file.write(json.dumps(self.summary(), indent=1).encode())
