"""Counts and enumerates the stacks of a space of layers (`core.architectures.layers`).

A layer is never empty, and a layer without feed-forward is followed by a layer with a mixer.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import comb, prod

from edgefront.core.architectures.base_space import FramedSpace
from edgefront.core.architectures.gene import (
    MIN_ATTENTION,
    PER_LAYER,
    SHORT_CONV,
    UNIFORM,
    UNIFORM_GENES,
    VOCABULARY_GENES,
    MinimumShare,
    Value,
)
from edgefront.core.architectures.space import Genome


@dataclass(frozen=True)
class LayerStacks(FramedSpace, ABC):
    """Base class of spaces of layers: the genes, and the count and enumeration of all permitted stacks of layers."""

    def size(self) -> int:
        """Number of architectures: the sum, over d_model, vocabulary genes and n_layer, of the number of stacks.

        If heads are of the whole model, a stack with attention counts once per d_head or n_head; others count once.
        """
        return self._size

    def enumerate(self) -> Iterator[Genome]:
        floor = {MIN_ATTENTION: self._least_percent} if MIN_ATTENTION in self._genes else {}
        layers = {"layers": self._layers_value} if "layers" in self._genes else {}
        vocabularies = [
            [(name, value) for value in self._genes[name].values] for name in VOCABULARY_GENES if name in self._genes
        ]
        depths = [int(n_layer) for n_layer in self.gene("n_layer").values]
        for width in self._widths:
            every_heads = self._whole_heads(width)
            for chosen, n_layer, heads in product(product(*vocabularies), depths, every_heads):
                whole = {"n_layer": n_layer, "d_model": width, **dict(chosen), **heads, **floor, **layers}
                for mixers in self._mixers(n_layer, ()):
                    # A stack without attention gives one genome, not one for each value of the heads.
                    if heads == every_heads[0] or any(value in self.can_attend for value in mixers):
                        yield from self._shaped(whole, mixers)

    def _mixers(self, n_layer: int, first: tuple[Value, ...]) -> Iterator[tuple[Value, ...]]:
        """Yields every permitted stack of `n_layer` layers that begins with `first`: values of the gene `deciding`."""
        if len(first) == n_layer:
            yield first
            return
        skipped, least = sum(value not in self.can_attend for value in first), self.floor(n_layer, self._least_percent)
        for value in self._genes[self.deciding].values if skipped < n_layer - least else self.attending_values:
            if self.deciding == "n_head" and self._layers_value == UNIFORM:
                if value in self.can_attend or not least:
                    yield (value,) * n_layer
            else:
                yield from self._mixers(n_layer, (*first, value))

    def _shaped(self, whole: Genome, mixers: tuple[Value, ...]) -> Iterator[Genome]:
        """Yields a genome per assignment of widths to the layers `mixers`; unused genes have their first value."""
        n_layer, uniform = len(mixers), self._layers_value == UNIFORM
        heads = mixers if self.deciding == "n_head" else (whole["n_head"],) * n_layer
        attends = [value in self.can_attend for value in mixers]
        mixed = [self.deciding == "mixer" or attending for attending in attends]
        groups = [self.groups_of(int(number)) for number in heads]
        choices: dict[str, list[Sequence[Value]]] = {
            "n_kv_head": [values if shown else values[:1] for values, shown in zip(groups, attends, strict=True)],
            "d_inner": [
                self.gene("d_inner").values if first and second else self.inner_values
                for first, second in pairwise([*mixed, True])
            ],
        }
        if uniform:
            choices["n_kv_head"] = [groups[0] if any(attends) else groups[0][:1]]
            choices["d_inner"] = choices["d_inner"][:1]
        if "window" in self._genes:
            windows = self._genes["window"].values
            choices["window"] = [windows if shown else windows[:1] for shown in attends]
        beyond = {name: gene.values[0] for name, gene in self._genes.items()}
        beyond["n_kv_head"] = self.groups_of(int(whole.get("n_head", beyond["n_head"])))[0]
        shown = [(name, values) for name in self._genes for values in choices.get(name, ())]
        # One product over all layers, because `product` is lazy in its results but not in its arguments.
        for assigned in product(*(values for _, values in shown)):
            layers: dict[str, list[Value]] = {self.deciding: list(mixers), **{name: [] for name in choices}}
            for (name, _), value in zip(shown, assigned, strict=True):
                layers[name].append(value)
            genome: Genome = dict(whole)
            for name, values in layers.items():
                same = uniform and name in UNIFORM_GENES
                genome[name] = values + [values[0] if same else beyond[name]] * (self.depth - len(values))
            yield {name: genome[name] for name in self._genes}

    @cached_property
    def _size(self) -> int:
        total = 0
        vocabularies = prod(len(self._genes[name].values) for name in VOCABULARY_GENES if name in self._genes)
        depths = [int(n) for n in self.gene("n_layer").values]
        for width in self._widths:
            attentions = [self._attentions(heads) for heads in self._whole_heads(width)]
            for n_layer in depths:
                without = self._count(n_layer, 0)
                total += vocabularies * (without + sum(self._count(n_layer, ways) - without for ways in attentions))
        return total

    def _count(self, n_layer: int, attentions: int) -> int:
        """Number of permitted stacks of `n_layer` layers; an attention has `attentions` variants per window."""
        least, inner, may_lack = self.floor(n_layer, self._least_percent), len(self.inner_values_left), self._may_lack
        attentions *= bool(self.can_attend)
        if self._layers_value != UNIFORM:
            tables = self._stacks(attentions * self._windows)[n_layer]
            return sum(number for table in tables for count, number in table.items() if count >= least)
        if self.deciding != "mixer":
            # Either all layers attend, or no layer does.
            all_attend: int = attentions * self._windows**n_layer * (inner + may_lack)
            return all_attend + (inner if 0 in self.gene("n_head").values and not least else 0)
        total = 0
        for count in range(least, n_layer + 1):
            if (attentions or not count) and (count == n_layer or self._has_convolution):
                total += comb(n_layer, count) * self._windows**count * (attentions if count else 1)
        return total * (inner + may_lack)

    def _stacks(self, ways: int) -> list[tuple[dict[int, int], dict[int, int]]]:
        """For each number of layers two dictionaries: number of layers that attend → number of stacks of layers.

        The first counts the stacks whose first layer has a mixer, the second all others. Attention has `ways` variants.
        """
        if ways in self._tables:
            return self._tables[ways]
        inner = len(self.inner_values_left)
        may_lack_mixer = self.deciding != "mixer" and 0 in self.gene("n_head").values
        tables: list[tuple[dict[int, int], dict[int, int]]] = [({0: 1}, {0: 0})]
        for _ in range(self.depth):
            mixed, plain = tables[-1]
            new_mixed: dict[int, int] = {}
            new_plain: dict[int, int] = {}
            for count in {*mixed, *plain}:
                with_mixer, without = mixed.get(count, 0), plain.get(count, 0)
                # A layer without feed-forward is the final layer, or is followed by a layer with a mixer.
                whole = inner * (with_mixer + without) + self._may_lack * with_mixer
                if ways:
                    new_mixed[count + 1] = new_mixed.get(count + 1, 0) + ways * whole
                if self._has_convolution:
                    new_mixed[count] = new_mixed.get(count, 0) + whole
                if may_lack_mixer:
                    new_plain[count] = new_plain.get(count, 0) + inner * (with_mixer + without)
            tables.append((new_mixed, new_plain))
        self._tables[ways] = tables
        return tables

    @cached_property
    def _tables(self) -> dict[int, list[tuple[dict[int, int], dict[int, int]]]]:
        """Cached results of `_stacks`, by `ways`."""
        return {}

    @property
    def _windows(self) -> int:
        """Number of windows that an attention may have: values of the gene `window`, else 1."""
        return len(self._genes["window"].values) if "window" in self._genes else 1

    @property
    def _may_lack(self) -> bool:
        """Whether a layer may lack the feed-forward block."""
        return 0 in self.gene("d_inner").values

    @property
    def _has_convolution(self) -> bool:
        return self.deciding == "mixer" and SHORT_CONV in self.gene("mixer").values

    def _attentions(self, heads: Mapping[str, int]) -> int:
        """Number of combinations of heads and key-value heads with which a layer may attend."""
        numbers = [heads["n_head"]] if "n_head" in heads else [int(n) for n in self.gene("n_head").values if n]
        return sum(len(self.groups_of(number)) for number in numbers)

    def groups_of(self, n_head: int) -> tuple[int, ...]:
        """Values of n_kv_head that divide n_head; all values for n_head 0."""
        values = tuple(map(int, self.gene("n_kv_head").values))
        return tuple(value for value in values if n_head % value == 0)

    def floor(self, n_layer: int, percent: int) -> int:
        """Minimum number of attending layers in a stack of `n_layer` layers, for a minimum share of `percent`."""
        return MinimumShare(percent, 0).attention(n_layer)

    @property
    def _fitted(self) -> tuple[str, ...]:
        return () if self._genes["n_head"].per_layer else ("n_head",)

    def _fitting(self, name: str, values: Sequence[Value], width: int) -> tuple[int, ...]:
        """Values of n_head with an even width of heads, because rotary positions rotate pairs of features."""
        return tuple(int(number) for number in values if width % (2 * int(number)) == 0)

    @cached_property
    def deciding(self) -> str:
        """Name of the gene that decides whether a layer attends."""
        return "mixer" if "mixer" in self._genes else "n_head"

    @cached_property
    def attending_values(self) -> tuple[Value, ...]:
        """Values of the gene `deciding` that mean attention; all values of the gene if none means attention."""
        values = self._genes[self.deciding].values
        return tuple(value for value in values if value in self.can_attend) or values

    @cached_property
    def can_attend(self) -> frozenset[Value]:
        """Values of the gene `deciding` that mean attention; empty if no layer can attend."""
        return frozenset(value for value in self._genes[self.deciding].values if value not in (0, SHORT_CONV))

    @cached_property
    def inner_values(self) -> tuple[Value, ...]:
        """Values of d_inner above 0; (0,) if no value is above 0."""
        return self.inner_values_left or self.gene("d_inner").values

    @property
    def inner_values_left(self) -> tuple[Value, ...]:
        return tuple(value for value in self.gene("d_inner").values if value)

    def _whole_heads(self, width: int) -> list[dict[str, int]]:
        """Permitted values of d_head, or of n_head without d_head, if the gene has one value for the whole model."""
        if "d_head" in self._genes:
            return [{"d_head": int(value)} for value in self.values_with("d_head", width)]
        return [{"n_head": value} for value in self._widths[width]["n_head"]]

    @cached_property
    def _least_percent(self) -> int:
        return min(map(int, self._genes[MIN_ATTENTION].values)) if MIN_ATTENTION in self._genes else 0

    @cached_property
    def _layers_value(self) -> str:
        """The value of the gene `layers` that permits the most architectures."""
        values = self._genes["layers"].values if "layers" in self._genes else (PER_LAYER,)
        return PER_LAYER if PER_LAYER in values else UNIFORM
