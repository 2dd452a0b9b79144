"""The catalogue of search spaces, as data (docs/decisions/0009-search-spaces.md). Named models are in
`core.architectures.models`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from edgefront.core.architectures.base_space import LIKE_D_MODEL, Frame, LtsSpace, Stock
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.block_stack import StackSpace
from edgefront.core.architectures.embeddings_and_head import (
    UNSCALED_WIKITEXT_103,
    WIKITEXT_103,
    Embedding,
    LearnedPositions,
    NoPositions,
    Output,
    RelativePositions,
    RotaryPositions,
)
from edgefront.core.architectures.gene import (
    ATTENTION,
    MIN_ATTENTION,
    MIN_MIXING,
    PER_LAYER,
    SHORT_CONV,
    TIED,
    UNIFORM,
    UNTIED,
    Gene,
    steps,
)
from edgefront.core.architectures.gguf import EXPRESSIBLE
from edgefront.core.architectures.layers import LayeredSpace
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import SpaceError
from edgefront.core.common.validation import existing

# The frames of Transformer-XL (Dai et al. 2019).

SHARED_BIASES = Frame(
    embedding=WIKITEXT_103, positions=RelativePositions(shared=True, clamp=400), activation="relu", norm="post"
)
"""Frame of Transformer-XL Base as PAR timed it: all layers share one pair of biases u, v, and need the same heads."""
OWN_BIASES = Frame(embedding=WIKITEXT_103, positions=RelativePositions(shared=False), activation="relu", norm="post")
"""Frame of Transformer-XL Base as LTS built it: u and v in each layer, so that the heads may differ."""
BASE = Stock(d_model=512, n_head=8, d_inner=2048)
"""Transformer-XL Base as PAR and LTS (Table 4) trained it: 16 such layers are the published model."""

_DEPTHS_AND_WIDTHS = (Gene("n_layer", steps(2, 16, 1)), Gene("d_model", steps(128, 1024, 64)))
_EMBEDDINGS = (
    # The paper's searches fix k at 4 and let the embedding be as wide as the model (Appendix I); both are free on
    # request, as in its random samples (§3).
    Gene("div", (4,), options=(1, 2, 4)),
    Gene("d_embed", (LIKE_D_MODEL,), options=(LIKE_D_MODEL, 128, 256, 512)),
)
_LAYERS = (Gene("n_head", (2, 4, 8), per_layer=True), Gene("d_inner", steps(256, 4096, 64), per_layer=True))

LTS_GPT2 = LtsSpace(
    name="lts-gpt2",
    title="GPT-2 with its own heads and inner width in every layer",
    source="LTS (arXiv 2203.02094) §3",
    gene_list=(*_DEPTHS_AND_WIDTHS, *_EMBEDDINGS, *_LAYERS),
    # Tables 6 and 7: 1024 wide, inner width 3072. Their 12 heads do not divide 1024; 8 is this space's maximum.
    stock=Stock(d_model=1024, n_head=8, d_inner=3072, div=4),
    frame=Frame(
        # Transformer-XL's cut-offs for WikiText-103 that lie within this vocabulary.
        embedding=Embedding(vocab_size=50264, cutoffs=(19997, 39997)),
        # Number of positions of GPT-2. The reference code has a row for each of its 192 training tokens.
        positions=LearnedPositions(length=1024),
        activation="gelu_tanh",
    ),
    min_inner_ratio=2,
)

LTS_TRANSFORMER_XL = LtsSpace(
    name="lts-transformer-xl",
    title="Transformer-XL with its own heads and inner width in every layer",
    source="LTS (arXiv 2203.02094) §3, Tables 4 and 5",
    gene_list=(*_DEPTHS_AND_WIDTHS, *_EMBEDDINGS, *_LAYERS),
    stock=replace(BASE, div=4),
    frame=OWN_BIASES,
    min_inner_ratio=2,
)

LTS_OPT = LtsSpace(
    name="lts-opt",
    title="Decoders of the size of OPT-350M with their own heads and inner width in every layer",
    source="LTS (arXiv 2203.02094) Appendix H",
    gene_list=(
        Gene("n_layer", steps(3, 29, 1)),
        Gene("d_model", steps(512, 1472, 64)),
        Gene("div", (1,)),
        Gene("d_embed", (LIKE_D_MODEL,)),
        Gene("n_head", (2, 4, 8, 16), per_layer=True),
        Gene("d_inner", steps(512, 6080, 64), per_layer=True),
    ),
    stock=Stock(d_model=1024, n_head=16, d_inner=4096),
    frame=Frame(
        embedding=Embedding(vocab_size=50272), positions=LearnedPositions(length=2048, offset=2), activation="relu"
    ),
)

_PERCENT = steps(0, 100, 5)

PAR_32 = StackSpace(
    name="par-32",
    title="PAR Transformer's search: attention, feed-forward or identity at each of 32 positions",
    source="PAR (arXiv 2009.04534) §2.1",
    caveat=(
        "Decoder parameters mislead about attention: a feed-forward block has more of them than an attention block and "
        "is faster, so of two stacks of the same size the one with less attention ranks higher. Yet PAR's 32 blocks "
        "reached a perplexity of 252.9 without attention, 31.5 with one such block, 23.0 with five and 22.7 with six: "
        "min_attention_percent guarantees a share of attention."
    ),
    depth_gene="n_block",
    stock_layer=("attention", "feed_forward"),
    stock=BASE,
    frame=SHARED_BIASES,
    gene_list=(
        Gene("n_block", steps(2, 32, 1)),
        # One shape, as in the paper; a job may choose smaller and larger ones.
        Gene("d_model", (512,), options=(128, 256, 512, 768, 1024)),
        Gene("div", (1,), options=(1, 2, 4)),
        # PAR finds that one attention block in five is enough (p = 5), and that fewer increase the perplexity.
        Gene(MIN_ATTENTION, (20,), options=_PERCENT),
        Gene("n_head", (8,), options=(2, 4, 8, 16)),
        Gene("d_inner", (2048,), options=(512, 1024, 2048, 3072, 4096)),
        Gene("kind", ("attention", "feed_forward", "identity"), per_layer=True),
    ),
)

SRUPP = StackSpace(
    name="srupp",
    title="SRU++ with attention in any of its layers",
    source="SRU++ (arXiv 2102.12459) §3, Tables 2, 4, 5 and 10",
    caveat=(
        "Decoder parameters mislead about attention: in a layer of SRU++ attention has a small share of the parameters "
        "but a large effect on quality. At 42 M parameters enwik8 took 1.190 bits per character without attention, "
        "1.033 "
        "with one layer of ten and 1.022 with all. Nor can parameters compare SRU++ with Transformers: Transformer-XL "
        "took 1.06 at 41 M."
    ),
    depth_gene="n_layer",
    stock_layer=("srupp",),
    # The paper's base model at ten layers (Table 5).
    stock=Stock(d_model=3072, attn_ratio=4),
    frame=Frame(
        # As in the paper's models of WikiText-103; the blocks of this space do not use the activation.
        embedding=UNSCALED_WIKITEXT_103,
        positions=NoPositions(),
        activation="gelu_tanh",
        norm="post",
        output=Output(tied_projections="all"),
    ),
    gene_list=(
        Gene("n_layer", steps(2, 16, 1)),
        Gene("d_model", steps(256, 6016, 64)),
        Gene("div", (4,), options=(1, 2, 4)),
        Gene("d_embed", (1024,), options=(LIKE_D_MODEL, 128, 256, 512, 1024)),
        Gene("attn_ratio", (4, 6, 8, 10), options=(2, 4, 6, 8, 10)),
        # Attention in one layer of ten (k = 10) costs 0.01 bits per character, no attention 0.17.
        Gene(MIN_ATTENTION, (10,), options=_PERCENT),
        Gene("kind", ("srupp",), per_layer=True),
        Gene("attends", ("self", "none"), per_layer=True),
    ),
)

BERT = StackSpace(
    name="bert",
    title="BERT encoders with attention, feed-forward or identity at each of 24 positions",
    source="Devlin et al. (arXiv 1810.04805); PAR (arXiv 2009.04534) §3.2; LTS (arXiv 2203.02094) Figure 18",
    caveat=(
        "Encoder parameters ranked BERT models of attention and feed-forward pairs well (LTS: Spearman 0.96), but "
        "mislead about attention: PAR BERT with 5 attention blocks of 24 has 19 % more of them than BERT Base with 12, "
        "is faster, and lost a point on SQuAD v1.1 (87.4 against 88.4). min_attention_percent guarantees a share of "
        "attention."
    ),
    depth_gene="n_block",
    stock_layer=("attention", "feed_forward"),
    stock=Stock(d_model=768, n_head=12, d_inner=3072),
    frame=Frame(
        embedding=Embedding(vocab_size=30_522, segments=2, norm=True),
        positions=LearnedPositions(length=512),
        activation="gelu",
        norm="post",
        norm_eps="1e-12",
        causal=False,
        output=Output(kind="pooled"),
    ),
    min_inner_ratio=2,
    gene_list=(
        Gene("n_block", steps(2, 24, 1)),
        Gene("d_model", steps(128, 1024, 64)),
        Gene(MIN_ATTENTION, (20,), options=_PERCENT),
        Gene("kind", ("attention", "feed_forward", "identity"), per_layer=True),
        Gene("n_head", (2, 4, 8, 12, 16), per_layer=True),
        Gene("d_inner", steps(256, 4096, 64), per_layer=True),
    ),
)

HYBRID = StackSpace(
    name="hybrid",
    title="Any mixture of attention, feed-forward and SRU++ blocks, each with its own widths",
    source="the blocks of Transformer-XL, PAR (arXiv 2009.04534) and SRU++ (arXiv 2102.12459)",
    caveat=(
        "Decoder parameters cannot compare kinds of blocks. A feed-forward block has more of them than attention and "
        "is faster, but stacks without attention are much worse (PAR: perplexity 252.9 against 22.7; SRU++: 1.190 bits "
        "per character against 1.033), and SRU++ is better than a Transformer of its size (1.03 against 1.06). "
        "min_attention_percent and min_mixing_percent guarantee a share of blocks that mix tokens. Train models before "
        "you choose."
    ),
    depth_gene="n_block",
    stock_layer=("attention", "feed_forward"),
    stock=BASE,
    # As in lts-transformer-xl, so that the spaces share measurements and layers may have different heads.
    frame=OWN_BIASES,
    min_inner_ratio=2,
    gene_list=(
        Gene("n_block", steps(2, 32, 1)),
        Gene("d_model", steps(128, 1024, 64)),
        Gene("div", (4,), options=(1, 2, 4)),
        Gene("d_embed", (LIKE_D_MODEL,), options=(LIKE_D_MODEL, 128, 256, 512)),
        Gene(MIN_ATTENTION, (10,), options=_PERCENT),
        Gene(MIN_MIXING, (20,), options=_PERCENT),
        Gene("kind", ("attention", "feed_forward", "srupp", "identity"), per_layer=True),
        Gene("n_head", (2, 4, 8), per_layer=True),
        Gene("d_inner", steps(256, 4096, 64), per_layer=True),
        Gene("attn_ratio", (2, 4, 8), per_layer=True),
        Gene("attends", ("self", "none"), per_layer=True),
    ),
)

_VOCABULARIES = (8_192, 16_384, 32_000, 49_152, 65_536, 128_256)
"""Sizes of published tokenizers (MobileLLM and TinyLlama 32,000, SmolLM2 49,152, LFM2 65,536, Llama 3 128,256), and
smaller ones."""
_HEADS = (1, 2, 3, 4, 6, 8, 9, 12, 15, 16, 24, 32)
LLAMA = LayeredSpace(
    name="llama",
    title="Llama's blocks with their own heads and widths in every layer, and parts left out",
    source="SmolLM2 (arXiv 2502.02737), MobileLLM (arXiv 2402.14905), TinyLlama (arXiv 2401.02385); parts left out: "
    "Puzzle (arXiv 2411.19146)",
    caveat=(
        "Decoder parameters mislead about parts left out: feed-forward has more of them than attention with few key "
        "and value heads, and is faster, so of two models of a size the one with less attention ranks higher. Nor do "
        "they count the vocabulary, and perplexities per token of different vocabularies cannot be compared. "
        "min_attention_percent guarantees a share of attention."
    ),
    gene_list=(
        Gene("n_layer", steps(2, 16, 1), options=steps(1, 40, 1)),
        Gene("d_model", steps(128, 1024, 64), options=steps(128, 2048, 64)),
        Gene("vocab_size", (49_152,), options=_VOCABULARIES),
        Gene("output", (TIED,), options=(TIED, UNTIED)),
        Gene("d_head", (64,), options=(32, 64, 128)),
        # PAR finds one attention block in five enough, which is two layers in five.
        Gene(MIN_ATTENTION, (40,), options=_PERCENT),
        Gene("layers", (PER_LAYER,), options=(PER_LAYER, UNIFORM)),
        Gene("n_head", (0, 2, 3, 4, 6, 8, 9, 12, 16), options=(0, *_HEADS), per_layer=True),
        Gene("n_kv_head", (1, 2, 3, 4), options=(1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 32), per_layer=True),
        Gene("d_inner", (0, *steps(256, 4096, 128)), options=(0, *steps(128, 8192, 64)), per_layer=True),
    ),
    # A layer of SmolLM2-135M, 30 of which make the published model.
    stock=Stock(d_model=576, n_head=9, n_kv_head=3, d_inner=1536),
    frame=Frame(
        embedding=Embedding(vocab_size=49_152),
        positions=RotaryPositions(theta=100_000),
        activation="silu",
        norm_kind="rms",
    ),
)

LFM = LayeredSpace(
    name="lfm",
    title="LFM2's layers: a short convolution or attention, over a window or all tokens, then feed-forward",
    source="LFM2 (arXiv 2511.23404)",
    caveat=(
        "Decoder parameters cannot compare kinds of layers: a short convolution has more of them than attention with "
        "few key and value heads, and sees three tokens. min_attention_percent guarantees a share of attention."
    ),
    gene_list=(
        Gene("n_layer", steps(2, 16, 1), options=steps(1, 40, 1)),
        Gene("d_model", steps(128, 1024, 64), options=steps(128, 2048, 64)),
        Gene("vocab_size", (65_536,), options=_VOCABULARIES),
        # Six of sixteen layers attend in LFM2-350M; a search may have somewhat fewer.
        Gene(MIN_ATTENTION, (25,), options=_PERCENT),
        Gene("layers", (PER_LAYER,), options=(PER_LAYER, UNIFORM)),
        Gene("n_head", (4, 8, 16), options=(1, 2, 4, 8, 16, 32)),
        Gene("mixer", (SHORT_CONV, ATTENTION), per_layer=True),
        Gene("n_kv_head", (1, 2, 4, 8), options=(1, 2, 4, 8, 16, 32), per_layer=True),
        Gene("window", (0, 128), options=(0, 64, 128, 256, 512, 1024, 2048, 4096), per_layer=True),
        Gene("d_inner", steps(256, 5120, 128), options=steps(128, 8192, 64), per_layer=True),
    ),
    # LFM2-350M, whose first layers are those of its shallower baselines.
    stock=Stock(d_model=1024, n_head=16, n_kv_head=8, d_inner=4608),
    stock_attention=(2, 5, 8, 10, 12, 14),
    attention=Attention(n_head=1, qk_norm=True, bias="none"),
    frame=Frame(
        embedding=Embedding(vocab_size=65_536),
        positions=RotaryPositions(theta=1_000_000),
        activation="silu",
        norm_kind="rms",
    ),
)

_SPACES = (LTS_GPT2, LTS_TRANSFORMER_XL, LTS_OPT, PAR_32, SRUPP, BERT, HYBRID, LLAMA, LFM)


def spaces() -> dict[str, SearchSpace]:
    """Every search space of the catalogue: name → space."""
    return {space.name: space for space in _SPACES}


def space(name: str) -> SearchSpace:
    """Returns the search space of this name. Raises `SpaceError` that lists the existing spaces."""
    by_name = spaces()
    if name not in by_name:
        hint = existing(name, by_name, "edgefront space list")
        raise SpaceError(f"no search space {name!r}; {hint}", field="name", value=name, allowed=", ".join(by_name))
    return by_name[name]


@cache
def expressible_spaces() -> tuple[str, ...]:
    """Names of the search spaces with at least some architectures that llama.cpp loads."""
    return tuple(name for name, space in spaces().items() if "llamacpp" in space.loaders())


def expressible() -> str:
    """Text for error messages: the architectures that GGUF can express, and the spaces that contain some of them."""
    return f"in a search: the spaces {', '.join(expressible_spaces())}; {EXPRESSIBLE}"
