"""Named models of SRU++ on enwik8, WikiText-103 and Billion Word, and of SRU at the same widths.

All models have ten layers. On bytes, embedding and output are untied. On words the models have one adaptive embedding
of width 1024, not multiplied by √d; on WikiText-103 its projections are tied as well (the authors' scripts, branch
3.0.0-dev). The published commands have layer norms only inside SRU++.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Block, Sru, Srupp
from edgefront.core.architectures.embeddings_and_head import UNSCALED_WIKITEXT_103, Embedding, NoPositions, Output
from edgefront.core.architectures.models.published import NamedModel

_SRUPP = "SRU++ (arXiv 2102.12459)"
_SRU = "SRU (arXiv 1709.02755), projected as in Figure 2 (b) of SRU++, at the widths of"
_LAYERS = range(1, 11)

_Corpus = Literal["enwik8", "wt103", "lm1b"]


def models() -> Iterator[NamedModel]:
    """Yields the models in the tables of the SRU++ paper, then SRU models without attention and layer norm."""
    yield _srupp("srupp-small", "Tables 1 and 2", 1920, 480)
    # Table 2 adjusts the width to 42M without printing it. Here it is the nearest multiple of 8, and d_attn a quarter.
    adjusted = "Table 2 (42M; the width is inferred)"
    yield _srupp("srupp-small-k2", f"{adjusted}, attention in every second layer", 1976, 494, every(2))
    yield _srupp("srupp-small-k5", f"{adjusted}, attention in layers 5 and 10", 2008, 502, every(5))
    yield _srupp("srupp-small-k10", f"{adjusted}, attention in layer 10", 2024, 506, every(10))
    yield _srupp("srupp-small-none", f"{adjusted}, no attention", 2032, 508, ())

    yield _srupp("srupp-base", "Tables 3 and 11", 3072, 768)
    yield _srupp("srupp-base-k2", "Table 10: attention in layers 2, 4, 6, 8, 10", 3072, 768, every(2))
    yield _srupp("srupp-base-k5", "Tables 3, 10 and 11: attention in layers 5 and 10", 3072, 768, every(5))
    yield _srupp("srupp-base-k10", "Table 10: attention in layer 10", 3072, 768, every(10))
    yield _srupp("srupp-base-upper", "Table 10: attention in layers 6 to 10", 3072, 768, range(6, 11))
    yield _srupp("srupp-base-k5-h2", "Table 10: two heads in layers 5 and 10", 3072, 768, every(5), n_head=2)
    yield _srupp("srupp-base-k10-h2", "Table 10: two heads in layer 10", 3072, 768, every(10), n_head=2)
    yield _srupp("srupp-base-k3", "Table 10: attention in layers 3, 6, 9", 3136, 784, every(3))
    yield _srupp("srupp-base-upper3", "Table 10: attention in layers 8, 9, 10", 3136, 784, (8, 9, 10))
    yield _srupp("srupp-base-ratio6", "Table 4: d = 6 d'", 3840, 640)
    yield _srupp("srupp-base-ratio8", "Tables 4 and 10: d = 8 d'", 4480, 560)
    yield _srupp("srupp-base-ratio8-k5", "Table 10: d = 8 d', attention in layers 5 and 10", 4480, 560, every(5))
    yield _srupp("srupp-base-ratio10", "Table 4: d = 10 d'", 5040, 504)
    yield _srupp("srupp-large", "Tables 3 and 11", 4096, 1024)
    yield _srupp("srupp-large-ratio8", "Tables 3 and 11: d = 8 d'", 6016, 752)

    yield _srupp("srupp-base-wt103", "Tables 5 and 12", 3072, 768, corpus="wt103")
    yield _srupp("srupp-large-wt103", "Tables 5 and 12", 4096, 1024, corpus="wt103")
    yield _srupp("srupp-large-ratio8-wt103", "Tables 5, 7 and 12: d = 8 d'", 5952, 744, corpus="wt103")
    source = "Tables 5, 7 and 12: d = 8 d', attention in layers 5 and 10"
    yield _srupp("srupp-large-ratio8-k5-wt103", source, 5952, 744, every(5), corpus="wt103")
    yield _srupp("srupp-base-lm1b", "Table 6", 4096, 1024, corpus="lm1b")
    yield _srupp("srupp-large-lm1b", "Table 6: attention in layers 5 and 10", 7616, 1024, every(5), corpus="lm1b")

    yield NamedModel("sru-small", f"{_SRU} srupp-small", stack(1920, Sru(d_proj=480)))
    yield NamedModel("sru-base", f"{_SRU} srupp-base", stack(3072, Sru(d_proj=768)))
    yield NamedModel("sru-large", f"{_SRU} srupp-large", stack(4096, Sru(d_proj=1024)))
    yield NamedModel("sru-base-wt103", f"{_SRU} srupp-base-wt103", stack(3072, Sru(d_proj=768), "wt103"))
    yield NamedModel("sru-large-wt103", f"{_SRU} srupp-large-wt103", stack(4096, Sru(d_proj=1024), "wt103"))
    wide = stack(5952, Sru(d_proj=744), "wt103")
    yield NamedModel("sru-large-ratio8-wt103", f"{_SRU} srupp-large-ratio8-wt103", wide)


def every(k: int) -> Collection[int]:
    """Numbers of the layers that attend, counted from 1, if every k-th of the ten layers attends."""
    return range(k, 11, k)


def srupp_layers(d_attn: int, attention: Collection[int], n_layer: int = 10, n_head: int = 1) -> tuple[Srupp, ...]:
    """`n_layer` blocks of SRU++; the blocks whose number (counted from 1) is in `attention` attend."""
    return tuple(
        Srupp(d_attn=d_attn, n_head=n_head) if layer in attention else Srupp(d_attn=d_attn, attends="none")
        for layer in range(1, n_layer + 1)
    )


def stack(d_model: int, blocks: Block | tuple[Block, ...], corpus: _Corpus = "enwik8") -> Architecture:
    """Recurrent language model with the vocabulary of `corpus`, and with these blocks or ten times the one block."""
    embedding, output = _embedding_and_output(corpus)
    return Architecture(
        d_model=d_model,
        positions=NoPositions(),
        norm="post",
        embedding=embedding,
        blocks=blocks if isinstance(blocks, tuple) else (blocks,) * len(_LAYERS),
        output=output,
    )


def _srupp(
    name: str,
    where: str,
    d_model: int,
    d_attn: int,
    attention: Collection[int] = _LAYERS,
    corpus: _Corpus = "enwik8",
    n_head: int = 1,
) -> NamedModel:
    blocks = srupp_layers(d_attn, attention, n_head=n_head)
    return NamedModel(name, f"{_SRUPP} {where}", stack(d_model, blocks, corpus))


def _embedding_and_output(corpus: _Corpus) -> tuple[Embedding, Output]:
    if corpus == "enwik8":
        return Embedding(vocab_size=205), Output(tied=False, bias=True)
    if corpus == "wt103":
        words = UNSCALED_WIKITEXT_103.model_copy(update={"d_embed": 1024, "div": 4})
        return words, Output(tied_projections="all")
    words = Embedding(vocab_size=793_471, d_embed=1024, cutoffs=(59_998, 159_998), div=4, scaled=False)
    return words, Output(tied_projections="none")
