"""Genes (searched properties) of a search space: names, permitted values, and narrowing to fewer values by a job.

This module also defines the choices of a block in a stack, and the minimum shares of blocks that mix tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

from edgefront.core.architectures.block import Attention, Block, FeedForward, Srupp
from edgefront.core.common.errors import SpaceError
from edgefront.core.common.validation import short

Value = int | str
_RANGE_KEYS = frozenset({"min", "max", "step"})


@dataclass(frozen=True)
class Gene:
    """One searched property of an architecture. The search samples from `values`; a job may choose from `options`.

    `values` and `options` differ for a gene that is fixed by default, such as the adaptive factor of the LTS searches.
    Values are integers in rising order, or words. A `per_layer` gene has one value in each layer.
    """

    name: str
    values: tuple[Value, ...]
    options: tuple[Value, ...] = ()
    per_layer: bool = False

    def __post_init__(self) -> None:
        if not self.options:
            object.__setattr__(self, "options", self.values)

    def narrowed(self, narrowing: Any) -> Gene:
        """Narrows the gene to one value, a list of values, or a range {min, max, step} (each of the three is optional).

        Raises `SpaceError` if a value is not among `options`, or if no value is left.
        """
        if isinstance(narrowing, Mapping):
            values = self._range(narrowing)
        else:
            values = tuple(narrowing) if isinstance(narrowing, list | tuple) else (narrowing,)
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int | str) or value not in self.options:
                    raise self._error(f"{self.name} cannot be {short(value)} in this space", value)
        if not values:
            raise self._error(f"narrowing {self.name} to {short(narrowing)} leaves no value", narrowing)
        return self.keeping(values)

    def keeping(self, values: Collection[Value]) -> Gene:
        """Returns the gene with only these `values`, in the order of `options`."""
        kept = set(values)
        chosen = tuple(option for option in self.options if option in kept)
        return Gene(self.name, chosen, chosen, self.per_layer)

    def describe(self) -> dict[str, Any]:
        """Describes the gene as JSON: {min, max, step} or {values}, whether per layer, and `options` if they differ."""
        described: dict[str, Any] = _spread(self.values)
        if self.options != self.values:
            described["options"] = list(self.options)
        return {**described, "per_layer": self.per_layer}

    def _range(self, bounds: Mapping[str, Any]) -> tuple[Value, ...]:
        unknown = sorted(str(key) for key in set(bounds) - _RANGE_KEYS)
        if unknown:
            raise self._error(
                f"a range of {self.name} must have min, max and step, not {short(', '.join(unknown))}", dict(bounds)
            )
        for key, value in bounds.items():
            if isinstance(value, bool) or not isinstance(value, int) or (key == "step" and value < 1):
                kind = "a positive integer" if key == "step" else "an integer"
                raise self._error(f"{key} of {self.name} must be {kind}, not {short(value)}", value, key)
        numbers = [option for option in self.options if isinstance(option, int)]
        if not numbers:
            raise self._error(
                f"{self.name} must be a list of values, because its values are words without a range", dict(bounds)
            )
        low, high = bounds.get("min", numbers[0]), bounds.get("max", numbers[-1])
        inside = [number for number in numbers if low <= number <= high]
        start = low if low in numbers else (inside[0] if inside else low)
        step = bounds.get("step", 1)
        if step != 1 and start + step <= high and start + step not in numbers:
            raise self._error(f"{self.name}.step {step} leaves its values after {start}", step, "step")
        return tuple(number for number in inside if (number - start) % step == 0)

    def _error(self, detail: str, value: Any, key: str = "") -> SpaceError:
        allowed = in_words(self.options)
        field = f"{self.name}.{key}" if key else self.name
        return SpaceError(f"{detail}; allowed: {allowed}", field=field, value=value, allowed=allowed)


def in_words(values: Sequence[Value]) -> str:
    """Formats values for an error message: `128 to 1024 in steps of 64`, or a list."""
    spread = _spread(values)
    if "min" in spread and spread["step"] == 1:
        return f"{spread['min']} to {spread['max']}"
    if "min" in spread:
        return f"{spread['min']} to {spread['max']} in steps of {spread['step']}"
    return ", ".join(str(value) for value in values)


def _spread(values: Sequence[Value]) -> dict[str, Any]:
    if len(values) > 3 and isinstance(values[0], int) and isinstance(values[1], int):
        step = values[1] - values[0]
        if list(values) == list(range(values[0], values[0] + step * len(values), step)):
            return {"min": values[0], "max": values[-1], "step": step}
    return {"values": list(values)}


def steps(low: int, high: int, step: int) -> tuple[int, ...]:
    """Integers from `low` to `high` in steps of `step`, both ends included."""
    return tuple(range(low, high + 1, step))


IDENTITY = "identity"
MIN_ATTENTION, MIN_MIXING = "min_attention_percent", "min_mixing_percent"
"""Genes of minimum shares; a space without such a gene has no minimum."""

# Genes of the spaces of layers (`core.architectures.layers`).
ATTENTION, SHORT_CONV = "attention", "short_conv"
"""Values of the gene `mixer`: the token mixer of a layer."""
PER_LAYER, UNIFORM = "own", "alike"
"""Values of the gene `layers`: each layer has its own widths, or all layers have the widths of the first."""
TIED, UNTIED = "tied", "untied"
"""Values of the gene `output`: whether the output layer shares the embedding's matrix."""
VOCABULARY_GENES = ("vocab_size", "output")
"""Genes of embedding and output head, except d_model."""
UNIFORM_GENES = ("n_head", "n_kv_head", "d_inner")
"""Genes that have one value for all layers unless `layers` is `PER_LAYER`."""

