"""Rules for combining positions, blocks, output and encoder in an architecture.

`docs/architecture.md` gives the reasons. `core.architectures.block` and `core.architectures.embeddings_and_head` check
each section alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from edgefront.core.architectures.block import Attention, Biases, Block, FeedForward, Srupp
from edgefront.core.architectures.embeddings_and_head import (
    Embedding,
    Output,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from edgefront.core.common.errors import ArchitectureError


class Parts(Protocol):
    """Properties of `core.architectures.architecture.Architecture` that the rules read."""

    @property
    def d_model(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def positions(self) -> Positions: ...
    @property
    def context_length(self) -> int | None: ...
    @property
    def embedding(self) -> Embedding: ...
    @property
    def blocks(self) -> tuple[Block, ...]: ...
    @property
    def output(self) -> Output: ...
    @property
    def source(self) -> Parts | None: ...
    @property
    def d_embed(self) -> int: ...
    @property
    def max_length(self) -> int | None: ...
    @property
    def norms_input(self) -> bool: ...
    @property
    def output_bias(self) -> bool: ...
    def d_head(self, block: Attention) -> int: ...
    def rotary(self, block: Attention) -> RotaryPositions | None: ...
    def attention_bias(self, block: Attention) -> Biases: ...


def _fault(field: str, reason: str, value: object, allowed: str) -> ArchitectureError:
    return ArchitectureError(f"{field} {reason}", field=field, value=value, allowed=allowed)


def faults(model: Parts) -> Iterator[ArchitectureError]:
    """Yields an error for each invalid combination of sections that are valid alone, in the order of the rules."""
    yield from _head_faults(model)
    yield from _parallel_faults(model)
    if model.context_length is not None and model.max_length is not None:
        yield _fault(
            "context_length",
            f"{model.context_length} needs positions that are not learned, because learned positions have a length",
            model.context_length,
            "omit it, or other positions",
        )
    yield from _relative_faults(model)
    yield from _rotary_faults(model)
    yield from _source_faults(model)
    embedding = model.embedding
    if model.d_embed // embedding.div ** len(embedding.cutoffs) < 1:
        yield _fault(
            "embedding.div",
            f"{embedding.div} leaves no width for the final one of {len(embedding.cutoffs) + 1} clusters "
            f"of d_embed {model.d_embed}",
            embedding.div,
            "a factor whose power by the number of cutoffs is at most d_embed",
        )
    if model.output.kind in ("pooled", "classes") and model.causal:
        yield _fault(
            "output.kind",
            f"{model.output.kind} needs causal false, because it reads the first position, which would see only itself",
            model.output.kind,
            "an output over tokens or none, or causal false",
        )
    if float(model.output.logits_scaling) != 1 and (embedding.cutoffs or model.output_bias):
        yield _fault(
            "output.logits_scaling",
            f"{model.output.logits_scaling} needs scores without output.bias and embedding.cutoffs",
            model.output.logits_scaling,
            "omit it, or an output without bias and cutoffs",
        )
    if model.output.kind == "masked_tokens" and embedding.cutoffs:
        yield _fault(
            "output.kind",
            "masked_tokens needs a plain embedding, without cutoffs",
            model.output.kind,
            "tokens, or no embedding.cutoffs",
        )


def _head_faults(model: Parts) -> Iterator[ArchitectureError]:
    for index, block in enumerate(model.blocks):
        if isinstance(block, Attention) and block.d_head is None and model.d_model % block.n_head:
            yield _fault(
                f"blocks.{index}.n_head",
                f"must divide d_model {model.d_model}, but {block.n_head} does not",
                block.n_head,
                f"a divisor of {model.d_model}, or any with d_head",
            )
        if isinstance(block, Attention) and block.window is not None and not model.causal:
            yield _fault(
                f"blocks.{index}.window",
                "needs causal true, because it limits the keys before a token",
                block.window,
                "omit it, or causal true",
            )


def _parallel_faults(model: Parts) -> Iterator[ArchitectureError]:
    before: Block | None = None
    for index, block in enumerate(model.blocks):
        if isinstance(block, FeedForward) and block.parallel is not None:
            needs = "" if isinstance(before, Attention) else "an attention as the preceding block"
            needs = needs or ("" if model.norms_input else "norm pre or both")
            if needs:
                yield _fault(
                    f"blocks.{index}.parallel",
                    f"{block.parallel} needs {needs}, because it has the input of an attention",
                    block.parallel,
                    f"omit it, or {needs}",
                )
        before = block


def _relative_faults(model: Parts) -> Iterator[ArchitectureError]:
    if isinstance(model.positions, RelativePositions | SinusoidalPositions) and model.d_model % 2:
        yield _fault(
            "d_model",
            f"must be even with {model.positions.kind} positions, half sines and half cosines, not {model.d_model}",
            model.d_model,
            "an even number",
        )
    if not isinstance(model.positions, RelativePositions):
        return
    if not model.causal:
        yield _fault(
            "positions.kind",
            "relative needs causal true, because it has no distances to later tokens",
            "relative",
            "learned, sinusoidal or none",
        )
    attention = [(index, block) for index, block in enumerate(model.blocks) if isinstance(block, Attention)]
    for index, block in attention:
        first = attention[0][1]
        if model.positions.shared and (block.n_head, model.d_head(block)) != (first.n_head, model.d_head(first)):
            yield _fault(
                f"blocks.{index}.n_head",
                f"and d_head must be {first.n_head} and {model.d_head(first)} as in the first "
                "attention block, because positions.shared gives all blocks one u and v",
                block.n_head,
                f"{first.n_head} heads of {model.d_head(first)}, or positions.shared false",
            )
        for field, value, default in (
            ("n_kv_head", block.kv_heads, block.n_head),
            ("qk_norm", block.qk_norm, False),
            ("scale", block.scale, None),
            ("bias", model.attention_bias(block), "none"),
        ):
            if value != default:
                yield _fault(
                    f"blocks.{index}.{field}",
                    "cannot be combined with positions.kind relative: Transformer-XL's attention "
                    "has no grouped queries, query norms, own scale or biases",
                    value,
                    "omit it, or other positions",
                )


def _rotary_faults(model: Parts) -> Iterator[ArchitectureError]:
    for index, block in enumerate(model.blocks):
        if not isinstance(block, Attention):
            continue
        if block.theta is not None and model.rotary(block) is None:
            yield _fault(
                f"blocks.{index}.theta",
                "needs rotary positions in this block: positions.kind rotary, and not rope false",
                block.theta,
                "omit it, or rotary positions",
            )
        if not isinstance(model.positions, RotaryPositions):
            if not block.rope:
                yield _fault(
                    f"blocks.{index}.rope",
                    f"false needs positions.kind rotary, not {model.positions.kind}",
                    False,
                    "omit it, or rotary positions",
                )
            continue
        rotary = model.rotary(block)
        if rotary is None:
            continue
        d_head, width = model.d_head(block), rotary.width(model.d_head(block))
        if width < 2 or width % 2:
            field = "d_head" if block.d_head else "n_head"
            yield _fault(
                f"blocks.{index}.{field}",
                f"gives heads of {d_head} features, of which positions.percent "
                f"{rotary.percent} rotates {width}; features rotate in pairs",
                block.d_head or block.n_head,
                "heads with an even number of rotated features, at least 2",
            )


def _source_faults(model: Parts) -> Iterator[ArchitectureError]:
    readers = [
        (index, block)
        for index, block in enumerate(model.blocks)
        if isinstance(block, Attention | Srupp) and block.attends in ("source", "both")
    ]
    if model.source is None:
        for index, block in readers:
            yield _fault(
                f"blocks.{index}.attends",
                "needs a source, which this model does not have",
                block.attends,
                "self, or a source architecture",
            )
        return
    rules: tuple[tuple[str, Any, Any, bool], ...] = (
        ("source.d_model", model.source.d_model, model.d_model, model.source.d_model == model.d_model),
        ("source.output.kind", model.source.output.kind, "none", model.source.output.kind == "none"),
        ("causal", model.causal, True, model.causal),
    )
    if not readers:
        yield ArchitectureError(
            "source: no block of this model attends to it",
            field="source",
            value="an architecture",
            allowed="omit it, or give a block attends source or both",
        )
    for field, value, allowed, holds in rules:
        if not holds:
            yield _fault(field, f"must be {allowed} in a model with a source, not {value}", value, str(allowed))
    if isinstance(model.positions, RelativePositions | RotaryPositions):
        for index, block in readers:
            if isinstance(block, Attention):
                yield _fault(
                    f"blocks.{index}.attends",
                    f"needs other positions than {model.positions.kind}, because tokens of a source have no distance",
                    block.attends,
                    "self, or other positions",
                )
