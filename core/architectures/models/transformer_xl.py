"""Named models: Transformer-XL, Sandwich and PAR Transformer, and more models of Transformer-XL's authors and LTS.

Layer norms follow the residual sum, and all layers share one pair of biases u, v, as in the papers' code; `clamp` (the
maximum relative distance) is the value of the papers' evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.embeddings_and_head import WIKITEXT_103, Embedding, Output, RelativePositions
from edgefront.core.architectures.models.published import NamedModel, blocks_of

_XL = "Transformer-XL (arXiv 1901.02860)"
_PAR = "PAR Transformer (arXiv 2009.04534v3)"

_ENWIK8, _TEXT8 = 204, 27
"""Number of characters of enwik8 and text8, as read by Transformer-XL's code."""
_NARROW_TAILS = WIKITEXT_103.model_copy(update={"div": 4})
_Model = partial(Architecture, norm="post", activation="relu")


def models() -> Iterator[NamedModel]:
    """Yields the models in the tables of the PAR Transformer paper, row by row, then other Transformer-XL models."""
    for name, pattern in (
        ("transformer-xl", "(sf)x16"),
        ("sandwich", "(s)x6 (sf)x10 (f)x6"),
        ("par", "(sfff)x6 (f)x8"),
    ):
        # PAR Table A1; evaluated on segments of 64 tokens after a memory of 640.
        base = _Model(
            d_model=512,
            positions=RelativePositions(clamp=400),
            embedding=WIKITEXT_103,
            blocks=blocks_of(pattern, 8, 2048),
        )
        yield NamedModel(f"{name}-base", f"{_PAR} Table A2: {pattern}", base)
    for name, pattern in (
        ("transformer-xl", "(sf)x18"),
        ("sandwich", "(s)x6 (sf)x12 (f)x6"),
        ("par", "(sfff)x7(f)x8"),
    ):
        # PAR §3.1; evaluated with 128 tokens after 1600. The embedding's tails are narrowed by 4, as in NVIDIA's code.
        large = _Model(
            d_model=1024,
            positions=RelativePositions(clamp=1000),
            embedding=_NARROW_TAILS,
            blocks=blocks_of(pattern, 16, 4096),
        )
        yield NamedModel(f"{name}-large", f"{_PAR} Table 2, WikiText-103: {pattern}", large)
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
            # PAR §3.1, 24 blocks; evaluated with 128 tokens after 2052.
            characters = _characters(512, 820, vocab_size, pattern, 2048)
            yield NamedModel(f"{name}-24b-{corpus}", source, characters)
    words = _Model(
        d_model=410,
        positions=RelativePositions(clamp=400),
        embedding=Embedding(vocab_size=267_735, cutoffs=(20_000, 40_000, 200_000)),
        blocks=blocks_of("(sf)x16", 10, 2100),
    )
    yield NamedModel("transformer-xl-wt103", f"{_XL} Table 1: 16 layers, 151M", words)
    deep = _characters(1024, 1000, _ENWIK8, "(sf)x24", 3072)
    yield NamedModel("transformer-xl-24l-enwik8", f"{_XL} Table 2: 24 layers, 277M", deep)
    lts = _Model(
        d_model=512,
        positions=RelativePositions(shared=False),
        embedding=_NARROW_TAILS,
        blocks=blocks_of("(sf)x16", 8, 2048),
    )
    source = "LTS (arXiv 2203.02094) Tables 4 and 5: the baseline at 16 layers, u and v in each"
    yield NamedModel("lts-transformer-xl-baseline", source, lts)


def _characters(d_model: int, clamp: int, vocab_size: int, pattern: str, d_inner: int) -> Architecture:
    """Character-level model: one softmax over all characters, tied to the embedding and with a bias."""
    return _Model(
        d_model=d_model,
        positions=RelativePositions(clamp=clamp),
        embedding=Embedding(vocab_size=vocab_size, scaled=True),
        blocks=blocks_of(pattern, 8, d_inner),
        output=Output(bias=True),
    )
