"""Named models of BERT, DistilBERT and PAR BERT."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.embeddings_and_head import Embedding, LearnedPositions, Output
from edgefront.core.architectures.models.published import NamedModel, blocks_of

_BERT = "BERT (arXiv 1810.04805)"
_DISTILBERT = "DistilBERT (arXiv 1910.01108)"
_PAR = "PAR Transformer (arXiv 2009.04534v3) Table 3"

_POOLED, _SPANS, _MASKED, _STATES = (
    Output(kind="pooled"),
    Output(kind="spans"),
    Output(kind="masked_tokens"),
    Output(kind="none"),
)


def models() -> Iterator[NamedModel]:
    """Yields the encoders of the checkpoints, then encoders with the output layers of SQuAD and of pre-training."""
    base, par, distilled = "(sf)x12", "(sff)x5(f)x9", "(sf)x6"
    yield NamedModel("bert-base", f"{_BERT} §3, with its pooler", _base(base, _POOLED))
    yield NamedModel("bert-large", f"{_BERT} §3, with its pooler", _encoder("(sf)x24", 1024, 16, 4096, _POOLED))
    yield NamedModel("par-bert-base", f"{_PAR}: {par}, with BERT's pooler", _base(par, _POOLED))
    yield NamedModel("distilbert", f"{_DISTILBERT} §3, without a head", _base(distilled, _STATES, segments=0))
    yield NamedModel("bert-base-squad", f"{_BERT} §4.2; {_PAR}", _base(base, _SPANS))
    yield NamedModel("par-bert-base-squad", f"{_PAR}: {par}", _base(par, _SPANS))
    yield NamedModel("distilbert-squad", f"{_DISTILBERT} §4; {_PAR}", _base(distilled, _SPANS, segments=0))
    yield NamedModel("bert-base-mlm", f"{_BERT} §3.1, Task 1", _base(base, _MASKED))
    yield NamedModel("par-bert-base-mlm", f"{_PAR}: {par}, with BERT's Task 1", _base(par, _MASKED))


def _base(pattern: str, output: Output, segments: int = 2) -> Architecture:
    return _encoder(pattern, 768, 12, 3072, output, segments)


def _encoder(pattern: str, d_model: int, n_head: int, d_inner: int, output: Output, segments: int = 2) -> Architecture:
    return Architecture(
        d_model=d_model,
        causal=False,
        positions=LearnedPositions(length=512),
        norm="post",
        norm_eps="1e-12",
        activation="gelu",
        embedding=Embedding(vocab_size=30_522, segments=segments, norm=True),
        blocks=blocks_of(pattern, n_head, d_inner),
        output=output,
    )
