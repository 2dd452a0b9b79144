"""Search spaces of stacks: each block is of any of the given kinds, with widths per block or of the whole model.

Identity is one of the kinds, so that a search can drop a block and take it back. Architectures have no identity blocks,
so that the same function is measured only once, and `size` counts each stack once.

The quality proxy is a number of parameters. It would drive a search to stacks without attention, because a feed-forward
block has more parameters and is faster. So `min_attention_percent` and `min_mixing_percent` are genes: minimum shares
of the blocks that attend to other tokens, and of the blocks that see other tokens by attention or recurrence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import TYPE_CHECKING

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.base_space import FramedSpace
from edgefront.core.architectures.gene import (
    GENES,
    IDENTITY,
    MIN_ATTENTION,
    MIN_MIXING,
    WIDTHS,
    Choice,
    MinimumShare,
    Value,
    block_of,
    choices,
    genes_of,
    in_words,
)
from edgefront.core.architectures.space import Genome
from edgefront.core.common.errors import SpaceError

if TYPE_CHECKING:
    from edgefront.core.architectures.operators.stack import StackOperators


@dataclass(frozen=True)
class StackSpace(FramedSpace):
    """Space of stacks: the depth gene is the maximum number of blocks, or the exact number without the kind identity.

    Genes: depth and d_model (required); the minimum shares, div and d_embed (optional); `kind` per layer; and n_head,
    d_inner, attn_ratio and attends if a kind of block has them, each per layer or one for the whole model.
    """

    def make_operators(self) -> StackOperators:
        from edgefront.core.architectures.operators.stack import StackOperators

        return StackOperators(self)

    def architecture(self, genome: Genome) -> Architecture:
        blocks = []
        for layer, kind in enumerate(genome["kind"][: genome[self.depth_gene]]):
            if kind != IDENTITY:
                values = {
                    name: genome[name][layer] if self._genes[name].per_layer else genome[name] for name in GENES[kind]
                }
                blocks.append(block_of(kind, genome["d_model"], values))
        return self.build(genome, blocks)

    def genome_of(self, architecture: Architecture) -> Genome | None:
        embedding, length = self._embedding_of(architecture), len(architecture.blocks)
        room = min((depth for depth in map(int, self.gene(self.depth_gene).values) if depth >= length), default=None)
        values = [genes_of(block, architecture.d_model) for block in architecture.blocks]
        if embedding is None or room is None or None in values:
            return None
        top = {self.depth_gene: room, **embedding, **self._least_percents}
        genome = self._first_values(top, [block.kind for block in architecture.blocks])
        shown = [block or {} for block in values]
        for name, first in {name: value for block in reversed(shown) for name, value in block.items()}.items():
            if name in self._genes:
                layers = [block.get(name, first) for block in shown] + [first] * (self.depth - length)
                genome[name] = layers if self._genes[name].per_layer else first
        return genome

    def size(self) -> int:
        """Sum over d_model, embeddings and lengths of the number of permitted stacks (`MinimumShare.count`)."""
        return self._size

    def enumerate(self) -> Iterator[Genome]:
        for width in self._widths:
            for embedding, length in product(self._embeddings(width), self._lengths):
                room = min(depth for depth in map(int, self.gene(self.depth_gene).values) if depth >= length)
                top = {self.depth_gene: room, "d_model": width, **self._least_percents, **embedding}
                for stack in self._stacks(length, ()):
                    yield from self._shaped(top, stack)

    @cached_property
    def _loosest(self) -> MinimumShare:
        """The smallest minimum share of attention, and of mixing, that a genome of the space can have."""
        return MinimumShare(self._least_percents.get(MIN_ATTENTION, 0), self._least_percents.get(MIN_MIXING, 0))

    @cached_property
    def _least_percents(self) -> dict[str, int]:
        """Name of a minimum-share gene → its smallest value, in percent; only the genes that the space has."""
        return {
            name: min(map(int, self._genes[name].values)) for name in (MIN_ATTENTION, MIN_MIXING) if name in self._genes
        }

    # Counting ----------------------------------------------------------------------------------------------------

    @cached_property
    def _size(self) -> int:
        return sum(len(self._embeddings(width)) * self._count(width) for width in self._widths)

    def _count(self, width: int) -> int:
        """Number of permitted stacks of blocks in models of d_model `width`.

        A gene of the whole model (such as n_head in the space par-32) distinguishes two stacks only if both have a
        block with this gene. So stacks are counted for each set of kinds of blocks, by inclusion and exclusion.
        """
        shared = {
            name: len(values)
            for name, values in self._widths[width].items()
            if len(values) > 1 and not self._genes[name].per_layer
        }
        kinds = frozenset(choice.kind for choice in self._choices)
        if not shared:
            return self._count_of(kinds, width)
        subsets = [frozenset(some) for size in range(len(kinds) + 1) for some in combinations(sorted(kinds), size)]
        within = {some: self._count_of(some, width) for some in subsets}
        total = 0
        for held in subsets:
            exactly = sum((-1) ** len(held - part) * count for part, count in within.items() if part <= held)
            total += exactly * prod(shared[name] for kind in held for name in WIDTHS[kind] if name in shared)
        return total

    def _count_of(self, kinds: frozenset[str], width: int) -> int:
        """Number of permitted stacks of blocks of these kinds; genes of the whole model are fixed to one value."""
        number = {"attention": 0, "recurrent": 0, "pointwise": 0}
        for choice in self._choices:
            if choice.kind in kinds:
                own = [name for name in WIDTHS[choice.kind] if self._genes[name].per_layer]
                number[choice.sees] += prod(len(self._widths[width][name]) for name in own)
        return sum(self._loosest.count(length, **number) for length in self._lengths)

    def _stacks(self, length: int, first: tuple[Choice, ...]) -> Iterator[tuple[Choice, ...]]:
        """Yields every permitted stack of `length` blocks that begins with the blocks `first`."""
        if len(first) == length:
            yield first
            return
        rest = length - len(first) - 1
        for choice in self._choices:
            stack = (*first, choice)
            attention = sum(choice.sees == "attention" for choice in stack)
            mixing = sum(choice.sees != "pointwise" for choice in stack)
            if self._loosest.holds(length, attention + rest, mixing + rest):
                yield from self._stacks(length, stack)

    def _shaped(self, top: Genome, stack: Sequence[Choice]) -> Iterator[Genome]:
        """Yields a genome per assignment of widths to the blocks of `stack`; unused genes have their first value."""
        fitting = self._widths[top["d_model"]]
        hidden = self._first_values(top, [choice.kind for choice in stack])
        for layer, choice in enumerate(stack):
            if choice.attends is not None:
                hidden["attends"][layer] = choice.attends
        shown = dict.fromkeys(
            (name, layer if self._genes[name].per_layer else None)
            for layer, choice in enumerate(stack)
            for name in WIDTHS[choice.kind]
        )
        for values in product(*(fitting[name] for name, _ in shown)):
            genome = {name: list(value) if isinstance(value, list) else value for name, value in hidden.items()}
            for (name, index), value in zip(shown, values, strict=True):
                if index is None:
                    genome[name] = value
                else:
                    genome[name][index] = value
            yield genome

    def _first_values(self, top: Genome, kinds: Sequence[str]) -> Genome:
        """Genome with the values `top` and blocks of these kinds; all other genes have their first permitted value."""
        fitting = self._widths.get(top["d_model"], {})
        genome: Genome = dict(top)
        for name, gene in self._genes.items():
            if name not in top:
                value = fitting.get(name, gene.values)[0]
                genome[name] = [value] * self.depth if gene.per_layer else value
        beyond = [IDENTITY if IDENTITY in self._kinds else self._kinds[0]] * (self.depth - len(kinds))
        genome["kind"] = [*kinds, *beyond]
        return genome

    # Narrowing ---------------------------------------------------------------------------------------------------

    def _consistent(self) -> StackSpace:
        kinds = ", ".join(map(str, self._kinds))
        if not self._choices:
            raise SpaceError(
                f"no architecture is left in {self.name}, because kind is only {kinds}",
                field="kind",
                value=list(self._kinds),
                allowed="at least one kind other than identity",
            )
        left: dict[str, set[int]] = {}
        can_attend = {choice.kind for choice in self._choices if choice.sees == "attention"}
        for name, able in ((MIN_ATTENTION, can_attend), (MIN_MIXING, _MIXING.intersection(self._kinds))):
            if name not in self._genes or able:
                continue
            if 0 not in self._genes[name].values:
                values = in_words(self._genes[name].values)
                raise SpaceError(
                    f"no architecture is left in {self.name}: {name} is {values}, but of {kinds} none "
                    + ("attends to other tokens" if name == MIN_ATTENTION else "sees other tokens"),
                    field=name,
                    value=list(self._genes[name].values),
                    allowed="0, or a kind that does: attention or srupp",
                )
            left[name] = {0}
        return super(StackSpace, self._keeping(left))._consistent()

    # Derived from the genes --------------------------------------------------------------------------------------

    @cached_property
    def _kinds(self) -> tuple[Value, ...]:
        return self.gene("kind").values

    @cached_property
    def _choices(self) -> tuple[Choice, ...]:
        attends = self._genes.get("attends")
        return choices(self._kinds, attends.values if attends else ())

    @cached_property
    def _fitted(self) -> tuple[str, ...]:
        return tuple(name for name in self._genes if any(name in WIDTHS[str(kind)] for kind in self._kinds))

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        """Possible numbers of blocks, in rising order."""
        depths = tuple(map(int, self.gene(self.depth_gene).values))
        return tuple(range(1, self.depth + 1)) if IDENTITY in self._kinds else depths


_MIXING = frozenset({"attention", "srupp"})
"""Kinds of blocks that see other tokens with every value of their genes."""
