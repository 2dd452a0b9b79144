"""Search spaces of layers: a layer is a token mixer, a feed-forward block or both, with widths per layer.

A mixer is attention with grouped queries, or a short convolution. Different stacks of layers are different
architectures, because a layer is never empty, and a layer without feed-forward is followed by a layer with a mixer
(otherwise the two would be one layer).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.base_space import Frame
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv
from edgefront.core.architectures.embeddings_and_head import LearnedPositions
from edgefront.core.architectures.formatting import layers_of
from edgefront.core.architectures.gene import (
    ATTENTION,
    MIN_ATTENTION,
    PER_LAYER,
    SHORT_CONV,
    TIED,
    UNIFORM,
    UNTIED,
    VOCABULARY_GENES,
    Value,
    in_words,
)
from edgefront.core.architectures.layer_stacks import LayerStacks
from edgefront.core.architectures.space import Genome, Loader
from edgefront.core.common.errors import SpaceError

if TYPE_CHECKING:
    from edgefront.core.architectures.operators.layered import LayerOperators


@dataclass(frozen=True)
class LayeredSpace(LayerStacks):
    """Search space of decoders with n_layer layers.

    Genes, in this order, all optional: n_layer, d_model, vocab_size, output, d_head, min_attention_percent (of the
    layers), layers; and per layer mixer, n_head, n_kv_head, window, d_inner. With d_head, n_head is per layer, and 0
    means a layer without attention. Without d_head, n_head is of the whole model and divides d_model, and `mixer`
    decides which layers attend. d_inner 0 means a layer without feed-forward, window 0 sees all tokens.
    """

    loads_in_part: ClassVar[bool] = True
    attention: Attention = field(default=Attention(n_head=1, bias="none"), kw_only=True)
    """Attention block with the values of all properties that are not genes."""
    feed_forward: FeedForward = field(default=FeedForward(d_inner=1, gated=True, bias=False), kw_only=True)
    short_conv: ShortConv = field(default=ShortConv(), kw_only=True)
    stock_attention: tuple[int, ...] | None = field(default=None, kw_only=True)
    """Layers of the stock model with attention instead of a convolution; None for all layers."""
    model: Architecture | None = field(default=None, kw_only=True)
    """Model from which the search starts, also the only reference model."""
    origin: Genome | None = field(default=None, kw_only=True, compare=False)
    """Genome of `model` before any narrowing."""

    def make_operators(self) -> LayerOperators:
        from edgefront.core.architectures.operators.layered import LayerOperators

        return LayerOperators(self)

    def architecture(self, genome: Genome) -> Architecture:
        return self.build(genome, list(self._blocks(genome)))

    def contains(self, architecture: Architecture) -> bool:
        return self.genome_of(architecture) is not None

    def genome_of(self, architecture: Architecture) -> Genome | None:
        """Genome that describes this architecture, with any values for unused genes; None if no genome describes it."""
        blocks = architecture.blocks
        layers = layers_of(block.kind for block in blocks)
        known = all(isinstance(block, Attention | ShortConv | FeedForward) for block in blocks)
        if not known or len(layers) not in self.gene("n_layer").values:
            return None
        genome: Genome = {"n_layer": len(layers), "d_model": architecture.d_model}
        vocabulary = (architecture.embedding.vocab_size, self._output_of(architecture.output.tied))
        genome |= {name: value for name, value in zip(VOCABULARY_GENES, vocabulary, strict=True) if name in self._genes}
        genome |= {name: self.gene(name).values[0] for name in (MIN_ATTENTION, "layers") if name in self._genes}
        attention = next((block for block in blocks if isinstance(block, Attention)), None)
        heads = {} if attention is None else {"d_head": architecture.d_head(attention), "n_head": attention.n_head}
        used = [self._used(*(None if at is None else blocks[at] for at in layer)) for layer in layers]
        for name in self._genes.keys() - genome.keys():
            if not self._genes[name].per_layer:
                genome[name] = heads.get(name, self._genes[name].values[0])
                continue
            first = next((values[name] for values in used if name in values), self._genes[name].values[0])
            genome[name] = [values.get(name, first) for values in used] + [first] * (self.depth - len(layers))
        for name, held in genome.items():
            if not set(held if isinstance(held, list) else [held]) <= set(self._genes[name].values):
                return None
        repaired = self.repair(genome)
        return repaired if self.architecture(repaired) == architecture else None

    @cached_property
    def seed(self) -> Genome | None:
        """Genome of the space's `model`, or the nearest genome that narrowing left; None without `model`."""
        if self.origin is None:
            return None
        deep = {name: value for name, value in self.origin.items() if isinstance(value, list)}
        fitted = {name: (value + value[-1:] * self.depth)[: self.depth] for name, value in deep.items()}
        return self.repair({**self.origin, **fitted})

    # Baselines ---------------------------------------------------------------------------------------------------

    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """Reference models: the space's `model`, else the stock model or nearest permitted shape per depth.

        Depths need not be permitted, because users compare with the unmodified stock model.
        """
        if self.model is not None:
            return (self.model,)
        genome = self._stock_genome()
        depths = range(1, self.depth + 1) if layers is None else sorted(set(layers))
        return tuple(self.build(genome, self._stock_blocks(genome, depth)) for depth in depths)

    def _stock_genome(self) -> Genome:
        stock = self.stock
        genome: Genome = {}
        width = stock.d_model if stock.d_model in self._widths else max(self._widths)
        genome["d_model"] = width
        fixed = {"vocab_size": self.frame.embedding.vocab_size, "output": self._output_of(self.frame.output.tied)}
        for name in (*VOCABULARY_GENES, "d_head"):
            if name in self._genes:
                values = self._genes[name].values
                ideal = fixed.get(name, stock.d_model // stock.n_head)
                genome[name] = ideal if ideal in values else values[0]
        by_heads = "d_head" in self._genes
        heads = max(1, width // genome["d_head"]) if by_heads else stock.n_head
        able = [n for n in self.gene("n_head").values if n] if by_heads else list(self._widths[width]["n_head"])
        genome["n_head"] = _nearest(able or [heads], heads)
        groups = max(1, genome["n_head"] * stock.n_kv_head // stock.n_head)
        genome["n_kv_head"] = _nearest(self.groups_of(genome["n_head"]) or [gcd(genome["n_head"], groups)], groups)
        inner = stock.d_inner * width // stock.d_model
        genome["d_inner"] = _nearest([n for n in self.gene("d_inner").values if n] or [inner], inner)
        return genome

    def _stock_blocks(self, genome: Genome, depth: int) -> list[Block]:
        attention = self.block(ATTENTION, {**genome, "window": 0})
        feed_forward = self.block("feed_forward", genome)
        attention_layers = range(depth) if self.stock_attention is None else self.stock_attention
        # If none of these layers attends, the final layer does.
        some = {layer for layer in attention_layers if layer < depth} or {depth - 1}
        mixers = [attention if layer in some else self.short_conv for layer in range(depth)]
        return [block for mixer in mixers for block in (mixer, feed_forward)]

    # Loaders -----------------------------------------------------------------------------------------------------

    def loadable(self, loader: Loader) -> Mapping[str, Sequence[Value]]:
        """Gene → values with which a loader loads every architecture.

        llama.cpp's `deci` has widths by layer and layers without mixer or feed-forward, but no biases, query norms and
        multipliers. llama.cpp's other architectures, and all of transformers, need a mixer, a feed-forward and the same
        widths in each layer, and no window beside short convolutions. All loaders need attention in some layer.
        """
        loads: dict[str, Sequence[Value]] = {}
        attention, feed_forward = self.attention, self.feed_forward
        plain = (
            attention.bias == "none" and not attention.qk_norm and feed_forward.gated and not feed_forward.bias
        ) and loader == "llamacpp"
        frame = self.frame
        multipliers = (frame.residual_multiplier, frame.embedding.multiplier, frame.output.logits_scaling)
        plain = plain and attention.theta is None and attention.scale is None and multipliers == (1, 1, 1)
        if self.deciding == "mixer" or not plain:
            uniform = [value for value in self.gene("layers").values if value != PER_LAYER]
            loads |= {"layers": uniform or (UNIFORM,), "d_inner": self.inner_values}
        if self.deciding == "n_head" and not plain:
            loads["n_head"] = self.attending_values
        if "window" in self._genes:
            loads["window"] = (0,)
        if MIN_ATTENTION in self._genes:
            loads[MIN_ATTENTION] = [percent for percent in self.gene(MIN_ATTENTION).options if percent]
        if "d_head" in self._genes:
            loads |= self._widths_that_load(loader)
        return {name: values for name, values in loads.items() if name in self._genes}

    def _widths_that_load(self, loader: Loader) -> dict[str, Sequence[Value]]:
        """Values of d_model and n_head that fit together, if the loader needs one n_head in all models.

        n_head is that of `model`, else the one that fits the most d_model. Learned positions exclude grouped queries.
        """
        attention, d_heads = self.attention, self.gene("d_head").values
        learned = isinstance(self.frame.positions, LearnedPositions)
        # In transformers only llama has biases in all linear layers and no query norms.
        biased = self.feed_forward.bias or (attention.bias == "all" and not attention.qk_norm)
        if not learned and not (biased and loader == "transformers"):
            return {}
        d_head = _nearest(d_heads, int(d_heads[0] if self.origin is None else self.origin["d_head"]))

        def fits(width: int, heads: int) -> bool:
            return heads * d_head == width if learned else width % heads == 0

        widths = [int(width) for width in self.gene("d_model").values]
        fitting = {
            heads: [width for width in widths if fits(width, heads)]
            for heads in map(int, self.attending_values)
            if heads
        }
        heads = max(
            fitting, key=lambda heads: (bool(fitting[heads]) and heads == attention.n_head, len(fitting[heads]))
        )
        ungrouped = {"d_head": (d_head,), "n_kv_head": (heads,)} if learned else {}
        return {"d_model": fitting[heads], "n_head": (heads,), **ungrouped}

    # Blocks ------------------------------------------------------------------------------------------------------

    def block(self, kind: str, values: Mapping[str, Any]) -> Block:
        """Builds a block of a kind from values of its genes: n_head (not 0), n_kv_head, window, d_head; or d_inner."""
        if kind == ATTENTION:
            heads = {"n_head": values["n_head"], "n_kv_head": values["n_kv_head"], "d_head": values.get("d_head")}
            window = {"window": values["window"] or None} if "window" in self._genes else {}
            return self.attention.model_copy(update={**heads, **window})
        if kind == SHORT_CONV:
            return self.short_conv
        return self.feed_forward.model_copy(update={"d_inner": values["d_inner"]})

    def _blocks(self, genome: Genome) -> Iterator[Block]:
        for layer in range(genome["n_layer"]):
            values = {name: held[layer] if isinstance(held, list) else held for name, held in genome.items()}
            if values[self.deciding] in self.can_attend:
                yield self.block(ATTENTION, values)
            elif self.deciding == "mixer":
                yield self.short_conv
            if values["d_inner"]:
                yield self.block("feed_forward", values)

    # Narrowing ---------------------------------------------------------------------------------------------------

    def _consistent(self) -> LayeredSpace:
        space = self._with_groups()
        if space.deciding == "n_head" and not space.inner_values_left:
            # Without feed-forward blocks every layer attends.
            space = space._keeping({"n_head": {int(n) for n in space.gene("n_head").values if n}})
            if not space.gene("n_head").values:
                raise SpaceError(
                    f"no architecture is left in {self.name}, because layers have neither attention nor feed-forward",
                    field="d_inner",
                    value=[0],
                    allowed="a d_inner or an n_head above 0",
                )
        percents = [int(value) for value in space.gene(MIN_ATTENTION).values] if MIN_ATTENTION in space._genes else [0]
        if not space.can_attend:
            if 0 not in percents:
                raise SpaceError(
                    f"no architecture is left in {self.name}: {MIN_ATTENTION} is {in_words(percents)}, but no layer "
                    "attends",
                    field=MIN_ATTENTION,
                    value=percents,
                    allowed="0, or layers that attend",
                )
            space = space._keeping({MIN_ATTENTION: {0}})
        return super(LayeredSpace, space)._consistent()._with_groups()

    def _with_groups(self) -> LayeredSpace:
        """Returns the space without any n_head that no n_kv_head divides, or n_kv_head that divides no n_head."""
        groups = [int(value) for value in self.gene("n_kv_head").values]
        heads = [int(value) for value in self.gene("n_head").values]
        fitting = {number for number in heads if any(number % group == 0 for group in groups)}
        if not fitting:
            raise SpaceError(
                f"no architecture is left in {self.name}: no n_kv_head of {in_words(groups)} divides an n_head of "
                f"{in_words(heads)}",
                field="n_kv_head",
                value=groups,
                allowed="a divisor of n_head",
            )
        used = {group for group in groups if any(number and number % group == 0 for number in fitting)}
        return self._keeping({"n_head": fitting, "n_kv_head": used or set(groups)})

    # Derived from the genes --------------------------------------------------------------------------------------

    def _frame_of(self, genome: Genome) -> Frame:
        frame = self.frame
        vocab_size = genome.get("vocab_size", frame.embedding.vocab_size)
        tied = genome.get("output", self._output_of(frame.output.tied)) == TIED
        return replace(
            frame,
            embedding=frame.embedding.model_copy(update={"vocab_size": vocab_size}),
            output=frame.output.model_copy(update={"tied": tied}),
        )

    def _output_of(self, tied: bool) -> str:
        return TIED if tied else UNTIED

    def _used(self, mixer: Block | None, feed_forward: Block | None) -> dict[str, Value]:
        """Gene → value, for the genes that describe one layer of these two blocks; None means no block."""
        values: dict[str, Value] = {"d_inner": feed_forward.d_inner if isinstance(feed_forward, FeedForward) else 0}
        if self.deciding == "mixer":
            values["mixer"] = "none" if mixer is None else mixer.kind
        elif not isinstance(mixer, Attention):
            values["n_head"] = 0 if mixer is None else -1  # -1: not a value of the gene
        if isinstance(mixer, Attention):
            values |= {"n_head": mixer.n_head, "n_kv_head": mixer.kv_heads, "window": mixer.window or 0}
        return values


def _nearest(values: Sequence[Value], ideal: int) -> int:
    return min(map(int, values), key=lambda value: (abs(value - ideal), value))
