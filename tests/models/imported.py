"""Models with tokenizers that were made elsewhere, as imported and as exported."""

from __future__ import annotations

import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from foreign_models import transformers
from foreign_tokenizers import foreign
from tiny_models import lively_weights, tiny_llama
from tokenizers import Tokenizer

from edgefront.core.model_files.huggingface import write_transformers
from edgefront.core.model_files.model_file import write_model
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.training.evaluation.package import Package, import_transformers, read_package


def imported(name: str, tmp_path: Path, more: int = 0, lively: int = 0) -> Package:
    """A model with this tokenizer, whose embedding has `more` rows than its tokens, as imported; in `tmp_path`/mine.

    `lively` of the rows without a token are the likeliest ones, whatever the text.
    """
    source = foreign(name, tmp_path / "theirs")
    size = max(Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab().values()) + 1
    model = tiny_llama(size + more)
    weights = lively_weights(model, 3)
    rows = weights["embedding.tables.0"]
    for number in range(lively):  # of a row and its opposite one scores high
        rows[size + number] = 50 * np.abs(rows[0]) * (-1) ** number
    write_transformers(model, GivenValues(weights, {}), tmp_path / "theirs.tar")
    with tarfile.open(tmp_path / "theirs.tar") as archive:
        for member in archive.getmembers():
            member.name = Path(member.name).name
            if not (source / member.name).exists():
                archive.extract(member, source, filter="data")
    assert import_transformers(source, tmp_path / "mine")
    return read_package(tmp_path / "mine")


def shipped(found: Package, tmp_path: Path) -> tuple[Path, Path]:
    """Its GGUF file, and the folder of transformers."""
    files = found.hugging_face_files()
    write_model(found.architecture, "gguf", found.weights, tmp_path / "model.gguf", files=files)
    write_model(found.architecture, "transformers", found.weights, tmp_path / "model.tar", files=files)
    with tarfile.open(tmp_path / "model.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "model.gguf", tmp_path / f"edgefront-{found.architecture.digest[:12]}"


def in_transformers(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoTokenizer.from_pretrained(folder)
