"""What another training has left: weights to begin with, as BERT's second phase does, and a model to learn from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.data.tokenizers.load import same_tokens
from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.evaluation.cut import cut_between
from edgefront.core.files import sha256
from edgefront.core.graph.parameter_values import StoredValues
from edgefront.core.inherit.study import inherited_from
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.training.distillation import Teacher

_WHAT = {"start": "the initial weights", "teacher": "the teacher's weights"}


def begin_with(
    model: LanguageModel, weights: Path, data: Prepared, *, inherit: bool = False
) -> tuple[str, dict[str, Any] | None]:
    """Copies the parameters of a safetensors file of ours into the model, or with `inherit` those that a part keeps.

    Returns the SHA-256 of the file, and what was cut of its model (`core.evaluation.cut`) with `inherit`. Raises
    `InvalidInput` where it cannot be read, is of another architecture or of one of which the model is no part, holds
    numbers that are not finite, or lies beside a tokenizer that is not the data's: its tokens would mean something
    else.
    """
    if inherit:
        return _begin_as_part(model, weights, data)
    given = _read("start", weights, data)
    wanted, found = model.architecture.digest, given.architecture.digest
    if found != wanted:
        raise _wrong("start", f"are of architecture {found[:12]}, and {wanted[:12]} is trained", weights)
    _fill(model, given.named_parameters())
    return sha256(weights), None


def load_teacher(weights: str | None, recipe: Recipe, data: Prepared, device: torch.device) -> Teacher | None:
    """The model whose scores are learnt, in evaluation mode; None for a recipe without one.

    It has the data's tokens, and more where its embedding is padded. Raises `InvalidInput` where the recipe has
    `distil` and there is no file or the other way round, for a model that predicts no next tokens or has too few
    positions, and as `begin_with`.
    """
    if recipe.distil is None or weights is None:
        if recipe.distil is None and weights is None:
            return None
        given = "no teacher is given" if weights is None else "the recipe has no distil"
        raise InvalidInput(
            f"teacher: {given}: a teacher and a recipe with distil go together",
            field="teacher",
            value=weights,
            allowed="the weights of a model with a recipe that has distil, null with others",
        )
    path = Path(weights)
    model = _read("teacher", path, data)
    architecture = model.architecture
    if not architecture.causal or architecture.output.kind != "tokens" or architecture.source is not None:
        raise _wrong("teacher", "are no causal model's whose output is tokens", path)
    tokens, longest = architecture.embedding.vocab_size, architecture.max_length
    if tokens < data.vocab_size:
        raise _wrong("teacher", f"know {tokens:,} tokens, and the data set {data.name} has {data.vocab_size:,}", path)
    if longest is not None and longest < recipe.segment:
        raise _wrong("teacher", f"have {longest:,} positions, and the recipe segments of {recipe.segment:,}", path)
    model.to(device).eval().requires_grad_(False)
    return Teacher(model, recipe.distil, sha256(path))


def _begin_as_part(model: LanguageModel, weights: Path, data: Prepared) -> tuple[str, dict[str, Any]]:
    try:
        parent = StoredValues(weights).architecture
    except OSError as error:
        raise _wrong("start", f"cannot be read: {error.strerror or error}", weights) from None
    _check_tokens("start", weights, data)
    try:
        tensors = inherited_from(weights, model.architecture)
    except NotFound as error:
        raise _wrong("start", f"cannot be cut: {error.detail}", weights) from None
    except InvalidInput as error:
        raise _wrong("start", f"have no such part: {error.detail}", weights) from None
    _check_finite("start", tensors.items(), weights)
    _fill(model, tensors.items())
    return sha256(weights), cut_between(parent, model.architecture)


def _fill(model: LanguageModel, tensors: Iterable[tuple[str, Tensor]]) -> None:
    own = dict(model.named_parameters())
    for name, values in tensors:
        own[name].data.copy_(values)


def _read(field: str, weights: Path, data: Prepared) -> LanguageModel:
    try:
        given = load_safetensors(weights)
    except OSError as error:
        raise _wrong(field, f"cannot be read: {error.strerror or error}", weights) from None
    _check_tokens(field, weights, data)
    _check_finite(field, given.named_parameters(), weights)
    return given


def _check_tokens(field: str, weights: Path, data: Prepared) -> None:
    if not same_tokens(weights.parent, data.folder):
        raise _wrong(field, f"were trained on other tokens than those of the data set {data.name}", weights)


def _check_finite(field: str, tensors: Iterable[tuple[str, Tensor]], weights: Path) -> None:
    for name, values in tensors:
        if not bool(values.isfinite().all()):
            raise _wrong(field, f"contain numbers in {name} that are not finite", weights)


def _wrong(field: str, what: str, path: Path) -> InvalidInput:
    allowed = "the weights of a training of the same architecture on the same tokens"
    return InvalidInput(
        f"{field}: {_WHAT[field]} {what}",
        field=field,
        value=path.name,
        allowed=allowed if field == "start" else "the weights of a causal language model of the same tokens",
    )
