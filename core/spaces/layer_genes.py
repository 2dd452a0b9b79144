"""Values and names of the genes that spaces of layers (`core.spaces.layers`) have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import comb

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.gene import Gene, in_words

# Layers whose widths follow from d_model as in the models that quality laws know (`core.quality.study.gemstones`):
# attention as wide as d_model, half as many heads of keys and values, an inner width of 4·d_model.

Widths = dict[tuple[int, int], dict[str, int]]
"""(d_model, d_head) → gene → width."""
_RULES = {
    "d_model": "a multiple of 2·d_head",
    "n_head": "d_model / d_head",
    "n_kv_head": "n_head / 2",
    "d_inner": "4·d_model",
}


def proportional_widths(genes: Mapping[str, Gene]) -> Widths:
    """The widths of proportional layers, where the genes have these values; nothing where `layers` is not among them
    or cannot be proportional.
    """
    if "layers" not in genes or PROPORTIONAL not in genes["layers"].values:
        return {}
    return {
        pair: widths
        for pair, widths in _of_whole_numbers(genes).items()
        if all(widths[name] in genes[name].values for name in UNIFORM_GENES)
    }


def not_proportional(space: str, genes: Mapping[str, Gene]) -> SpaceError:
    """The refusal of genes that leave no proportional layers; it names the first one that has none of their values."""
    left = list(_of_whole_numbers(genes).values())
    name, allowed = "d_model", _RULES["d_model"]
    for following in UNIFORM_GENES:
        if not left:
            break
        name, allowed = following, in_words(sorted({widths[following] for widths in left}))
        left = [widths for widths in left if widths[following] in genes[following].values]
    values = list(genes[name].values)
    return SpaceError(
        f"no architecture is left in {space}: layers are {PROPORTIONAL}, so {name} is {_RULES[name]}, and not "
        f"{in_words(values)}",
        field=name,
        value=values,
        allowed=allowed,
    )


def _of_whole_numbers(genes: Mapping[str, Gene]) -> Widths:
    """Those that are whole numbers, whether the genes have them or not."""
    d_models, d_heads = ([int(value) for value in genes[name].values] for name in ("d_model", "d_head"))
    return {
        (d_model, d_head): {
            "n_head": d_model // d_head,
            "n_kv_head": d_model // (2 * d_head),
            "d_inner": 4 * d_model,
        }
        for d_model, d_head in product(d_models, d_heads)
        if d_model % (2 * d_head) == 0
    }


# How many stacks of layers there are: each layer with attention, a short convolution or neither, and feed-forward.
#
# A layer is never empty, and a layer without feed-forward is followed by one with a mixer (`core.spaces.layers`).


@dataclass(frozen=True)
class LayerChoices:
    """What a layer may be, in numbers."""

    depth: int
    """Most layers of a stack."""
    inner: int
    """Widths of feed-forward."""
    lacking: bool
    """Whether a layer may have no feed-forward."""
    windows: int
    """Windows that attention may have."""
    attention: bool
    convolution: bool
    neither: bool
    """Whether a layer may have attention, a short convolution, no mixer."""
    alike: bool
    """Whether all layers have the widths of the first."""
    by_mixer: bool
    """Whether each layer chooses its mixer also where they are alike."""
    _tables: dict[int, list[tuple[dict[int, int], dict[int, int]]]] = field(default_factory=dict, compare=False)

    def count(self, n_layer: int, attentions: int, least: int) -> int:
        """Stacks of so many layers, of which at least `least` attend, each in one of `attentions` ways (times its
        windows).
        """
        attention = self.attention and attentions > 0
        if not self.alike:
            mixed, plain = self._stacks(attentions * self.windows * attention)[n_layer]
            return sum(number for part in (mixed, plain) for count, number in part.items() if count >= least)
        if not self.by_mixer:
            # All attend, or none does.
            all_attend = attentions * self.windows**n_layer * (self.inner + self.lacking) if attention else 0
            return all_attend + (self.inner if self.neither and not least else 0)
        total = 0
        for count in range(least, n_layer + 1):
            if (count and not attention) or (count < n_layer and not self.convolution):
                continue
            total += comb(n_layer, count) * self.windows**count * (attentions if count else 1)
        return total * (self.inner + self.lacking)

    def _stacks(self, ways: int) -> list[tuple[dict[int, int], dict[int, int]]]:
        """For each number of layers, by how many of them attend (each in so many ways), the number of stacks whose
        first layer has a mixer, and of those whose first has none."""
        if ways in self._tables:
            return self._tables[ways]
        tables: list[tuple[dict[int, int], dict[int, int]]] = [({0: 1}, {0: 0})]
        for _ in range(self.depth):
            mixed, plain = tables[-1]
            new_mixed: dict[int, int] = {}
            new_plain: dict[int, int] = {}
            for count in {*mixed, *plain}:
                begun, lonely = mixed.get(count, 0), plain.get(count, 0)
                # After a layer without feed-forward stands one with a mixer, or nothing.
                whole = self.inner * (begun + lonely) + self.lacking * begun
                if ways:
                    new_mixed[count + 1] = new_mixed.get(count + 1, 0) + ways * whole
                if self.convolution:
                    new_mixed[count] = new_mixed.get(count, 0) + whole
                if self.neither:
                    new_plain[count] = new_plain.get(count, 0) + self.inner * (begun + lonely)
            tables.append((new_mixed, new_plain))
        self._tables[ways] = tables
        return tables


ATTENTION, SHORT_CONV = "attention", "short_conv"
"""Values of the gene `mixer`."""
PER_LAYER, UNIFORM, PROPORTIONAL = "own", "alike", "proportional"
"""Values of the gene `layers`: each layer has its own widths, all have those of the first, or all have every part and
the widths that follow from d_model. Each contains the next.
"""
TIED, UNTIED = "tied", "untied"
"""Values of the gene `output`."""
ENDS = ("vocab_size", "output")
"""Genes of what is no block, beside d_model."""
UNIFORM_GENES = ("n_head", "n_kv_head", "d_inner")
"""Genes that are the same in all layers unless `layers` says that each has its own."""
