"""The spaces of the decoders that people deploy: `llama` and `lfm` (docs/decisions/0009-search-spaces.md)."""

from __future__ import annotations

from edgefront.core.spaces.base_space import Frame, Stock
from edgefront.core.spaces.block import Attention
from edgefront.core.spaces.embeddings_and_head import Embedding, RotaryPositions
from edgefront.core.spaces.gene import Gene, steps
from edgefront.core.spaces.kinds import MIN_ATTENTION
from edgefront.core.spaces.layer_genes import ATTENTION, PER_LAYER, PROPORTIONAL, SHORT_CONV, TIED, UNIFORM, UNTIED
from edgefront.core.spaces.layers import LayeredSpace

_PERCENT = steps(0, 100, 5)
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
        # PAR found one block of five enough, which is two layers of five.
        Gene(MIN_ATTENTION, (40,), options=_PERCENT),
        Gene("layers", (PER_LAYER,), options=(PER_LAYER, UNIFORM, PROPORTIONAL)),
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
        # Six of sixteen layers attend in LFM2-350M; a search may go somewhat below.
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
