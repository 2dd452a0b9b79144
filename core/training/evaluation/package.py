"""Reads and writes the folder of a trained model: weights, description, tokenizer and metadata.

    model.safetensors    the parameters in the format of `core.nn.weights`; the metadata names the training data
    architecture.json    the canonical description
    tokenizer.json …     files of the tokenizer, also for Hugging Face; `source/`: of a translation model's source
    result.json          "facts", statements on the model: recipe, data, steps, tokens, perplexity …; written last
    README.md            the same facts for people (`core.training.evaluation.model_card`)
    cuts.safetensors     the pruning study, if any (`core.training.pruning.study_file`)

Only `Package.model` loads torch, so a service can write ONNX files without torch.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import Conflict, InvalidInput, NotFound, Unavailable
from edgefront.core.common.files import whole_file
from edgefront.core.common.hugging_face import ARCHITECTURE, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG
from edgefront.core.data.tokenizers.load import load_tokenizer
from edgefront.core.data.tokenizers.tokenizers import FILE, Tokenizer
from edgefront.core.model_files.parameter_values import GivenValues, StoredValues, not_finite
from edgefront.core.training.evaluation.model_card import as_licence, licence_in, model_card
from edgefront.core.training.recipes.recipe import Recipe

if TYPE_CHECKING:
    from edgefront.core.data.tokenizers.bpe import BPETokenizer
    from edgefront.core.nn.model import LanguageModel

WEIGHTS, RESULT, CARD, SOURCE = "model.safetensors", "result.json", "README.md", "source"
CUTS = "cuts.safetensors"
_RECORDED = ("training", "dataset", "data_digest", "steps", "tokens", "seed")
"""Facts that the metadata of the weights file repeats; exported files also have name and licence."""
_SNAPSHOT = re.compile("[0-9a-f]{40}")
"""Pattern of the folder name of a revision in the Hub's cache."""


def write_package(
    folder: Path,
    model: LanguageModel,
    tokenizer: Tokenizer,
    facts: Mapping[str, Any],
    source_tokenizer: Tokenizer | None = None,
) -> None:
    """Writes the package of a trained model into `folder`, created if missing; existing files are replaced.

    Args:
        facts: content of `result.json`, with the keys of `model_card`, all optional. `recipe` is a complete `Recipe`.
        source_tokenizer: tokenizer of the text to translate.

    Every file is written atomically, and `result.json` last. Raises `Unavailable` if the disk is full.
    """
    weights = _LazyArrays(dict(model.named_parameters()))
    _write(folder, model.architecture, weights, tokenizer, source_tokenizer, facts)


