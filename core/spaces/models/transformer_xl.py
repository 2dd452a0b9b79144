"""Transformer-XL, Sandwich Transformer and PAR Transformer, and what Transformer-XL's authors and LTS trained.

Layer norms stand after the residual sum and one pair u, v serves all layers, as in the code that the papers used;
`clamp` is the one of their evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.embeddings_and_head import Embedding, Output, RelativePositions
from edgefront.core.spaces.models.named import NamedModel
from edgefront.core.spaces.pattern import expand
from edgefront.core.spaces.transformer_xl import WIKITEXT_103

_XL = "Transformer-XL (arXiv 1901.02860)"
_PAR = "PAR Transformer (arXiv 2009.04534v3)"

_ENWIK8, _TEXT8 = 204, 27
"""Characters of the two corpora, as Transformer-XL's code reads them."""


def models() -> Iterator[NamedModel]:
    """PAR's tables, row by row; then the other models of Transformer-XL."""
    for name, pattern in (
        ("transformer-xl", "(sf)x16"),
        ("sandwich", "(s)x6 (sf)x10 (f)x6"),
        ("par", "(sfff)x6 (f)x8"),
    ):
        yield NamedModel(f"{name}-base", f"{_PAR} Table A2: {pattern}", _base(pattern))
    for name, pattern in (
        ("transformer-xl", "(sf)x18"),
        ("sandwich", "(s)x6 (sf)x12 (f)x6"),
        ("par", "(sfff)x7(f)x8"),
    ):
        yield NamedModel(f"{name}-large", f"{_PAR} Table 2, WikiText-103: {pattern}", _large(pattern))
    for corpus, vocab_size, sandwich in (
        ("enwik8", _ENWIK8, "(s)x5 (sf)x7 (f)x5"),
        ("text8", _TEXT8, "(s)x3 (sf)x9 (f)x3"),
    ):
        same = f"; also the 12 layers of {_XL}" if corpus == "enwik8" else ""
        for name, pattern, note in (
            ("transformer-xl", "(sf)x12", same),
            ("sandwich", sandwich, ""),
            ("par", "(sff)x5(f)x9", ""),
        ):
            source = f"{_PAR} Table 2, {corpus}: {pattern}{note}"
            yield NamedModel(f"{name}-24b-{corpus}", source, _characters(pattern, vocab_size))
    yield NamedModel("transformer-xl-wt103", f"{_XL} Table 1: 16 layers, 151M", _wt103())
    yield NamedModel("transformer-xl-24l-enwik8", f"{_XL} Table 2: 24 layers, 277M", _deep_enwik8())
    yield NamedModel(
        "lts-transformer-xl-baseline",
        "LTS (arXiv 2203.02094) Tables 4 and 5: the baseline at 16 layers, u and v in each",
        _lts(),
    )


def _base(pattern: str) -> Architecture:
    """PAR Table A1; evaluated with 64 tokens after 640."""
    return Architecture(
        d_model=512,
        positions=RelativePositions(clamp=400),
        norm="post",
        activation="relu",
        embedding=WIKITEXT_103,
        blocks=_blocks(pattern, Attention(n_head=8), FeedForward(d_inner=2048)),
    )


def _large(pattern: str) -> Architecture:
    """PAR §3.1; evaluated with 128 tokens after 1600. The tails of the embedding are narrowed by 4, as NVIDIA's."""
    return Architecture(
        d_model=1024,
        positions=RelativePositions(clamp=1000),
        norm="post",
        activation="relu",
        embedding=WIKITEXT_103.model_copy(update={"div": 4}),
        blocks=_blocks(pattern, Attention(n_head=16), FeedForward(d_inner=4096)),
    )


def _characters(pattern: str, vocab_size: int) -> Architecture:
    """PAR §3.1, 24 blocks; evaluated with 128 tokens after 2052. One softmax, tied and with a bias."""
    return Architecture(
        d_model=512,
        positions=RelativePositions(clamp=820),
        norm="post",
        activation="relu",
        embedding=Embedding(vocab_size=vocab_size, scaled=True),
        blocks=_blocks(pattern, Attention(n_head=8), FeedForward(d_inner=2048)),
        output=Output(bias=True),
    )


def _wt103() -> Architecture:
    return Architecture(
        d_model=410,
        positions=RelativePositions(clamp=400),
        norm="post",
        activation="relu",
        embedding=Embedding(vocab_size=267_735, cutoffs=(20_000, 40_000, 200_000)),
        blocks=_blocks("(sf)x16", Attention(n_head=10), FeedForward(d_inner=2100)),
    )


def _deep_enwik8() -> Architecture:
    return Architecture(
        d_model=1024,
        positions=RelativePositions(clamp=1000),
        norm="post",
        activation="relu",
        embedding=Embedding(vocab_size=_ENWIK8, scaled=True),
        blocks=_blocks("(sf)x24", Attention(n_head=8), FeedForward(d_inner=3072)),
        output=Output(bias=True),
    )


def _lts() -> Architecture:
    return Architecture(
        d_model=512,
        positions=RelativePositions(shared=False),
        norm="post",
        activation="relu",
        embedding=WIKITEXT_103.model_copy(update={"div": 4}),
        blocks=_blocks("(sf)x16", Attention(n_head=8), FeedForward(d_inner=2048)),
    )


def _blocks(pattern: str, attention: Attention, feed_forward: FeedForward) -> tuple[Block, ...]:
    letters: dict[str, Block] = {"s": attention, "f": feed_forward}
    return tuple(letters[letter] for letter in expand(pattern))
