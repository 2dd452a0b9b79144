"""The model that a command is given: every command takes one in each of these ways.

    a name            of the catalogue (`edgefront model list`); goes before a file called alike
    a Hub id          of a published model (`edgefront model list --published`); goes after a file of that path
    a description     a JSON file
    a config.json     of Hugging Face, or the folder that has it
    a folder of ours  that a training or `edgefront model import` wrote
    a GGUF file       llama.cpp's

The first three have no weights. Heavy libraries are loaded only for the weights, and gguf for a GGUF file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgefront.core.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.hugging_face import ARCHITECTURE, TOKENIZER, refuse_pointer
from edgefront.core.number_formats import GGUF_MAGIC
from edgefront.core.published import PublishedModel, published_models
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.huggingface import CONFIG, read_config
from edgefront.core.spaces.models import NamedModel, named_model, named_models, nearest_models
from edgefront.core.validation import short

if TYPE_CHECKING:
    from edgefront.core.data.tokenizers.bpe import Pieces
    from edgefront.core.evaluation.package import Package

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
        from edgefront.core.graph.huggingface import read_architecture

        return read_architecture(folder)
    if place.way == "gguf":
        from edgefront.core.graph.gguf_reading import GgufFile

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
    from edgefront.core.graph.gguf_header import GgufHeader

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
    from edgefront.core.evaluation.package import read_package

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


def write_imported(given: str | Path, output: Path) -> Pieces | None:
    """Writes a Hugging Face folder or a GGUF file as a folder of ours, and returns its tokenizer if it has one."""
    from edgefront.core.evaluation.package import import_gguf, import_transformers

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
