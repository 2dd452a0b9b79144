"""The model that a command is given: every command takes one in each of these ways.

    a name            of the catalogue (`edgefront model list`); goes before a file called alike
    a Hub id          of a published model (`edgefront model list --published`); goes after a file of that path
    a description     a JSON file
    a config.json     of Hugging Face, or the folder that has it
    a folder of ours  that a training or `edgefront model import` wrote
    a GGUF file       llama.cpp's

The first three have no weights. Heavy libraries are loaded only for the weights, and gguf for a GGUF file.

A folder of ours that comes from elsewhere: the files that it may have, and whether they are one whole model.

Nothing in it is trusted: files are bounded before they are read, and every number of the weights is looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.huggingface import CONFIG, read_config
from edgefront.core.architectures.models import NamedModel, named_model, named_models, nearest_models
from edgefront.core.architectures.published import PublishedModel, published_models
from edgefront.core.common.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.common.files import sha256
from edgefront.core.common.hugging_face import (
    ARCHITECTURE,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    refuse_pointer,
)
from edgefront.core.common.number_formats import GGUF_MAGIC
from edgefront.core.common.validation import invalid_input, short
from edgefront.core.data.tokenizers.tokenizers import FILE, VOCABULARY_FILE
from edgefront.core.model_files.parameter_values import StoredValues, safetensors_header
from edgefront.core.training.evaluation.model_card import LICENCE
from edgefront.core.training.evaluation.package import CUTS, RESULT, SOURCE, WEIGHTS, Package, describe_as
from edgefront.core.training.recipes.recipe import Recipe

if TYPE_CHECKING:
    from edgefront.core.data.tokenizers.bpe import BPETokenizer
    from edgefront.core.training.evaluation.package import Package


MAX_DESCRIPTION_BYTES = 1 << 20
WAYS = (
    "a name from `edgefront model list`, a Hub id from `edgefront model list --published`, a description as JSON, the "
    "folder of a trained or a Hugging Face model, its config.json, or a GGUF file"
)
"""What an error says that it may be."""

_TOKENIZERS = ("vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "vocab.txt", "tekken.json")
"""Other forms of a tokenizer than `tokenizer.json`."""

Way = Literal["name", "description", "config", "folder", "gguf"]


@dataclass(frozen=True)
class _Place:
    """The place of a model that was given, and how it is stored there."""

    way: Way
    path: Path


def architecture_of(given: str | Path) -> Architecture:
    """The architecture of a model, in whichever way it is given.

    Raises `NotFound` where there is none, `ArchitectureError` for a file that does not describe one, `InvalidInput` for
    what a description cannot express.
    """
    place = _place(given)
    if place.way == "name":
        return named_model(str(given)).architecture
    if place.way == "folder":
        return _description(place.path / ARCHITECTURE)
    if place.way == "config":
        if (folder := _hugging_face_folder(place)) is None:
            return read_config(place.path)
        from edgefront.core.model_files.huggingface import read_architecture

        return read_architecture(folder)
    if place.way == "gguf":
        from edgefront.core.model_files.gguf_reading import GgufFile

        return GgufFile(place.path).architecture
    return _description(place.path)


def named_as(given: str | Path) -> NamedModel | None:
    """The named or published model that this is the name of; None where it is given in another way. Errors as in
    `architecture_of`."""
    return named_model(str(given)) if _place(given).way == "name" else None


def published_as(given: str | Path) -> PublishedModel | None:
    """The facts about a model that is given by its Hub id; None where it is given in another way. `NotFound`."""
    return published_models().get(str(given)) if _place(given).way == "name" else None


def is_gguf(given: str | Path) -> bool:
    """Whether this is a GGUF file. False where there is no such model."""
    try:
        return _place(given).way == "gguf"
    except NotFound:
        return False


def quantised_in(given: str | Path) -> str | None:
    """The quantised formats of a GGUF file's weights, in words: Q4_1 and Q8_0; None where there are none, or it is no
    such file. Errors as in `architecture_of`.
    """
    place = _place(given)
    if place.way != "gguf":
        return None
    from edgefront.core.model_files.gguf_header import GgufHeader

    formats = [name for name in GgufHeader(place.path).facts["weights"] if name not in ("F32", "F16", "BF16", "F64")]
    return " and ".join(formats) or None


def has_weights(given: str | Path) -> bool:
    """Whether this is given with trained weights: a folder of ours, a Hugging Face folder or a GGUF file."""
    place = _place(given)
    return place.way in ("folder", "gguf") or _hugging_face_folder(place) is not None


@contextmanager
def package_of(given: str | Path) -> Iterator[Package]:
    """A model with its trained weights and tokenizer. One of another form than ours is read into a temporary folder.

    Raises as `architecture_of`, and `InvalidInput` for a model that is given without weights.
    """
    from edgefront.core.training.evaluation.package import read_package

    place = _place(given)
    if place.way == "folder":
        yield read_package(place.path)
        return
    with tempfile.TemporaryDirectory(prefix="edgefront-model-") as folder:
        write_imported(given, Path(folder) / "model")
        yield read_package(Path(folder) / "model")


def unread_tokenizer(given: str | Path) -> str | None:
    """The files of a Hugging Face folder's tokenizer where it has no `tokenizer.json`, which alone is read; None where
    it has one, or none at all.
    """
    folder = _hugging_face_folder(_place(given))
    if folder is None or (folder / TOKENIZER).is_file():
        return None
    return ", ".join(name for name in _TOKENIZERS if (folder / name).is_file()) or None


def write_imported(given: str | Path, output: Path) -> BPETokenizer | None:
    """Writes a Hugging Face folder or a GGUF file as a folder of ours, and returns its tokenizer if it has one."""
    from edgefront.core.training.evaluation.package import import_gguf, import_transformers

    place = _place(given)
    if place.way == "gguf":
        return import_gguf(place.path, output)
    if (folder := _hugging_face_folder(place)) is not None:
        return import_transformers(folder, output)
    raise InvalidInput(
        f"{short(str(given))} has no weights: give the folder of a trained or a Hugging Face model, or a GGUF file",
        field="model",
        value=str(given),
        allowed="a model with weights",
    )


def _place(given: str | Path) -> _Place:
    if str(given) in named_models():
        return _Place("name", Path())
    if not os.path.exists(given):  # Path.exists raises on names that no file can have
        if str(given) in published_models():
            return _Place("name", Path())
        near = nearest_models(str(given))
        raise NotFound(f"{short(str(given))} is neither a file nor a named model; {near}", allowed=WAYS)
    path = Path(given)
    if path.is_dir():
        if (path / ARCHITECTURE).is_file():
            return _Place("folder", path)
        if (path / CONFIG).is_file():
            return _Place("config", path)
        raise NotFound(f"{path} is no folder of a model: it has no {ARCHITECTURE} and no {CONFIG}", allowed=WAYS)
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    if not head:
        raise InvalidInput(f"{path} is empty", field="model", value=str(path), allowed=WAYS)
    refuse_pointer(head, path)
    if head.startswith(GGUF_MAGIC):
        return _Place("gguf", path)
    return _Place("config" if _is_config(path) else "description", path)


def _hugging_face_folder(place: _Place) -> Path | None:
    """The folder with the weights of a `config.json`; None where it comes alone, or is no such file."""
    if place.way != "config" or (place.path.name != CONFIG and not place.path.is_dir()):
        return None
    folder = place.path if place.path.is_dir() else place.path.parent
    return folder if place.path.is_dir() or any(folder.glob("*.safetensors*")) else None


def _is_config(path: Path) -> bool:
    """A `config.json`, also one of another name."""
    if path.name == CONFIG:
        return True
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "model_type" in content and "blocks" not in content


def _description(path: Path) -> Architecture:
    try:
        return Architecture.parse(_text(path))
    except ArchitectureError as error:
        if error.field:
            raise
        raise ArchitectureError(f"{path}: {error.detail}", value=error.value, allowed=error.allowed) from None


def _text(path: Path) -> str:
    size = path.stat().st_size
    if size > MAX_DESCRIPTION_BYTES:
        raise ArchitectureError(
            f"it holds {size} bytes; a description has at most {MAX_DESCRIPTION_BYTES}",
            value=size,
            allowed=f"at most {MAX_DESCRIPTION_BYTES} bytes, or {WAYS}",
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ArchitectureError("not UTF-8 text", allowed=WAYS) from None
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None


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
    """Checks a folder and writes its `result.json` and model card anew; `name` and `licence` replace recorded ones.

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
