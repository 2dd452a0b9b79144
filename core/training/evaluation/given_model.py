"""Reads the model argument of a command, which has one of these forms, and checks uploaded model folders.

    a name            in the catalogue (`edgefront model list`); takes precedence over a file of that name
    a Hub id          of a published model (`edgefront model list --published`); a file of that name takes precedence
    a description     of an architecture, a JSON file
    a config.json     of Hugging Face, or its folder
    a model folder    of a training or `edgefront model import`
    a GGUF file       of llama.cpp

The first three forms have no weights. Torch is loaded only for weights, and gguf only for a GGUF file.

Uploaded folders are not trusted: file sizes are limited before reading, and every weight is checked.
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
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

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
from edgefront.core.training.evaluation.package import (
    CUTS,
    RESULT,
    SOURCE,
    WEIGHTS,
    Package,
    describe_as,
    import_gguf,
    import_transformers,
    read_package,
)
from edgefront.core.training.recipes.recipe import Recipe

if TYPE_CHECKING:
    from edgefront.core.data.tokenizers.bpe import BPETokenizer


MAX_DESCRIPTION_BYTES = 1 << 20
WAYS = (
    "a name from `edgefront model list`, a Hub id from `edgefront model list --published`, a description as JSON, the "
    "folder of a trained or a Hugging Face model, its config.json, or a GGUF file"
)
"""Allowed forms of a model argument, for error messages."""

_TOKENIZERS = ("vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "vocab.txt", "tekken.json")
"""Names of tokenizer files other than `tokenizer.json`."""

Form = Literal["name", "description", "config", "folder", "gguf"]


class _Location(NamedTuple):
    form: Form
    path: Path


def architecture_of(model: str | Path) -> Architecture:
    """Returns the architecture of a model in any form of the model argument.

    Raises `NotFound` for a missing model, `ArchitectureError` for an invalid description, `InvalidInput` for an
    architecture that a description cannot express.
    """
    location = _locate(model)
    if location.form == "name":
        return named_model(str(model)).architecture
    if location.form == "folder":
        return _description(location.path / ARCHITECTURE)
    if location.form == "config":
        if (folder := _hugging_face_folder(location)) is None:
            return read_config(location.path)
        from edgefront.core.model_files.huggingface import read_architecture

        return read_architecture(folder)
    if location.form == "gguf":
        from edgefront.core.model_files.gguf_reading import GgufFile

        return GgufFile(location.path).architecture
    return _description(location.path)


def named_as(model: str | Path) -> NamedModel | None:
    """Returns the model if `model` is a name or a Hub id; otherwise None. Raises the errors of `architecture_of`."""
    return named_model(str(model)) if _locate(model).form == "name" else None


def published_as(model: str | Path) -> PublishedModel | None:
    """Returns the published model if `model` is a Hub id; otherwise None. Raises the errors of `architecture_of`."""
    return published_models().get(str(model)) if _locate(model).form == "name" else None


def is_gguf(model: str | Path) -> bool:
    """Whether the model is a GGUF file; False for a missing model."""
    try:
        return _locate(model).form == "gguf"
    except NotFound:
        return False


def quantised_in(model: str | Path) -> str | None:
    """Names the quantised formats in a GGUF file ("Q4_1 and Q8_0"), else None. Raises errors of `architecture_of`."""
    location = _locate(model)
    if location.form != "gguf":
        return None
    from edgefront.core.model_files.gguf_header import GgufHeader

    formats = [name for name in GgufHeader(location.path).facts["weights"] if name not in ("F32", "F16", "BF16", "F64")]
    return " and ".join(formats) or None


def has_weights(model: str | Path) -> bool:
    """Whether the model has weights: a model folder, a Hugging Face folder or a GGUF file."""
    location = _locate(model)
    return location.form in ("folder", "gguf") or _hugging_face_folder(location) is not None


@contextmanager
def package_of(model: str | Path) -> Iterator[Package]:
    """Opens a model with weights as a package. Hugging Face and GGUF models are converted in a temporary folder.

    Raises the errors of `architecture_of`, and `InvalidInput` for a model without weights.
    """
    location = _locate(model)
    if location.form == "folder":
        yield read_package(location.path)
        return
    with tempfile.TemporaryDirectory(prefix="edgefront-model-") as folder:
        write_imported(model, Path(folder) / "model")
        yield read_package(Path(folder) / "model")


def unread_tokenizer(model: str | Path) -> str | None:
    """Names the tokenizer files of a Hugging Face folder if the supported `tokenizer.json` is missing, else None."""
    folder = _hugging_face_folder(_locate(model))
    if folder is None or (folder / TOKENIZER).is_file():
        return None
    return ", ".join(name for name in _TOKENIZERS if (folder / name).is_file()) or None


def write_imported(model: str | Path, output: Path) -> BPETokenizer | None:
    """Writes a Hugging Face folder or a GGUF file as a model folder. Returns the tokenizer, if there is one."""
    location = _locate(model)
    if location.form == "gguf":
        return import_gguf(location.path, output)
    if (folder := _hugging_face_folder(location)) is not None:
        return import_transformers(folder, output)
    raise InvalidInput(
        f"{short(str(model))} has no weights: give the folder of a trained or a Hugging Face model, or a GGUF file",
        field="model",
        value=str(model),
        allowed="a model with weights",
    )


def _locate(model: str | Path) -> _Location:
    if str(model) in named_models():
        return _Location("name", Path())
    if not os.path.exists(model):  # Path.exists raises for invalid file names
        if str(model) in published_models():
            return _Location("name", Path())
        near = nearest_models(str(model))
        raise NotFound(f"{short(str(model))} is neither a file nor a named model; {near}", allowed=WAYS)
    path = Path(model)
    if path.is_dir():
        if (path / ARCHITECTURE).is_file():
            return _Location("folder", path)
        if (path / CONFIG).is_file():
            return _Location("config", path)
        raise NotFound(f"{path} is not a model folder: it has neither {ARCHITECTURE} nor {CONFIG}", allowed=WAYS)
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    if not head:
        raise InvalidInput(f"{path} is empty", field="model", value=str(path), allowed=WAYS)
    refuse_pointer(head, path)
    if head.startswith(GGUF_MAGIC):
        return _Location("gguf", path)
    return _Location("config" if _is_config(path) else "description", path)


def _hugging_face_folder(location: _Location) -> Path | None:
    """Returns the folder of a `config.json` if the folder has weights; None otherwise, and for other forms."""
    if location.form != "config" or (location.path.name != CONFIG and not location.path.is_dir()):
        return None
    folder = location.path if location.path.is_dir() else location.path.parent
    return folder if location.path.is_dir() or any(folder.glob("*.safetensors*")) else None


def _is_config(path: Path) -> bool:
    """Whether the file has the content of a Hugging Face `config.json`, under any name."""
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
            f"the file has {size} bytes; a description must have at most {MAX_DESCRIPTION_BYTES}",
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
"""Accepted files, by path in the model folder. The description and the weights are required."""
MAX_TEXT_BYTES = 64 << 20
"""Maximum size of a file without tensors. The largest such file of published models is Gemma's tokenizer, 33 MB."""
_TENSOR_FILES = (WEIGHTS, CUTS)

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
    """Accepted fields of `result.json` about the parent of a pruned model, or about a teacher."""

    name: _Text | None = None
    training: _Text | None = None
    sha256: _Text | None = None
    digest: _Text | None = None
    licence: _Licence | None = None
    share: _Real | None = None
    temperature: _Real | None = None


