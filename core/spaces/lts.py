"""The decoder spaces of Lightweight Transformer Search (LTS, arXiv 2203.02094): §3 and Appendix H.

Every layer is an attention and a feed-forward block; each layer has its own n_head and d_inner. Ranges include both
ends, as the paper prints them. The heads of a layer divide d_model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.base_space import FramedSpace
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.gene import Value
from edgefront.core.spaces.space import Genome, Loader

if TYPE_CHECKING:
    from edgefront.core.spaces.rules.base import LtsRules


@dataclass(frozen=True)
class LtsSpace(FramedSpace):
    """Decoders with genes n_layer, d_model, div, d_embed and, in each layer, n_head and d_inner."""

    def make_rules(self) -> LtsRules:
        from edgefront.core.spaces.rules.base import LtsRules

        return LtsRules(self)

    def architecture(self, genome: Genome) -> Architecture:
        visible = range(genome["n_layer"])
        return self.build(genome, _blocks((genome["n_head"][layer], genome["d_inner"][layer]) for layer in visible))

    def genome_of(self, architecture: Architecture) -> Genome | None:
        ends, blocks = self._ends_of(architecture), architecture.blocks
        heads = [block.n_head for block in blocks if isinstance(block, Attention)]
        inners = [block.d_inner for block in blocks if isinstance(block, FeedForward)]
        if ends is None or not 0 < len(heads) == len(inners) <= self.depth:
            return None
        room = self.depth - len(heads)
        layers = {"n_head": heads + heads[-1:] * room, "d_inner": inners + inners[-1:] * room}
        return {"n_layer": len(heads), **ends, **layers}

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


def _blocks(layers: Iterable[tuple[int, int]]) -> list[Block]:
    """Attention and feed-forward blocks of layers given as (n_head, d_inner)."""
    blocks: list[Block] = []
    for n_head, d_inner in layers:
        blocks += [Attention(n_head=n_head), FeedForward(d_inner=d_inner)]
    return blocks
