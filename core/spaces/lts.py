"""The decoder spaces of Lightweight Transformer Search (LTS, arXiv 2203.02094): §3 and Appendix H.

Every layer is an attention and a feed-forward block; each layer has its own n_head and d_inner. Ranges include both
ends, as the paper prints them. The heads of a layer divide d_model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.base_space import LIKE_D_MODEL, Frame, FramedSpace, Stock
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.embeddings_and_head import Embedding, LearnedPositions
from edgefront.core.spaces.gene import Gene, Value, steps
from edgefront.core.spaces.space import Genome, Loader
from edgefront.core.spaces.transformer_xl import BASE, OWN_BIASES

if TYPE_CHECKING:
    from edgefront.core.spaces.rules.base import LtsRules


@dataclass(frozen=True)
class LtsSpace(FramedSpace):
    """Decoders with genes n_layer, d_model, div, d_embed and, in each layer, n_head and d_inner."""

    @property
    def depth(self) -> int:
        return self._deepest

    def make_rules(self) -> LtsRules:
        from edgefront.core.spaces.rules.base import LtsRules

        return LtsRules(self)

    def architecture(self, genome: Genome) -> Architecture:
        visible = range(genome["n_layer"])
        return self.build(genome, _blocks((genome["n_head"][layer], genome["d_inner"][layer]) for layer in visible))

    def contains(self, architecture: Architecture) -> bool:
        attention, feed_forward = architecture.blocks[0::2], architecture.blocks[1::2]
        fitting = self._widths.get(architecture.d_model)
        if fitting is None or len(attention) != len(feed_forward):
            return False
        if len(attention) not in self.gene("n_layer").values:
            return False
        layers = [
            (mixer.n_head, inner.d_inner)
            for mixer, inner in zip(attention, feed_forward, strict=True)
            if isinstance(mixer, Attention) and isinstance(inner, FeedForward)
        ]
        if not all(n_head in fitting["n_head"] and d_inner in fitting["d_inner"] for n_head, d_inner in layers):
            return False
        # What is left (vocabulary, positions, activation …) is not searched: it must be as this space builds it.
        return len(layers) == len(attention) and self._is_built_of(architecture, _blocks(layers))

    def size(self) -> int:
        """Sum over d_model and n_layer of (heads · inner widths)^n_layer · d_embed choices · div choices.

        Only the layers that are there count, not the hidden genes. This is 3.7·10^36 for lts-gpt2; the paper's
        "more than 10^54" is reached if d_model counts as free in every layer, which a residual stack does not allow.
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
        """Loaders have one width in all layers: the stock's, or the nearest that is left."""
        stock = self._stock()
        return {name: (stock[name],) for name in ("n_head", "d_inner") if len(self.gene(name).values) > 1}

    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """The stock shape, or the nearest that this space permits, at each depth, with the stock's embedding if it can.

        Depths need not be permitted: the paper's baselines start at one layer.
        """
        genome = self._stock()
        layer = (genome["n_head"], genome["d_inner"])
        depths = range(1, self.depth + 1) if layers is None else sorted(set(layers))
        return tuple(self.build(genome, _blocks([layer] * depth)) for depth in depths)

    @cached_property
    def _deepest(self) -> int:
        return max(int(depth) for depth in self.gene("n_layer").values)


def _blocks(layers: Iterable[tuple[int, int]]) -> list[Block]:
    """Attention and feed-forward blocks of layers given as (n_head, d_inner)."""
    blocks: list[Block] = []
    for n_head, d_inner in layers:
        blocks += [Attention(n_head=n_head), FeedForward(d_inner=d_inner)]
    return blocks


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
    # Tables 6 and 7: 1024 wide, inner width 3072. Their 12 heads do not divide 1024; the most that this space has do.
    stock=Stock(d_model=1024, n_head=8, d_inner=3072, div=4),
    frame=Frame(
        # Transformer-XL's cut-offs for WikiText-103 that lie within this vocabulary.
        embedding=Embedding(vocab_size=50264, cutoffs=(19997, 39997)),
        # As many as GPT-2 has. The reference code keeps a row for each of the 192 tokens that it trains with.
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
