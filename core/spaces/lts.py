"""The decoder spaces of Lightweight Transformer Search (LTS, arXiv 2203.02094): §3 and Appendix H.

Every layer is an attention and a feed-forward block; each layer has its own n_head and d_inner. Ranges include both
ends, as the paper prints them. The heads of a layer divide d_model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal

from core.errors import SpaceError
from core.spaces.architecture import Architecture, Attention, Embedding, FeedForward, Positions
from core.spaces.gene import Gene, Value
from core.spaces.space import Genome, Locus, SearchSpace

LIKE_D_MODEL = "d_model"
"""The value of d_embed that follows d_model, whatever it is."""


@dataclass(frozen=True)
class Stock:
    """Shape of the model that people would take instead, and that is scaled in depth to make the baselines."""

    d_model: int
    d_inner: int


@dataclass(frozen=True)
class LtsSpace(SearchSpace):
    """GPT-2-like decoders with genes n_layer, d_model, div, d_embed and, in each layer, n_head and d_inner."""

    stock: Stock
    vocab_size: int
    positions: Positions
    activation: Literal["gelu", "gelu_tanh", "relu"]
    cutoffs: tuple[int, ...] = ()
    min_inner_ratio: int = 0
    """Least d_inner / d_model."""

    @property
    def depth(self) -> int:
        return self._deepest

    def permitted(self, locus: Locus, genome: Genome) -> tuple[Value, ...]:
        name = locus.gene.name
        if name == "n_head":
            return self._per_width[genome["d_model"]][0]
        if name == "d_inner":
            return self._per_width[genome["d_model"]][1]
        return locus.gene.values

    def architecture(self, genome: Genome) -> Architecture:
        heads, inners = genome["n_head"], genome["d_inner"]
        layers = [(heads[layer], inners[layer]) for layer in range(genome["n_layer"])]
        return self._build(genome["d_model"], genome["d_embed"], genome["div"], layers)

    def contains(self, architecture: Architecture) -> bool:
        attention, feed_forward = architecture.blocks[0::2], architecture.blocks[1::2]
        if len(attention) != len(feed_forward) or architecture.d_model not in self._per_width:
            return False
        heads, inners = self._per_width[architecture.d_model]
        if not all(isinstance(block, Attention) and block.n_head in heads for block in attention):
            return False
        if not all(isinstance(block, FeedForward) and block.d_inner in inners for block in feed_forward):
            return False
        if len(attention) not in self.gene("n_layer").values:
            return False
        if architecture.d_embed not in self._embedding_widths(architecture.d_model):
            return False
        if architecture.embedding.div not in self.gene("div").values:
            return False
        # What is left (vocabulary, positions, activation …) is not searched: it must be as this space builds it.
        layers = [
            (one.n_head, two.d_inner)
            for one, two in zip(attention, feed_forward, strict=True)
            if isinstance(one, Attention) and isinstance(two, FeedForward)
        ]
        rebuilt = self._build(architecture.d_model, architecture.d_embed, architecture.embedding.div, layers)
        return rebuilt == architecture

    def size(self) -> int:
        """Sum over d_model and n_layer of (heads · inner widths)^n_layer · d_embed choices · div choices.

        Only the layers that are there count, not the hidden genes. This is 3.7·10^36 for lts-gpt2; the paper's
        "more than 10^54" is reached if d_model counts as free in every layer, which a residual stack does not allow.
        """
        total = 0
        for width, (heads, inners) in self._per_width.items():
            per_layer = len(heads) * len(inners)
            embeddings = len(self._embedding_widths(width)) * len(self.gene("div").values)
            total += embeddings * sum(per_layer ** int(depth) for depth in self.gene("n_layer").values)
        return total

    def enumerate(self) -> Iterator[Genome]:
        for width, (heads, inners) in self._per_width.items():
            hidden = (heads[0], inners[0])
            d_embeds = {self._d_embed(value, width): value for value in reversed(self.gene("d_embed").values)}
            for depth, div, d_embed in product(
                self.gene("n_layer").values, self.gene("div").values, reversed(d_embeds.values())
            ):
                for layers in product(product(heads, inners), repeat=int(depth)):
                    stack = layers + (hidden,) * (self.depth - len(layers))
                    yield {
                        "n_layer": depth,
                        "d_model": width,
                        "div": div,
                        "d_embed": d_embed,
                        "n_head": [n_head for n_head, _ in stack],
                        "d_inner": [d_inner for _, d_inner in stack],
                    }

    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """The stock shape where its d_model is permitted, else the widest permitted d_model with d_inner 4·d_model.

        d_inner moves to the nearest permitted value, n_head is the largest permitted one (it divides d_model), div and
        d_embed are the first of their values. Depths need not be permitted: the paper's baselines start at one layer.
        """
        width = self.stock.d_model if self.stock.d_model in self._per_width else max(self._per_width)
        wanted = self.stock.d_inner if width == self.stock.d_model else 4 * width
        heads, inners = self._per_width[width]
        layer = (max(heads), min(inners, key=lambda inner: (abs(inner - wanted), inner)))
        d_embed, div = self.gene("d_embed").values[0], self.gene("div").values[0]
        depths = range(1, self.depth + 1) if layers is None else sorted(set(layers))
        return tuple(self._build(width, d_embed, int(div), [layer] * depth) for depth in depths)

    # Widths ------------------------------------------------------------------------------------------------------

    @cached_property
    def _deepest(self) -> int:
        return max(int(depth) for depth in self.gene("n_layer").values)

    @cached_property
    def _per_width(self) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
        """d_model → the n_head and the d_inner that a layer of this width may have; widths without either left out."""
        found = {}
        for width in (int(value) for value in self.gene("d_model").values):
            heads = tuple(int(head) for head in self.gene("n_head").values if width % int(head) == 0)
            floor = self.min_inner_ratio * width
            inners = tuple(int(inner) for inner in self.gene("d_inner").values if int(inner) >= floor)
            if heads and inners:
                found[width] = (heads, inners)
        return found

    def _embedding_widths(self, width: int) -> set[int]:
        return {self._d_embed(value, width) for value in self.gene("d_embed").values}

    @staticmethod
    def _d_embed(value: Value, width: int) -> int:
        return width if value == LIKE_D_MODEL else int(value)

    def _settled(self) -> LtsSpace:
        widths = self._per_width
        if not widths:
            rule = f"d_inner ≥ {self.min_inner_ratio}·d_model, " if self.min_inner_ratio else ""
            raise SpaceError(
                f"nothing is left of {self.name}: no d_model in {list(self.gene('d_model').values)} goes with "
                f"n_head in {list(self.gene('n_head').values)} and d_inner up to {self.gene('d_inner').values[-1]}",
                field="d_model",
                value=list(self.gene("d_model").values),
                allowed=f"{rule}n_head divides d_model",
            )
        heads = {head for permitted, _ in widths.values() for head in permitted}
        inners = {inner for _, permitted in widths.values() for inner in permitted}
        left: dict[str, set[int]] = {"d_model": set(widths), "n_head": heads, "d_inner": inners}
        return replace(
            self,
            gene_list=tuple(
                gene.keeping(sorted(left[gene.name])) if gene.name in left else gene for gene in self.gene_list
            ),
        )

    def _build(self, d_model: int, d_embed: Value, div: int, layers: Sequence[tuple[int, int]]) -> Architecture:
        blocks: list[Any] = []
        for n_head, d_inner in layers:
            blocks += [Attention(n_head=n_head), FeedForward(d_inner=d_inner)]
        width = self._d_embed(d_embed, d_model)
        return Architecture(
            d_model=d_model,
            positions=self.positions,
            activation=self.activation,
            embedding=Embedding(
                vocab_size=self.vocab_size,
                d_embed=None if width == d_model else width,
                cutoffs=self.cutoffs,
                div=div,
            ),
            blocks=tuple(blocks),
        )


def _steps(low: int, high: int, step: int) -> tuple[int, ...]:
    return tuple(range(low, high + 1, step))


LTS_GPT2 = LtsSpace(
    name="lts-gpt2",
    title="GPT-2 with its own heads and inner width in every layer",
    source="LTS (arXiv 2203.02094) §3",
    gene_list=(
        Gene("n_layer", _steps(2, 16, 1)),
        Gene("d_model", _steps(128, 1024, 64)),
        # The paper's searches fix k at 4 and let the embedding be as wide as the model (Appendix I); both are free
        # on request, as in its random samples (§3).
        Gene("div", (4,), options=(1, 2, 4)),
        Gene("d_embed", (LIKE_D_MODEL,), options=(LIKE_D_MODEL, 128, 256, 512)),
        Gene("n_head", (2, 4, 8), per_layer=True),
        Gene("d_inner", _steps(256, 4096, 64), per_layer=True),
    ),
    # Tables 6 and 7: 1024 wide, inner width 3072. Their 12 heads do not divide 1024; the most that this space has do.
    stock=Stock(d_model=1024, d_inner=3072),
    vocab_size=50264,
    # As many as GPT-2 has. The reference code keeps a row for each of the 192 tokens that it trains with.
    positions=Positions(length=1024),
    activation="gelu_tanh",
    # Transformer-XL's cut-offs for WikiText-103 that lie within this vocabulary.
    cutoffs=(19997, 39997),
    min_inner_ratio=2,
)

LTS_OPT = LtsSpace(
    name="lts-opt",
    title="Decoders of the size of OPT-350M with their own heads and inner width in every layer",
    source="LTS (arXiv 2203.02094) Appendix H",
    gene_list=(
        Gene("n_layer", _steps(3, 29, 1)),
        Gene("d_model", _steps(512, 1472, 64)),
        Gene("div", (1,)),
        Gene("d_embed", (LIKE_D_MODEL,)),
        Gene("n_head", (2, 4, 8, 16), per_layer=True),
        Gene("d_inner", _steps(512, 6080, 64), per_layer=True),
    ),
    stock=Stock(d_model=1024, d_inner=4096),
    vocab_size=50272,
    positions=Positions(length=2048, offset=2),
    activation="relu",
)
