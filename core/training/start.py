"""Begins a training with the weights that another one has left, as BERT's second phase does."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.data.tokenizers.load import same_tokens
from edgefront.core.errors import InvalidInput
from edgefront.core.files import sha256
from edgefront.core.nn.load import load_safetensors
from edgefront.core.nn.model import LanguageModel


def begin_with(model: LanguageModel, weights: Path, data: Prepared) -> str:
    """Copies the parameters of a safetensors file of ours into the model; returns the SHA-256 of the file.

    Raises `InvalidInput` where it cannot be read, is of another architecture, holds numbers that are not finite, or
    lies beside a tokenizer that is not the data's: its tokens would mean something else.
    """
    try:
        given = load_safetensors(weights)
    except OSError as error:
        raise _wrong(f"cannot be read: {error.strerror or error}", weights) from None
    wanted, found = model.architecture.digest, given.architecture.digest
    if found != wanted:
        raise _wrong(f"are of architecture {found[:12]}, and {wanted[:12]} is trained", weights)
    if not same_tokens(weights.parent, data.folder):
        raise _wrong(f"were trained on other tokens than those of the data set {data.name}", weights)
    own = dict(model.named_parameters())
    for name, values in given.named_parameters():
        if not bool(values.isfinite().all()):
            raise _wrong(f"contain numbers in {name} that are not finite", weights)
        own[name].data.copy_(values)
    return sha256(weights)


def _wrong(what: str, path: Path) -> InvalidInput:
    return InvalidInput(
        f"start: the initial weights {what}",
        field="start",
        value=path.name,
        allowed="the weights of a training of the same architecture on the same tokens",
    )