def import_transformers(folder: Path, output: Path) -> BPETokenizer | None:
    """Writes the model of a Hugging Face folder as a package: float32 weights, tokenizer and licence.

    Returns the tokenizer, if any. `output` must be missing or an empty folder, and appears only when complete. Raises
    `InvalidInput` for an architecture that a description cannot express, weights that do not fit, and a tokenizer with
    more tokens than the model; `NotFound` without config.json or safetensors files; `Conflict` for an existing output.
    """
    from edgefront.core.data.tokenizers.bpe import BPETokenizer
    from edgefront.core.model_files.huggingface import TransformersWeights, read_architecture

    architecture = read_architecture(folder)
    weights = TransformersWeights(folder, architecture)
    tokenizer = BPETokenizer.from_file(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else None
    _import(folder, architecture, weights, tokenizer, output, _name_of(folder), licence_in(folder / CARD))
    return tokenizer


def import_gguf(path: Path, output: Path) -> BPETokenizer | None:
    """Writes the model of a GGUF file as a package: float32 weights and tokenizer. Returns the tokenizer, if any.

    Raises the errors of `import_transformers`, and `InvalidInput` for unknown tensors and tokenizers.
    """
    from edgefront.core.data.tokenizers.bpe import BPETokenizer
    from edgefront.core.model_files.gguf_reading import GgufFile

    file = GgufFile(path)
    with tempfile.TemporaryDirectory() as folder:
        files = file.tokenizer()
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        tokenizer = BPETokenizer.from_file(Path(folder) / TOKENIZER) if files else None
    licence = as_licence(file.header.fields.get("general.license"), file.header.fields.get("general.license.name"))
    _import(path, file.architecture, file.weights(), tokenizer, output, file.name or _name_of(path), licence)
    return tokenizer


def _import(
    source: Path,
    architecture: Architecture,
    weights: Mapping[str, Any],
    tokenizer: BPETokenizer | None,
    output: Path,
    name: str,
    licence: str | None,
) -> None:
    output, vocabulary = output.resolve(), architecture.embedding.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > vocabulary:
        raise InvalidInput(
            f"the tokenizer of {source} has {tokenizer.vocab_size} tokens, but the model has {vocabulary}",
            field="vocab_size",
            value=tokenizer.vocab_size,
            allowed=f"at most {vocabulary}",
        )
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise Conflict(f"{output} exists; choose a folder that does not exist")
    facts = {"name": name[:100]} | ({} if licence is None else {"licence": licence})
    write_new_package(output, architecture, weights, tokenizer, facts)


def _name_of(source: Path) -> str:
    """Returns a model's name: of the folder, the file (without suffix), or the repository in the Hub's cache."""
    path = source.resolve()
    if _SNAPSHOT.fullmatch(path.name) and path.parent.name == "snapshots":
        return path.parent.parent.name.rpartition("--")[2]
    return path.name if path.is_dir() else re.sub(r"(-00001-of-\d{5})?\.gguf$", "", path.name)


def write_new_package(
    output: Path,
    architecture: Architecture,
    weights: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    facts: Mapping[str, Any],
) -> None:
    """Writes a package with these weights (float32 arrays by name) into a new folder, visible only when complete."""
    draft = output.with_name(f".{output.name}.{uuid4().hex}.part")
    try:
        _write(draft, architecture, weights, tokenizer, None, facts)
        draft.replace(output)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(
    folder: Path,
    architecture: Architecture,
    weights: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    source: Tokenizer | None,
    facts: Mapping[str, Any],
) -> None:
    from edgefront.core.model_files.export import write_safetensors

    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)  # the files that RESULT describes are replaced below
    write_safetensors(architecture, GivenValues(weights, {"weights": "trained", **_recorded(facts)}), folder / WEIGHTS)
    _write_json(folder / ARCHITECTURE, architecture.canonical)
    if tokenizer is not None:
        tokenizer.save(folder)
    if source is not None:
        (folder / SOURCE).mkdir(exist_ok=True)
        source.save(folder / SOURCE)
    with whole_file(folder / CARD) as file:
        file.write(model_card(architecture, facts, tokenizer=tokenizer).encode())
    _write_json(folder / RESULT, {**facts, "digest": architecture.digest})


def describe_as(package: Package, facts: Mapping[str, Any]) -> Package:
    """Replaces all facts in `result.json` and rewrites the model card; weights and tokenizer stay."""
    digest = package.architecture.digest
    with whole_file(package.folder / CARD) as file:
        file.write(model_card(package.architecture, facts, tokenizer=package.tokenizer_if_any).encode())
    _write_json(package.folder / RESULT, {**facts, "digest": digest})
    return read_package(package.folder)


def describe(folder: Path, **changes: Any) -> Package:
    """Changes facts in `result.json` (None removes a fact), rewrites the card. Raises errors of `read_package`."""
    package = read_package(folder)
    return describe_as(
        package, {name: value for name, value in {**package.facts, **changes}.items() if value is not None}
    )


def add_measurements(folder: Path | str, measured: Sequence[Mapping[str, Any]]) -> Package:
    """Adds measurements to a package; replaces measurements of equal device, protocol and model digest."""
    new = {(item["device"], item["protocol"], item["digest"]): item for item in measured}
    kept = [
        item
        for item in read_package(folder).facts.get("measurements") or ()
        if (item.get("device"), item.get("protocol"), item.get("digest")) not in new
    ]
    return describe(Path(folder), measurements=[*new.values(), *kept])


def read_package(folder: Path | str) -> Package:
    """Opens a package. Raises `NotFound` if the package is missing, `InvalidInput` if it is damaged or inconsistent."""
    folder = Path(folder)
    try:
        facts = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        values = StoredValues(folder / WEIGHTS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"{folder} is not a trained model: {Path(error.filename).name} is missing; a trained "
            "model is the folder that a training produces"
        ) from None
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise _damaged(folder, f"{RESULT} is not JSON: {error}") from None
    if not isinstance(facts, dict):
        raise _damaged(folder, f"{RESULT} is not a JSON object")
    if facts.get("digest") != values.architecture.digest:
        raise _damaged(
            folder, f"{RESULT} is of architecture {facts.get('digest')}, {WEIGHTS} of {values.architecture.digest}"
        )
    named = {name: str(facts[name]) for name in ("name", "licence") if facts.get(name)}
    values.about = {**values.about, **_recorded(facts), **named}
    return Package(folder, facts, values)


