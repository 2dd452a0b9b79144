"""GPT-2, OPT, and the baselines of the LTS paper: decoders with learned positions and GPT-2's layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward
from edgefront.core.spaces.embeddings_and_head import Embedding, LearnedPositions
from edgefront.core.spaces.models.named import NamedModel

_GPT2 = "GPT-2 (Radford et al. 2019)"
_OPT = "OPT (arXiv 2205.01068)"


def models() -> Iterator[NamedModel]:
    """GPT-2 and OPT as their checkpoints are, then what LTS compares with."""
    yield _gpt2("distilgpt2", 6, 768, 12, "DistilGPT2 (Sanh et al. 2019)")
    yield _gpt2("gpt2-small", 12, 768, 12, _GPT2)
    yield _gpt2("gpt2-medium", 24, 1024, 16, _GPT2)
    yield _gpt2("gpt2-large", 36, 1280, 20, _GPT2)
    yield _gpt2("gpt2-xl", 48, 1600, 25, _GPT2)
    yield _opt("opt-125m", 12, 768, 12, _OPT)
    # The only OPT model with post-norm and an embedding of another width; LTS counted `lts-opt-baseline` instead.
    yield _opt("opt-350m", 24, 1024, 16, _OPT, d_embed=512, norm="post")
    yield _opt("opt-1.3b", 24, 2048, 32, _OPT)
    yield NamedModel(
        "lts-gpt2-baseline",
        "LTS (arXiv 2203.02094) Tables 6 and 7: the baseline at 16 layers, with 8 heads (12 do not divide 1024)",
        Architecture(
            d_model=1024,
            positions=LearnedPositions(length=1024),
            embedding=Embedding(vocab_size=50264, cutoffs=(19997, 39997), div=4),
            blocks=(Attention(n_head=8), FeedForward(d_inner=3072)) * 16,
        ),
    )
    yield _opt("lts-opt-baseline", 24, 1024, 16, "LTS (arXiv 2203.02094) Table 3: OPT-350M as its authors built it")


def _gpt2(name: str, n_layer: int, d_model: int, n_head: int, source: str) -> NamedModel:
    architecture = Architecture(
        d_model=d_model,
        positions=LearnedPositions(length=1024),
        embedding=Embedding(vocab_size=50257),
        blocks=(Attention(n_head=n_head), FeedForward(d_inner=4 * d_model)) * n_layer,
    )
    return NamedModel(name, source, architecture)


def _opt(
    name: str,
    n_layer: int,
    d_model: int,
    n_head: int,
    source: str,
    d_embed: int | None = None,
    norm: Literal["pre", "post"] = "pre",
) -> NamedModel:
    architecture = Architecture(
        d_model=d_model,
        positions=LearnedPositions(length=2048, offset=2),
        norm=norm,
        activation="relu",
        embedding=Embedding(vocab_size=50272, d_embed=d_embed),
        blocks=(Attention(n_head=n_head), FeedForward(d_inner=4 * d_model)) * n_layer,
    )
    return NamedModel(name, source, architecture)
