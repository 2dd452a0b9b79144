"""How many stacks of layers there are: each layer with attention, a short convolution or neither, and feed-forward.

A layer is never empty, and a layer without feed-forward is followed by one with a mixer (`core.spaces.layers`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb


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
