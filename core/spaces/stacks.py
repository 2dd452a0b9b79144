"""The spaces in which every block is chosen: par-32, srupp, bert and hybrid (docs/decisions/0009-search-spaces.md)."""

from __future__ import annotations

from edgefront.core.spaces.ends import Embedding, LearnedPositions, NoPositions, Output
from edgefront.core.spaces.frame import LIKE_D_MODEL, Frame, Stock
from edgefront.core.spaces.gene import Gene, steps
from edgefront.core.spaces.stack import MIN_ATTENTION, MIN_MIXING, StackSpace
from edgefront.core.spaces.transformer_xl import BASE, OWN_BIASES, SHARED_BIASES, UNSCALED_WIKITEXT_103

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
        # One shape, as in the paper; smaller and larger ones on request.
        Gene("d_model", (512,), options=(128, 256, 512, 768, 1024)),
        Gene("div", (1,), options=(1, 2, 4)),
        # PAR's own finding: one block in five is enough (p = 5), and with fewer the perplexity falls behind.
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
        # As in the paper's models of WikiText-103; the activation shapes no block here.
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
        # One layer of ten (k = 10) costs 0.01 bits per character, none at all 0.17.
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
    # As in lts-transformer-xl, so that the spaces share measurements, and any heads may stand in any stack.
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
