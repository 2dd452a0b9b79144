"""Writes a part of a trained model, cut and not trained since, as a folder of ours."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.errors import Conflict, InvalidInput
from edgefront.core.evaluation.cut import cut_between
from edgefront.core.evaluation.front_matter import forbids_derivatives
from edgefront.core.evaluation.package import WEIGHTS, Package, read_package, write_new_package
from edgefront.core.files import sha256
from edgefront.core.inherit.study import inherited_from
from edgefront.core.spaces.architecture import Architecture


def write_part(parent: Package, child: Architecture, output: Path) -> Package:
    """Writes the part of the parent that `child` describes, with the tokenizer and the licence of the parent.

    `output` must not exist; it is in place only when whole. Raises `InvalidInput` where the child is no part of the
    parent or its licence forbids derivatives, `NotFound` without a study of the parent's cuts.
    """
    licence = parent.facts.get("licence")
    if isinstance(licence, str) and forbids_derivatives(licence):
        raise InvalidInput(
            f"the model is under {licence}, which forbids derivatives",
            field="licence",
            value=licence,
            allowed="a model whose licence allows derivatives",
        )
    tokenizer, vocabulary = parent.tokenizer_if_any, child.embedding.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > vocabulary:
        raise InvalidInput(
            f"the part has {vocabulary} tokens, and the tokenizer {tokenizer.vocab_size}",
            field="embedding.vocab_size",
            value=vocabulary,
            allowed=f"at least {tokenizer.vocab_size}",
        )
    if output.exists():
        raise Conflict(f"{output} exists: name a folder that does not")
    tensors = inherited_from(parent.folder / WEIGHTS, child)
    cut = cut_between(parent.architecture, child)
    name = str(parent.facts.get("name") or parent.folder.resolve().name)
    facts = {
        "name": f"part of {name}"[:100],
        "licence": licence,
        "parent": {
            "name": name,
            "licence": licence,
            "sha256": sha256(parent.folder / WEIGHTS),
            "digest": cut.pop("parent"),
        },
        "cut": cut,
    }
    write_new_package(
        output,
        child,
        {name: tensor.numpy() for name, tensor in tensors.items()},
        tokenizer,
        {key: value for key, value in facts.items() if value is not None},
    )
    return read_package(output)
