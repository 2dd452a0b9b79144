"""A folder of ours that comes from elsewhere: the files that it may have, and whether they are one whole model.

Nothing in it is trusted: files are bounded before they are read, and every number of the weights is looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.data.tokenizers.tokenizers import FILE, VOCABULARY_FILE
from edgefront.core.errors import InvalidInput
from edgefront.core.evaluation.model_card import LICENCE
from edgefront.core.evaluation.package import CUTS, RESULT, SOURCE, WEIGHTS, Package, describe_as
from edgefront.core.files import sha256
from edgefront.core.graph.parameter_values import StoredValues, safetensors_header
from edgefront.core.hugging_face import ARCHITECTURE, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.validation import invalid_input

_TOKENIZER_FILES = (FILE, VOCABULARY_FILE, TOKENIZER, TOKENIZER_CONFIG, GENERATION_CONFIG)
_CONTENT = (WEIGHTS, CUTS, *_TOKENIZER_FILES, *(f"{SOURCE}/{name}" for name in _TOKENIZER_FILES))
FILES = (ARCHITECTURE, RESULT, *_CONTENT)
"""The files that are taken, by their path in the folder; the first and the weights must be there."""
MAX_TEXT_BYTES = 64 << 20
"""Of any file but those of tensors. The largest of published models, Gemma's tokenizer, has 33 MB."""
_OF_TENSORS = (WEIGHTS, CUTS)

_Text = Annotated[str, Field(max_length=200)]
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Licence = Annotated[str, Field(pattern=f"^{LICENCE.pattern}$")]
_Real = Annotated[float, Field(allow_inf_nan=False)]


class _Fact(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Scores(_Fact):
    loss: _Real | None = None
    tokens: _Count | None = None
    perplexity: _Real | None = None
    bpc: _Real | None = None
    word_perplexity: _Real | None = None
    bleu: _Real | None = None


class _Origin(_Fact):
    """Another model, of which it was cut or from which it learnt."""

    name: _Text | None = None
    training: _Text | None = None
    sha256: _Text | None = None
    digest: _Text | None = None
    licence: _Licence | None = None
    share: _Real | None = None
    temperature: _Real | None = None


class _Cut(_Fact):
    sentence: Annotated[str, Field(max_length=2000)]


class _Recorded(_Fact):
    """What a folder may say of its model's origin, for the model card."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    licence: _Licence | None = None
    parent: _Origin | None = None
    cut: _Cut | None = None
    teacher: _Origin | None = None
    dataset: _Text | None = None
    data_digest: _Text | None = None
    recipe: dict[str, Any] | None = None
    seed: _Count | None = None
    steps: _Count | None = None
    best_step: _Count | None = None
    tokens: _Count | None = None
    seconds: _Real | None = None
    valid: _Scores | None = None
    test: _Scores | None = None


@dataclass(frozen=True)
class ImportedModel:
    """A model that was checked. `digest`: of its weights, its tokenizer and what else decides how it works."""

    architecture: Architecture
    facts: Mapping[str, Any]
    digest: str


def most_bytes(name: str) -> int | None:
    """Of a file of `FILES`; None for those of tensors, which have a bound together."""
    return None if name in _OF_TENSORS else MAX_TEXT_BYTES


def model_files(folder: Path) -> dict[str, Path]:
    """The files of a folder of ours that are sent and taken, by their path in it."""
    return {name: folder / name for name in FILES if (folder / name).is_file()}


def check_imported(folder: Path, *, name: str | None = None, licence: str | None = None) -> ImportedModel:
    """Checks a folder and writes its `result.json` and model card anew; `name` and `licence` go before recorded ones.

    Raises `InvalidInput`, which names no folder: a file is missing, is no JSON or no safetensors file; a tensor is
    missing, unknown, of another shape or type; a number is not finite; the architecture is not that of the weights; the
    tokenizer has more tokens than the model.
    """
    with _naming_no_folder(folder):
        for required in (WEIGHTS, ARCHITECTURE):
            if not (folder / required).is_file():
                raise InvalidInput(f"{required} is missing", field="model", allowed=", ".join(FILES))
        weights = StoredValues(folder / WEIGHTS)
        described = Architecture.parse((folder / ARCHITECTURE).read_text(encoding="utf-8"))
        if described.digest != weights.architecture.digest:
            raise InvalidInput(
                f"{ARCHITECTURE} describes {described.digest[:12]}, and {WEIGHTS} is of "
                f"{weights.architecture.digest[:12]}"
            )
        if (folder / CUTS).exists():
            safetensors_header(folder / CUTS)
        given = {"name": name, "licence": licence}
        facts = _recorded(folder) | {field: value for field, value in given.items() if value is not None}
        package = Package(folder, {**facts, "digest": described.digest}, weights)
        package.check()
        tokenizer = package.tokenizer_if_any
        if tokenizer is not None:
            facts["level"] = tokenizer.level
        facts.setdefault("name", f"model {described.digest[:8]}")
        package = describe_as(package, facts)
        hashed = hashlib.sha256()
        for file in _CONTENT:
            if (folder / file).is_file():
                hashed.update(f"{file} {sha256(folder / file)}\n".encode())
        return ImportedModel(described, package.facts, hashed.hexdigest())


def _recorded(folder: Path) -> dict[str, Any]:
    if not (folder / RESULT).is_file():
        return {}
    try:
        recorded = _Recorded.model_validate_json((folder / RESULT).read_bytes())
    except ValidationError as error:
        raise invalid_input(error, InvalidInput).under(RESULT) from None
    if recorded.recipe is not None:
        Recipe.parse(recorded.recipe)
    return json.loads(recorded.model_dump_json(exclude_none=True))  # type: ignore[no-any-return]


@contextmanager
def _naming_no_folder(folder: Path) -> Iterator[None]:
    """Takes the folder, a temporary one, out of errors, and turns those of text that is not UTF-8 into one of ours."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the model cannot be imported: a file is not UTF-8 text ({error.reason})") from None
    except InvalidInput as error:
        detail = error.detail.replace(f"{folder}/", "").replace(f" in {folder}", "")
        value = None if str(folder) in str(error.value) else error.value
        raise InvalidInput(
            f"the model cannot be imported: {detail}", field="model", value=value, allowed=error.allowed
        ) from None
