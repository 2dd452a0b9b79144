"""The space of Sandwich Transformers (Press et al. 2020): attention first, feed-forward last, pairs between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.base_space import LIKE_D_MODEL, FramedSpace
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.gene import Gene, steps
from edgefront.core.spaces.pattern import expand, sandwich_pattern
from edgefront.core.spaces.space import Genome
from edgefront.core.spaces.transformer_xl import BASE, SHARED_BIASES

if TYPE_CHECKING:
    from edgefront.core.spaces.rules.sandwich import SandwichRules


@dataclass(frozen=True)
class SandwichSpace(FramedSpace):
    """Genes pairs, coefficient below pairs, d_model, div, d_embed, n_head and d_inner, all of the whole model.

    A coefficient of `pairs` would be the same stack as one less.
    """

    def make_rules(self) -> SandwichRules:
        from edgefront.core.spaces.rules.sandwich import SandwichRules

        return SandwichRules(self)

    def architecture(self, genome: Genome) -> Architecture:
        return self.build(genome, _blocks(genome))

    def contains(self, architecture: Architecture) -> bool:
        fitting = self._widths.get(architecture.d_model)
        first, last = architecture.blocks[0], architecture.blocks[-1]
        pairs, odd = divmod(len(architecture.blocks), 2)
        if fitting is None or odd or not isinstance(first, Attention) or not isinstance(last, FeedForward):
            return False
        # k blocks of attention, and the one of the first pair, stand before the first feed-forward block.
        leading = next(at for at, block in enumerate(architecture.blocks) if block.kind == "feed_forward")
        genome = {"pairs": pairs, "coefficient": leading - 1, "n_head": first.n_head, "d_inner": last.d_inner}
        return (
            pairs in self.gene("pairs").values
            and genome["coefficient"] in self.coefficients(pairs)
            and all(genome[name] in fitting[name] for name in ("n_head", "d_inner"))
            and self._is_built_of(architecture, _blocks(genome))
        )

    def size(self) -> int:
        """(Σ over pairs of their coefficients) · Σ over d_model of heads · inner widths · embeddings."""
        return self._patterns * sum(
            len(fitting["n_head"]) * len(fitting["d_inner"]) * len(self._embeddings(width))
            for width, fitting in self._widths.items()
        )

    def enumerate(self) -> Iterator[Genome]:
        for width, fitting in self._widths.items():
            for pairs in map(int, self.gene("pairs").values):
                for coefficient, embedding, n_head, d_inner in product(
                    self.coefficients(pairs), self._embeddings(width), fitting["n_head"], fitting["d_inner"]
                ):
                    yield {
                        "pairs": pairs,
                        "coefficient": coefficient,
                        "d_model": width,
                        **embedding,
                        "n_head": n_head,
                        "d_inner": d_inner,
                    }

    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """The stock shape, or the nearest that this space permits, as plain pairs at each depth."""
        stock = self._stock()
        deepest = max(map(int, self.gene("pairs").values))
        depths = range(1, deepest + 1) if layers is None else sorted(set(layers))
        return tuple(self.build(stock, _blocks({**stock, "pairs": pairs, "coefficient": 0})) for pairs in depths)

    @property
    def _patterns(self) -> int:
        return sum(len(self.coefficients(pairs)) for pairs in map(int, self.gene("pairs").values))

    def coefficients(self, pairs: int) -> tuple[int, ...]:
        """Those that go with so many pairs."""
        return tuple(k for k in map(int, self.gene("coefficient").values) if k < pairs)

    def _consistent(self) -> SandwichSpace:
        given = [int(value) for value in self.gene("pairs").values]
        pairs = {value for value in given if self.coefficients(value)}
        if not pairs:
            least = int(self.gene("coefficient").values[0])
            raise SpaceError(
                f"no architecture is left in {self.name}: the coefficient is at least {least}, "
                f"with pairs up to {given[-1]}",
                field="coefficient",
                value=list(self.gene("coefficient").values),
                allowed="a coefficient below pairs",
            )
        coefficients = set(self.coefficients(max(pairs)))
        return super(SandwichSpace, self._keeping({"pairs": pairs, "coefficient": coefficients}))._consistent()


def _blocks(genome: Genome) -> list[Block]:
    blocks: dict[str, Block] = {
        "s": Attention(n_head=genome["n_head"]),
        "f": FeedForward(d_inner=genome["d_inner"]),
    }
    return [blocks[letter] for letter in expand(sandwich_pattern(genome["pairs"], genome["coefficient"]))]


SANDWICH = SandwichSpace(
    name="sandwich",
    title="Sandwich Transformers: attention first, feed-forward last, over Transformer-XL's blocks",
    source="Press et al. (arXiv 1911.03864) §4; PAR (arXiv 2009.04534) Tables 1 and 2",
    caveat=(
        "The proxy ignores the coefficient: it moves blocks and changes neither parameters nor, noticeably, time. "
        "Models that differ only in it can be compared by training only."
    ),
    gene_list=(
        Gene("pairs", steps(2, 18, 1)),
        Gene("coefficient", steps(0, 17, 1)),
        Gene("d_model", steps(128, 1024, 64)),
        Gene("div", (1,), options=(1, 2, 4)),
        Gene("d_embed", (LIKE_D_MODEL,), options=(LIKE_D_MODEL, 128, 256, 512)),
        Gene("n_head", (2, 4, 8, 16)),
        Gene("d_inner", steps(256, 4096, 64)),
    ),
    stock=BASE,
    frame=SHARED_BIASES,
    min_inner_ratio=2,
)