class Package:
    """A trained model's package. `weights` can be passed to `core.model_files.model_file.write_model`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], weights: StoredValues) -> None:
        self.folder, self.facts, self.weights = folder, facts, weights

    @property
    def architecture(self) -> Architecture:
        return self.weights.architecture

    @cached_property
    def recipe(self) -> Recipe | None:
        """Recipe of the training; None if not recorded. Raises `InvalidInput` for an invalid recipe."""
        recipe = self.facts.get("recipe")
        return Recipe.parse(recipe) if isinstance(recipe, Mapping) else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer(self.folder, self.architecture.embedding.vocab_size)

    @property
    def tokenizer_if_any(self) -> Tokenizer | None:
        """Returns the tokenizer; None if the package has none, like some imported models."""
        return self.tokenizer if (self.folder / FILE).is_file() else None

    def hugging_face_files(self) -> dict[str, bytes]:
        """Tokenizer files and model card for transformers, in the form that `write_model` takes."""
        tokenizer = self.tokenizer_if_any
        files = {CARD: model_card(self.architecture, self.facts, "transformers", tokenizer).encode()}
        if tokenizer is not None:
            files |= tokenizer.hugging_face()
            config = json.loads(files[TOKENIZER_CONFIG]) | {"model_max_length": self.architecture.stated_length}
            files[TOKENIZER_CONFIG] = json.dumps(config, ensure_ascii=False, indent=2).encode()
            generation: dict[str, Any] = {"_from_model_config": False}
            if tokenizer.eos is not None:
                generation["eos_token_id"] = tokenizer.eos
            generation |= json.loads(files.get(GENERATION_CONFIG, b"{}"))
            unused = tokenizer.unused(self.architecture.embedding.vocab_size)
            if unused:
                generation["suppress_tokens"] = unused
            files[GENERATION_CONFIG] = json.dumps(generation, indent=2).encode()
        return files

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of the text to translate. Raises `InvalidInput` for a model without a source."""
        source = self.architecture.source
        if source is None:
            raise InvalidInput(
                f"the model in {self.folder} has no source language", field="model", value=str(self.folder)
            )
        return self._tokenizer(self.folder / SOURCE, source.embedding.vocab_size)

    def check(self) -> None:
        """Checks weights and tokenizers without torch.

        Raises `InvalidInput` for a weight that is not finite, and a tokenizer that is damaged or too large.
        """
        for spec in parameters(self.architecture):
            for _ in self.weights.chunks(spec):
                pass
        _ = self.tokenizer_if_any
        if self.architecture.source is not None and (self.folder / SOURCE / FILE).is_file():
            _ = self.source_tokenizer

    def model(self, device: Any = "cpu") -> LanguageModel:
        """Loads the model with its trained weights, in evaluation mode.

        Raises `InvalidInput` for a weight that is not finite, `Unavailable` for a missing GPU.
        """
        import torch

        from edgefront.core.nn.weights import load_safetensors

        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise Unavailable("PyTorch finds no GPU on this machine: use device cpu")
        model = load_safetensors(self.weights.path)
        for name, parameter in model.named_parameters():
            if not bool(parameter.isfinite().all()):
                raise not_finite(self.folder, name)
        model.to(device).eval()
        return model

    def _tokenizer(self, folder: Path, vocab_size: int) -> Tokenizer:
        tokenizer = load_tokenizer(folder)
        # Published models have padded embeddings: fewer tokens in the tokenizer than in the model.
        padded = tokenizer.level == "bpe" and tokenizer.vocab_size < vocab_size
        if tokenizer.vocab_size != vocab_size and not padded:
            raise _damaged(
                self.folder,
                f"the tokenizer in {folder} has {tokenizer.vocab_size} tokens, but the model has {vocab_size}",
            )
        return tokenizer


class _LazyArrays(Mapping[str, Any]):
    """Mapping that converts tensors to arrays one at a time, so the whole model is never copied at once."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name].detach().float().cpu().numpy()

    def __iter__(self) -> Any:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _recorded(facts: Mapping[str, Any]) -> dict[str, str]:
    recipe = facts.get("recipe")
    recorded = {name: str(facts[name]) for name in _RECORDED if facts.get(name) is not None}
    if isinstance(recipe, Mapping) and "name" in recipe:
        recorded["recipe"] = str(recipe["name"])
    return recorded


def _write_json(path: Path, value: Any) -> None:
    with whole_file(path) as file:
        file.write((json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n").encode())


def _damaged(folder: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"the trained model in {folder} is damaged: {what}",
        field="model",
        value=str(folder),
        allowed="the complete folder that a training produces",
    )
