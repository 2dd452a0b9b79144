"""Fetches published models from the Hugging Face Hub or a mirror of it (`HF_ENDPOINT`)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import get_args

from edgefront.core.common.errors import InvalidInput, Unavailable
from edgefront.core.common.files import sha256
from edgefront.core.common.number_formats import GgufFormat, NumberFormat
from edgefront.core.common.validation import short

_FILES = ("*.json", "*.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ALTERNATIVE = "the same command resumes; a local folder or GGUF file needs no network"


def fetch(model: str) -> Path:
    """Returns a local file or folder as it is; otherwise downloads the model of this Hub id into the Hub's cache and
    returns its folder. Downloads resume, complete files are not fetched again, and weights are checked by SHA-256.

    Raises `InvalidInput` for what is neither a file nor a Hub id, `Unavailable` if a download fails.
    """
    if os.path.exists(model):
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]  # of its HTTP client

    try:
        if model.count("/") != 1:
            raise HFValidationError
        folder = Path(snapshot_download(model, allow_patterns=list(_FILES), ignore_patterns=["*/*"]))
    except HFValidationError:
        raise InvalidInput(
            f"{short(model)} is neither a file nor a model of the Hub",
            field="model",
            value=model,
            allowed="OWNER/NAME, a folder of Hugging Face or of a trained model, or a GGUF file",
        ) from None
    except (OSError, HTTPError) as error:
        raise Unavailable(f"{model} cannot be downloaded: {str(error).splitlines()[0]}; {_ALTERNATIVE}") from None
    for file in folder.iterdir():
        stored = file.resolve()  # the Hub's cache names the weights by their SHA-256
        if _SHA256.fullmatch(stored.name) and sha256(stored) != stored.name:
            stored.unlink()
            raise Unavailable(f"{file.name} of {model} was damaged and removed: the same command downloads it again")
    return folder


def named_in(output: Path, name: str) -> Path:
    """Returns the file `name` of the folder `output`, or the file `output` with the suffix of `name`."""
    if output.is_dir():
        return output / name
    suffix = Path(name).suffix
    return output if output.suffix == suffix else output.with_name(output.name + suffix)


def is_in(path: Path, numbers: NumberFormat) -> bool:
    """Whether a GGUF file says that it has this format."""
    from edgefront.core.model_files.gguf import file_type
    from edgefront.core.model_files.gguf_header import GgufHeader

    return numbers in get_args(GgufFormat) and GgufHeader(path).fields.get("general.file_type") == file_type(numbers)