GENES: Mapping[str, tuple[str, ...]] = {
    "attention": ("n_head",),
    "feed_forward": ("d_inner",),
    "srupp": ("attn_ratio", "attends"),
    IDENTITY: (),
}
"""Kind of block → genes of such a block. attn_ratio is d_model / d_attn."""

WIDTHS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name in names if name != "attends") for kind, names in GENES.items()
}
"""Kind of block → genes that are widths, which must fit d_model."""


def block_of(kind: str, width: int, values: Mapping[str, Any]) -> Block:
    """Builds a block of a kind other than identity, in a model of this width."""
    if kind == "attention":
        return Attention(n_head=values["n_head"])
    if kind == "feed_forward":
        return FeedForward(d_inner=values["d_inner"])
    return Srupp(d_attn=width // values["attn_ratio"], attends=values["attends"])


def genes_of(block: Block, width: int) -> dict[str, Any] | None:
    """Gene → value, for the genes that describe a block of this kind; None for kinds that no space has.

    The block may have other properties too, such as a head width. To check, build a block of these values and compare.
    """
    if isinstance(block, Attention):
        return {"n_head": block.n_head}
    if isinstance(block, FeedForward):
        return {"d_inner": block.d_inner}
    if isinstance(block, Srupp):
        return {"attn_ratio": width // block.d_attn, "attends": block.attends}
    return None


@dataclass(frozen=True)
class Choice:
    """A kind of block (with the value of `attends` for SRU++), and how such a block sees other tokens (`sees`).

    - attention: by attention
    - recurrent: only earlier tokens, by the recurrence
    - pointwise: not at all
    """

    kind: str
    sees: Literal["attention", "recurrent", "pointwise"]
    attends: Value | None = None


def choices(kinds: Sequence[Value], attends: Sequence[Value]) -> tuple[Choice, ...]:
    """All choices for a block of these kinds, without identity; SRU++ has one choice for each value in `attends`."""
    expanded = []
    for kind in map(str, kinds):
        if kind == "srupp":
            expanded += [Choice(kind, "recurrent" if attend == "none" else "attention", attend) for attend in attends]
        elif kind != IDENTITY:
            expanded.append(Choice(kind, "attention" if kind == "attention" else "pointwise"))
    return tuple(expanded)


@dataclass(frozen=True)
class MinimumShare:
    """Minimum percentages of a stack's blocks that attend, and of blocks that mix (see other tokens at all).

    Recurrences see other tokens, feed-forward blocks do not. A share above 0 means at least one block. Shares are
    rounded like PAR's n = layers / 5: 20 % are 6 of 32, 5 of 24, 7 of 36.
    """

    attention_percent: int
    mixing_percent: int

    def attention(self, blocks: int) -> int:
        """Minimum number of blocks that attend, in a stack of `blocks` blocks."""
        return _share(blocks, self.attention_percent)

    def mixing(self, blocks: int) -> int:
        """Minimum number of blocks that see other tokens, in a stack of `blocks` blocks."""
        return _share(blocks, self.mixing_percent)

    def holds(self, blocks: int, attention: int, mixing: int) -> bool:
        """Whether a stack of `blocks` blocks may have `attention` blocks that attend and `mixing` blocks that mix."""
        return blocks > 0 and attention >= self.attention(blocks) and mixing >= self.mixing(blocks)

    def count(self, blocks: int, *, attention: int, recurrent: int, pointwise: int) -> int:
        """Number of permitted stacks of `blocks` blocks, given the number of choices of each type for a block.

        For m blocks that see other tokens, a of which attend: Σ over m of C(blocks, m) · pointwise^(blocks - m) · Σ
        over a of C(m, a) · attention^a · recurrent^(m - a).
        """
        least = self.attention(blocks)
        total = 0
        for mixing in range(max(least, self.mixing(blocks)), blocks + 1):
            too_few = sum(comb(mixing, few) * attention**few * recurrent ** (mixing - few) for few in range(least))
            seeing = (attention + recurrent) ** mixing - too_few
            total += comb(blocks, mixing) * pointwise ** (blocks - mixing) * seeing
        return total


def _share(blocks: int, percent: int) -> int:
    return max(1, (blocks * percent + 50) // 100) if percent else 0
