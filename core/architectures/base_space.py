"""Base class of most search spaces, and the search spaces of LTS (Lightweight Transformer Search).

A framed space has a frame and genes. The frame is the fixed description around the blocks (positions, norms, output).
The values of some genes must fit d_model, for example divide d_model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, TypeVar

from edgefront.core.architectures.architecture import Activation, Architecture, NormKind, NormPlace
from edgefront.core.architectures.block import Attention, Block, FeedForward
from edgefront.core.architectures.embeddings_and_head import Embedding, Output, Positions
from edgefront.core.architectures.gene import WIDTHS, Gene, Value, block_of, in_words
from edgefront.core.architectures.space import Genome, Loader, SearchSpace
from edgefront.core.common.errors import SpaceError

if TYPE_CHECKING:
    from edgefront.core.architectures.operators.base import LtsOperators

LIKE_D_MODEL = "d_model"
"""Value of the gene d_embed for an embedding as wide as d_model."""

PLAIN_OUTPUT = Output()

_Framed = TypeVar("_Framed", bound="FramedSpace")


@dataclass(frozen=True)
class Frame:
    """Description of a model without d_model and blocks. A space may have genes for the embedding's div and d_embed."""

    embedding: Embedding
    positions: Positions
    activation: Activation
    norm: NormPlace = "pre"
    norm_kind: NormKind = "layer"
    final_norm: bool | None = None
    norm_eps: str = "1e-5"
    residual_multiplier: int | str = 1
    context_length: int | None = None
    causal: bool = True
    output: Output = PLAIN_OUTPUT

    def model(self, d_model: int, blocks: Sequence[Block], *, d_embed: int, div: int) -> Architecture:
        """Builds an architecture from this frame, these blocks and these widths."""
        embedding = _embedding(self.embedding, None if d_embed == d_model else d_embed, div)
        return Architecture(**{**vars(self), "d_model": d_model, "embedding": embedding, "blocks": tuple(blocks)})

    @classmethod
    def of(cls, model: Architecture) -> Frame:
        """Extracts the frame of a model."""
        return cls(**{field.name: getattr(model, field.name) for field in fields(cls)})


@lru_cache(maxsize=1024)
def _embedding(like: Embedding, d_embed: int | None, div: int) -> Embedding:
    return Embedding(**{**like.model_dump(), "d_embed": d_embed, "div": div})


@dataclass(frozen=True)
class Stock:
    """Layer shape of a space's stock model; the reference models are the stock model at several depths."""

    d_model: int
    n_head: int = 1
    d_inner: int = 0
    attn_ratio: int = 4
    n_kv_head: int = 0
    """Number of heads of keys and values, in a space with grouped queries."""
    div: int | None = None
    """`div` of the embedding, if `div` is a gene; None for the first permitted value."""


