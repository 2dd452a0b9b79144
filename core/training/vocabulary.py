"""An architecture with the vocabulary of the data that it is trained on."""

from __future__ import annotations

from typing import Any

from edgefront.core.spaces.architecture import Architecture


def with_vocabulary(architecture: Architecture, vocab_size: int, source_vocab_size: int | None = None) -> Architecture:
    """The architecture over `vocab_size` tokens: its blocks stay, clusters beyond the vocabulary go.

    A candidate is proposed and measured with its space's vocabulary; what is trained has the data set's, and so a
    digest of its own. `source_vocab_size` is that of a translation model's source, the same if absent.
    """
    described = _with(architecture.canonical, vocab_size)
    if architecture.source is not None:
        described["source"] = _with(architecture.source.canonical, source_vocab_size or vocab_size)
    return Architecture.parse(described)


def _with(described: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    embedding = dict(described["embedding"])
    embedding["vocab_size"] = vocab_size
    if "cutoffs" in embedding:
        embedding["cutoffs"] = [cutoff for cutoff in embedding["cutoffs"] if cutoff < vocab_size]
        if not embedding["cutoffs"]:
            embedding.pop("div", None)  # one cluster is left, and nothing to narrow
    return {**described, "embedding": embedding}