class _Pruning(_Fact):
    sentence: Annotated[str, Field(max_length=2000)]


class _Facts(_Fact):
    """Accepted fields of `result.json`, which the model card shows."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    licence: _Licence | None = None
    parent: _Origin | None = None
    cut: _Pruning | None = None
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
class CheckedModel:
    """A checked model. `digest` is the digest of the weights, the tokenizer and all other files that affect outputs."""

    architecture: Architecture
    facts: Mapping[str, Any]
    digest: str


def max_file_bytes(name: str) -> int | None:
    """Maximum size in bytes of one file of `FILES`; None for tensor files, whose sizes are limited together."""
    return None if name in _TENSOR_FILES else MAX_TEXT_BYTES


def model_files(folder: Path) -> dict[str, Path]:
    """Returns the accepted files of a model folder: path in the folder → file."""
    return {name: folder / name for name in FILES if (folder / name).is_file()}


def check_imported(folder: Path, *, name: str | None = None, licence: str | None = None) -> CheckedModel:
    """Checks a folder and rewrites its `result.json` and model card; `name` and `licence` replace the recorded values.

    Raises `InvalidInput`, without the folder's path, for a missing file, a file that is not JSON or safetensors, a
    missing or unknown tensor, a wrong shape or type, a number that is not finite, an architecture that differs from the
    weights, and a tokenizer with more tokens than the model.
    """
    with _without_path(folder):
        for required in (WEIGHTS, ARCHITECTURE):
            if not (folder / required).is_file():
                raise InvalidInput(f"{required} is missing", field="model", allowed=", ".join(FILES))
        weights = StoredValues(folder / WEIGHTS)
        described = Architecture.parse((folder / ARCHITECTURE).read_text(encoding="utf-8"))
        if described.digest != weights.architecture.digest:
            raise InvalidInput(
                f"{ARCHITECTURE} describes {described.digest[:12]}, but {WEIGHTS} has "
                f"{weights.architecture.digest[:12]}"
            )
        if (folder / CUTS).exists():
            safetensors_header(folder / CUTS)
        replacements = {"name": name, "licence": licence}
        facts = _recorded(folder) | {field: value for field, value in replacements.items() if value is not None}
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
        return CheckedModel(described, package.facts, hashed.hexdigest())


def _recorded(folder: Path) -> dict[str, Any]:
    if not (folder / RESULT).is_file():
        return {}
    try:
        recorded = _Facts.model_validate_json((folder / RESULT).read_bytes())
    except ValidationError as error:
        raise invalid_input(error, InvalidInput).under(RESULT) from None
    if recorded.recipe is not None:
        Recipe.parse(recorded.recipe)
    return json.loads(recorded.model_dump_json(exclude_none=True))  # type: ignore[no-any-return]


@contextmanager
def _without_path(folder: Path) -> Iterator[None]:
    """Context manager that removes the path of the folder from errors and converts `UnicodeDecodeError`."""
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
