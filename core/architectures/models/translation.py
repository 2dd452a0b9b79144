"""Named models for translation from German to English (IWSLT'14): SRU++, and the SRU++ paper's Transformer.

SRU++ (arXiv 2102.12459) Table 8 and Appendix B give d, d', the layers and the total sizes. All else is from the code
that the paper cites (arXiv 2009.07253, asappresearch/imitkd): an embedding of width 256 per language; the output is
tied to the English embedding. The sizes imply 20,914 tokens of both languages together; we assume equal halves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, Srupp
from edgefront.core.architectures.embeddings_and_head import (
    Embedding,
    NoPositions,
    Output,
    Positions,
    SinusoidalPositions,
)
from edgefront.core.architectures.models.published import NamedModel

_TABLE = "SRU++ (arXiv 2102.12459) Table 8"
_VOCABULARY, _WIDTH = 20_914 // 2, 256


def models() -> Iterator[NamedModel]:
    """Yields the models in the three rows of the SRU++ paper's Table 8."""
    yield NamedModel("srupp-iwslt", _TABLE, _srupp(range(1, 7)))
    yield NamedModel("srupp-iwslt-k2", f"{_TABLE}: attention in every second layer", _srupp((2, 4, 6)))
    yield NamedModel("transformer-iwslt", f"{_TABLE}: the Transformer of arXiv 2009.07253", _transformer())


def _srupp(attention: Collection[int]) -> Architecture:
    """SRU++ with six encoder layers and six decoder layers; only layers whose number is in `attention` attend."""
    layers = range(1, 7)
    return _translator(
        1024,
        NoPositions(),
        Embedding(vocab_size=_VOCABULARY, d_embed=_WIDTH),
        [Srupp(d_attn=256, attends="self" if layer in attention else "none") for layer in layers],
        [Srupp(d_attn=256, attends="both" if layer in attention else "none") for layer in layers],
        Output(),
    )


def _transformer() -> Architecture:
    """Transformer with eight layers in the encoder and eight in the decoder."""
    embedding = Embedding(vocab_size=_VOCABULARY, scaled=True)
    encoder: list[Block] = [Attention(n_head=4), FeedForward(d_inner=1024)]
    decoder: list[Block] = [encoder[0], Attention(n_head=4, attends="source"), encoder[1]]
    return _translator(_WIDTH, SinusoidalPositions(), embedding, encoder * 8, decoder * 8, Output(bias=True))


def _translator(
    d_model: int,
    positions: Positions,
    embedding: Embedding,
    encoder: list[Block],
    decoder: list[Block],
    output: Output,
) -> Architecture:
    return Architecture(
        d_model=d_model,
        positions=positions,
        norm="post",
        activation="relu",
        embedding=embedding,
        blocks=tuple(decoder),
        output=output,
        source=Architecture(
            d_model=d_model,
            causal=False,
            positions=positions,
            norm="post",
            activation="relu",
            embedding=embedding,
            blocks=tuple(encoder),
            output=Output(kind="none"),
        ),
    )