@dataclass(frozen=True)
class FramedSpace(SearchSpace, ABC):
    """A search space with a fixed frame, the gene d_model, and genes whose values must fit d_model.

    n_head and attn_ratio divide d_model, and d_inner is at least min_inner_ratio·d_model. Genes `div` and `d_embed` of
    the embedding are optional: without them the embedding is the frame's.
    """

    frame: Frame
    stock: Stock
    min_inner_ratio: int = field(default=0, kw_only=True)
    """Minimum ratio d_inner / d_model."""
    depth_gene: str = field(default="n_layer", kw_only=True)
    stock_layer: tuple[str, ...] = field(default=("attention", "feed_forward"), kw_only=True)
    """Kinds of the blocks in a layer of the stock model."""

    @cached_property
    def depth(self) -> int:
        return max(map(int, self.gene(self.depth_gene).values))

    @abstractmethod
    def genome_of(self, architecture: Architecture) -> Genome | None:
        """Genome that describes this architecture, perhaps with forbidden values; None if no genome describes it."""

    def contains(self, architecture: Architecture) -> bool:
        genome = self.genome_of(architecture)
        return genome is not None and self.architecture(self.repair(genome)) == architecture

    def values_with(self, name: str, d_model: int) -> tuple[Value, ...]:
        """Values of a gene that fit this d_model."""
        return self._widths[d_model].get(name, self._genes[name].values)

    @property
    def _fitted(self) -> tuple[str, ...]:
        """Names of the genes whose values must fit d_model."""
        return ("n_head", "d_inner")

    @cached_property
    def _widths(self) -> dict[int, dict[str, tuple[int, ...]]]:
        """d_model → gene → values compatible with this d_model; omits a d_model without a value of one of the genes."""
        widths = {}
        for width in map(int, self.gene("d_model").values):
            fitting = {name: self._fitting(name, self.gene(name).values, width) for name in self._fitted}
            if all(fitting.values()):
                widths[width] = fitting
        return widths

    def _fitting(self, name: str, values: Sequence[Value], width: int) -> tuple[int, ...]:
        numbers = map(int, values)
        if name == "d_inner":
            return tuple(number for number in numbers if number >= self.min_inner_ratio * width)
        return tuple(number for number in numbers if width % number == 0)

    def _consistent(self: _Framed) -> _Framed:
        widths = self._widths
        if not widths:
            given = list(self.gene("d_model").values)
            fitted = " and ".join(f"{name} in {in_words(self.gene(name).values)}" for name in self._fitted)
            rules = [
                f"d_inner ≥ {self.min_inner_ratio}·d_model" if name == "d_inner" else f"{name} divides d_model"
                for name in self._fitted
                if name != "d_inner" or self.min_inner_ratio
            ]
            raise SpaceError(
                f"no architecture is left in {self.name}: no d_model in {given} fits {fitted}",
                field="d_model",
                value=given,
                allowed=", ".join(rules),
            )
        left: dict[str, set[int]] = {"d_model": set(widths)}
        for name in self._fitted:
            left[name] = {value for fitting in widths.values() for value in fitting[name]}
        return self._keeping(left)

    # The embedding -----------------------------------------------------------------------------------------------

    @cached_property
    def _genes(self) -> dict[str, Gene]:
        return {gene.name: gene for gene in self.gene_list}

    def _d_embeds(self, width: int) -> dict[int, Value]:
        """Embedding width → first value of the gene d_embed with this width, in a model of d_model `width`."""
        gene = self._genes.get("d_embed")
        if gene is None:
            return {self.frame.embedding.d_embed or width: LIKE_D_MODEL}
        value_of: dict[int, Value] = {}
        for value in gene.values:
            value_of.setdefault(self._d_embed(value, width), value)
        return value_of

    def _d_embed(self, value: Value, width: int) -> int:
        return width if value == LIKE_D_MODEL else int(value)

    def _embeddings(self, width: int) -> list[Genome]:
        """Values of the genes div and d_embed, one genome per permitted embedding of a model of d_model `width`."""
        divs = self._genes["div"].values if "div" in self._genes else (self.frame.embedding.div,)
        every = [{"div": div, "d_embed": value} for div in divs for value in self._d_embeds(width).values()]
        return [{name: value for name, value in genes.items() if name in self._genes} for genes in every]

    def build(self, genome: Genome, blocks: Sequence[Block]) -> Architecture:
        """Builds the architecture with these blocks, and with d_model, embedding and output of the genome."""
        width = genome["d_model"]
        default = self.frame.embedding.d_embed or LIKE_D_MODEL
        d_embed = self._d_embed(genome.get("d_embed", default), width)
        frame = self._frame_of(genome)
        return frame.model(width, blocks, d_embed=d_embed, div=genome.get("div", frame.embedding.div))

    def _frame_of(self, genome: Genome) -> Frame:
        """Frame of a genome's model, before the genome's d_model, div and d_embed are inserted."""
        return self.frame

    def _embedding_of(self, architecture: Architecture) -> Genome | None:
        """Genes d_model, div and d_embed of an architecture; None if no d_embed gives its embedding width."""
        width = architecture.d_model
        value = self._d_embeds(width).get(architecture.d_embed)
        if value is None:
            return None
        genome = {"d_model": width, "div": architecture.embedding.div, "d_embed": value}
        return {name: value for name, value in genome.items() if name in self._genes}

    # Baselines ---------------------------------------------------------------------------------------------------

    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """Reference models: the default (stock) model, or the nearest permitted shape, at each depth in `layers`.

        Depths (default: 1 to the deepest), kinds of blocks and minimum shares need not be permitted, because users
        compare with the unmodified stock model.
        """
        genome = {"attends": "self", **self._stock([name for kind in self.stock_layer for name in WIDTHS[kind]])}
        layer = [block_of(kind, genome["d_model"], genome) for kind in self.stock_layer]
        deepest = max(1, self.depth // len(layer)) if self.depth_gene == "n_block" else self.depth
        depths = range(1, deepest + 1) if layers is None else sorted(set(layers))
        return tuple(self.build(genome, layer * depth) for depth in depths)

    def _stock(self, names: Sequence[str] = ("n_head", "d_inner")) -> Genome:
        """Values of d_model, div, d_embed and the genes `names` in the reference models (`baselines`).

        d_model is the stock model's if permitted, else the largest value, with d_inner near 4·d_model. Each width moves
        to the nearest value that fits. div is the stock model's if permitted, else the first value.
        """
        width = self.stock.d_model if self.stock.d_model in self._widths else max(self._widths)
        embeddings = self._embeddings(width)
        stock = [genes for genes in embeddings if genes.get("div") == self.stock.div]
        genome: Genome = {"d_model": width, **(stock or embeddings)[0]}
        for name in names:
            scaled = name == "d_inner" and width != self.stock.d_model
            ideal = 4 * width if scaled else getattr(self.stock, name)
            # The stock's width if a job removed the blocks with this gene; the stock's heads must divide d_model.
            own = ideal if name == "d_inner" else gcd(ideal, width)
            values = self._widths[width].get(name, (own,))
            genome[name] = min(values, key=lambda value: (abs(value - ideal), value))
        return genome


@dataclass(frozen=True)
class LtsSpace(FramedSpace):
    """Search space of decoders from Lightweight Transformer Search (LTS, arXiv 2203.02094, §3 and Appendix H).

    Genes are n_layer, d_model, div, d_embed and, in each layer, n_head and d_inner. Every layer is an attention and a
    feed-forward block. Ranges include both ends, as printed in the paper. n_head divides d_model in every layer.
    """

    def make_operators(self) -> LtsOperators:
        from edgefront.core.architectures.operators.base import LtsOperators

        return LtsOperators(self)

    def architecture(self, genome: Genome) -> Architecture:
        layers = zip(genome["n_head"], genome["d_inner"], strict=True)
        shown = list(layers)[: genome["n_layer"]]
        blocks = [(Attention(n_head=n_head), FeedForward(d_inner=d_inner)) for n_head, d_inner in shown]
        return self.build(genome, [block for layer in blocks for block in layer])

    def genome_of(self, architecture: Architecture) -> Genome | None:
        embedding, blocks = self._embedding_of(architecture), architecture.blocks
        heads = [block.n_head for block in blocks if isinstance(block, Attention)]
        inners = [block.d_inner for block in blocks if isinstance(block, FeedForward)]
        if embedding is None or not 0 < len(heads) == len(inners) <= self.depth:
            return None
        room = self.depth - len(heads)
        layers = {"n_head": heads + heads[-1:] * room, "d_inner": inners + inners[-1:] * room}
        return {"n_layer": len(heads), **embedding, **layers}

    def size(self) -> int:
        """Sum over d_model and n_layer of (heads · inner widths)^n_layer · d_embed choices · div choices.

        Genes of layers beyond n_layer do not distinguish architectures. The size of lts-gpt2 is 3.7·10^36. The paper's
        "more than 10^54" needs a free d_model in every layer, which a residual stack does not allow.
        """
        total = 0
        for width, fitting in self._widths.items():
            per_layer = len(fitting["n_head"]) * len(fitting["d_inner"])
            stacks = sum(per_layer ** int(depth) for depth in self.gene("n_layer").values)
            total += len(self._embeddings(width)) * stacks
        return total

    def enumerate(self) -> Iterator[Genome]:
        for width, fitting in self._widths.items():
            heads, inners = fitting["n_head"], fitting["d_inner"]
            hidden = (heads[0], inners[0])
            for depth, embedding in product(self.gene("n_layer").values, self._embeddings(width)):
                for layers in product(product(heads, inners), repeat=int(depth)):
                    stack = layers + (hidden,) * (self.depth - len(layers))
                    yield {
                        "n_layer": depth,
                        "d_model": width,
                        **embedding,
                        "n_head": [n_head for n_head, _ in stack],
                        "d_inner": [d_inner for _, d_inner in stack],
                    }

    def loadable(self, loader: Loader) -> Mapping[str, Sequence[Value]]:
        """Gene → one value for all layers, as loaders need equal layers: the stock model's, or the nearest to it."""
        stock = self._stock()
        return {name: (stock[name],) for name in ("n_head", "d_inner") if len(self.gene(name).values) > 1}
