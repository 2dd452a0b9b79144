"""The architecture description, version 1: a model without its weights.

An `Architecture` is immutable and identified by the digest of its canonical JSON. Descriptions are validated here and
in the parts (`core.spaces.block`, `core.spaces.embeddings_and_head`); rules of a search space (such as d_inner ≥
2·d_model) are in the space. The specification is `docs/architecture.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from edgefront.core.canonical import canonical_json, digest
from edgefront.core.errors import ArchitectureError, InvalidInput
from edgefront.core.spaces.block import (
    BLOCK_KINDS,
    MAX_BLOCKS,
    Attention,
    Biases,
    Block,
    FeedForward,
    Part,
    Srupp,
    Width,
)
from edgefront.core.spaces.embeddings_and_head import (
    MAX_CONTEXT,
    POSITION_KINDS,
    AlibiPositions,
    Embedding,
    LearnedPositions,
    Output,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from edgefront.core.spaces.numbers import Number, NumberText
from edgefront.core.spaces.pattern import expand
from edgefront.core.spaces.versions import upgraded
from edgefront.core.validation import invalid_input, short

VERSION = 1
MAX_LAYER_PAIRS = MAX_BLOCKS // 2
"""Layers of a mixer of tokens and a feed_forward each."""

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
NormKind = Literal["layer", "rms"]
NormPlace = Literal["pre", "post", "branch", "both"]

_BLOCK: TypeAdapter[Block] = TypeAdapter(Block)


class Architecture(Part):
    """One model. Equal descriptions have equal digests, whatever defaults were spelled out.

    Raises `ArchitectureError` that names the field, through `Architecture.parse`.
    """

    version: Literal[1] = 1
    d_model: Width
    causal: bool = True
    positions: Positions = LearnedPositions()
    context_length: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    """Tokens in a sequence that it was made for, where its positions have no end; if absent, 4096, or what stretched
    positions reach. It changes no score, but every file of the model states it."""
    norm: NormPlace = "pre"
    """Where blocks have their norms. pre: x + f(norm(x)); post: norm(x + f(x)); branch: x + norm(f(x)), as in OLMo 2
    (OLMo team 2024, arXiv 2501.00656, §3.2); both: x + norm(f(norm(x))), as in Gemma 2 and 3. Blocks of SRU and SRU++
    have none there."""
    norm_kind: NormKind = "layer"
    """Layer norm (Ba et al. 2016), or RMS norm (Zhang & Sennrich 2019). That inside SRU++ is a layer norm."""
    final_norm: bool | None = None
    """A norm after the last block; if absent, there is one unless norm is post."""
    norm_eps: NumberText = "1e-5"
    residual_multiplier: Number = 1
    """What attention, feed-forward and short convolutions add to the stream is multiplied with, after its norm where
    there is one (Granite)."""
    activation: Activation = "gelu_tanh"
    embedding: Embedding
    blocks: Annotated[tuple[Block, ...], Field(min_length=1, max_length=MAX_BLOCKS, strict=False, fail_fast=True)]
    output: Output = Output()
    source: Architecture | None = None
    """The encoder of a translation model, whose states the blocks may attend to."""

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, value: Any) -> Any:
        """Checked before the parts are parsed, so that nesting is bounded."""
        source = value.get("source") if isinstance(value, Mapping) else None
        nested = source.get("source") if isinstance(source, Mapping) else getattr(source, "source", None)
        if nested is not None:
            raise ArchitectureError(
                "source.source: a source cannot have a source",
                field="source.source",
                value="an architecture",
                allowed="omit it",
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _pattern_expanded(cls, value: Any) -> Any:
        """`blocks` may be written {"pattern": "(sfff)x6(f)x8", "s": {…}, "f": {…}}; i is identity unless given."""
        blocks = value.get("blocks", ()) if isinstance(value, Mapping) else ()
        if isinstance(blocks, Mapping):
            return {**value, "blocks": _expanded(blocks)}
        if not isinstance(blocks, list | tuple):
            allowed = 'a list, or an object with a pattern and its letters: {"pattern": "(sf)x2", "s": {…}, "f": {…}}'
            raise ArchitectureError(
                f"blocks: must be {allowed}, not {short(blocks)}", field="blocks", value=blocks, allowed=allowed
            )
        return value

    @model_validator(mode="after")
    def _parts_agree(self) -> Architecture:
        for fault in self._faults():
            raise fault
        return self

    @classmethod
    def parse(cls, value: Architecture | Mapping[str, Any] | str | bytes) -> Architecture:
        """An architecture from a mapping or JSON text; `ArchitectureError` names what is wrong with it.

        Descriptions of version 0 are read as the same model in this version.
        """
        if isinstance(value, Architecture):
            return value
        if isinstance(value, str | bytes):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise ArchitectureError(f"not JSON: {error}", allowed="a JSON object") from None
            except RecursionError:
                raise ArchitectureError("this JSON is nested too deeply", allowed="a JSON object") from None
        if not isinstance(value, Mapping):
            raise ArchitectureError(
                f"an architecture is a JSON object, not {type(value).__name__}", value=value, allowed="a JSON object"
            )
        version = value.get("version", VERSION)
        if type(version) is not int or version not in (0, VERSION):
            raise ArchitectureError(
                f"version: this release reads versions 0 and {VERSION}, not {short(version)}",
                field="version",
                value=version,
                allowed=f"0 or {VERSION}",
            )
        try:
            return cls.model_validate(upgraded(value) if version == 0 else dict(value))
        except ValidationError as error:
            fault = invalid_input(error, ArchitectureError, tags=(*BLOCK_KINDS, *POSITION_KINDS))
            raise _by_letter(fault, value) from None

    @property
    def d_embed(self) -> int:
        """Width of the first (widest) embedding cluster."""
        return self.embedding.d_embed or self.d_model

    @property
    def max_length(self) -> int | None:
        """Most tokens that it can see in one sequence, past and present; None without a bound."""
        return self.positions.length if isinstance(self.positions, LearnedPositions) else None

    @property
    def stated_length(self) -> int:
        """The context that files of other formats state."""
        return self.max_length or self.context_length or self._default_context

    @property
    def _default_context(self) -> int:
        scaling = self.positions.scaling if isinstance(self.positions, RotaryPositions) else None
        return 4096 if scaling is None else scaling.reach

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last block."""
        return self._default_final_norm if self.final_norm is None else self.final_norm

    @property
    def _default_final_norm(self) -> bool:
        return self.norm != "post"

    @property
    def norms_input(self) -> bool:
        """Whether attention, feed-forward and short convolutions read the stream through a norm."""
        return self.norm in ("pre", "both")

    @property
    def norms_update(self) -> bool:
        """Whether there is a norm of what they add to the stream."""
        return self.norm in ("branch", "both")

    @property
    def scaled_embedding(self) -> bool:
        """Whether the token embedding is multiplied by √d_model."""
        return bool(self.embedding.cutoffs) if self.embedding.scaled is None else self.embedding.scaled

    @property
    def embedding_factor(self) -> float:
        """What the embedding of tokens is multiplied with."""
        return float(self.embedding.multiplier) * (math.sqrt(self.d_model) if self.scaled_embedding else 1.0)

    @property
    def output_bias(self) -> bool:
        """Whether the output layer has a bias for each token."""
        if self.output.kind not in ("tokens", "masked_tokens"):
            return False
        default = bool(self.embedding.cutoffs) or self.output.kind == "masked_tokens"
        return default if self.output.bias is None else self.output.bias

    def d_head(self, block: Attention) -> int:
        """Width of one head of an attention block of this model."""
        return block.d_head or self.d_model // block.n_head

    def attention_scale(self, block: Attention) -> float:
        """What the products of queries and keys in an attention block of this model are multiplied with."""
        return 1 / math.sqrt(self.d_head(block)) if block.scale is None else float(block.scale)

    def rotary(self, block: Attention) -> RotaryPositions | None:
        """What turns the queries and keys of an attention block of this model."""
        if not isinstance(self.positions, RotaryPositions) or not block.rope:
            return None
        if block.theta is None:
            return self.positions
        return self.positions.model_copy(update={"theta": block.theta, "scaling": None})

    def attention_bias(self, block: Attention) -> Biases:
        """Which linear layers of an attention block of this model have a bias."""
        return self._default_bias if block.bias is None else block.bias

    @property
    def _default_bias(self) -> Biases:
        return "none" if isinstance(self.positions, RelativePositions) else "all"

    def owner(self, index: int) -> int:
        """Number of the block whose weights the block of this number has: its own unless it shares."""
        return index - (getattr(self.blocks[index], "shares", None) or 0)

    @property
    def has_shared_blocks(self) -> bool:
        """Whether a block has the weights of another."""
        return any(self.owner(index) != index for index in range(len(self.blocks)))

    @cached_property
    def unshared(self) -> Architecture:
        """The model that computes the same with weights of its own in every block: what formats without sharing hold.

        Itself where no block shares.
        """
        if not self.has_shared_blocks:
            return self
        canonical = self.canonical
        blocks = [{name: block[name] for name in block if name != "shares"} for block in canonical["blocks"]]
        return Architecture.parse({**canonical, "blocks": blocks})

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """The description with every field at its default left out, except version and kinds."""
        value = self.model_dump(mode="json", exclude_defaults=True)
        value["version"] = self.version
        for dumped, block in zip(value["blocks"], self.blocks, strict=True):
            dumped["kind"] = block.kind
            if isinstance(block, Attention):
                for field, default in (
                    ("d_head", self.d_model / block.n_head),
                    ("n_kv_head", block.n_head),
                    ("bias", self._default_bias),
                ):
                    if dumped.get(field) == default:
                        del dumped[field]
                if self.attention_scale(block) == 1 / math.sqrt(self.d_head(block)):
                    dumped.pop("scale", None)
                if self.rotary(block) == self.positions:
                    dumped.pop("theta", None)
        if "positions" in value:
            value["positions"]["kind"] = self.positions.kind
        if "output" in value:
            value["output"]["kind"] = self.output.kind
        embedding, output = value["embedding"], value.get("output", {})
        for part, field, default in (
            (embedding, "d_embed", self.d_model),
            (embedding, "scaled", bool(self.embedding.cutoffs)),
            (output, "bias", bool(self.embedding.cutoffs) or self.output.kind == "masked_tokens"),
            (value, "final_norm", self._default_final_norm),
            (value, "context_length", self._default_context),
        ):
            if part.get(field) == default:
                del part[field]
        if output == {"kind": "tokens"}:
            del value["output"]
        if self.source is not None:
            value["source"] = {name: part for name, part in self.source.canonical.items() if name != "version"}
        return value

    @cached_property
    def canonical_json(self) -> str:
        return canonical_json(self.canonical)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the name of this architecture everywhere."""
        return digest(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    # Rules between the parts; each yields the first fault of its kind --------------------------------------------

    def _faults(self) -> Iterator[ArchitectureError]:
        yield from self._head_faults()
        yield from self._parallel_faults()
        yield from self._shared_faults()
        if self.context_length is not None and self.max_length is not None:
            yield ArchitectureError(
                f"context_length {self.context_length} does not go with learned positions: their length is theirs",
                field="context_length",
                value=self.context_length,
                allowed="omit it, or other positions",
            )
        yield from self._relative_faults()
        yield from self._rotary_faults()
        yield from self._alibi_faults()
        yield from self._source_faults()
        embedding = self.embedding
        if self.d_embed // embedding.div ** len(embedding.cutoffs) < 1:
            yield ArchitectureError(
                f"embedding.div {embedding.div} leaves no width for the last of {len(embedding.cutoffs) + 1} clusters "
                f"of d_embed {self.d_embed}",
                field="embedding.div",
                value=embedding.div,
                allowed="a factor whose power by the number of cutoffs is at most d_embed",
            )
        if self.output.kind in ("pooled", "classes") and self.causal:
            yield ArchitectureError(
                f"output.kind {self.output.kind} needs causal false: it reads the first position, which "
                "would see itself alone",
                field="output.kind",
                value=self.output.kind,
                allowed="an output over tokens or none, or causal false",
            )
        if float(self.output.logits_scaling) != 1 and (embedding.cutoffs or self.output_bias):
            yield ArchitectureError(
                f"output.logits_scaling {self.output.logits_scaling} needs scores that are products alone, without "
                "output.bias and embedding.cutoffs",
                field="output.logits_scaling",
                value=self.output.logits_scaling,
                allowed="omit it, or an output without bias and cutoffs",
            )
        if self.output.kind == "masked_tokens" and embedding.cutoffs:
            yield ArchitectureError(
                "output.kind masked_tokens goes with a plain embedding, without cutoffs",
                field="output.kind",
                value=self.output.kind,
                allowed="tokens, or no embedding.cutoffs",
            )

    def _head_faults(self) -> Iterator[ArchitectureError]:
        for index, block in enumerate(self.blocks):
            if isinstance(block, Attention) and block.d_head is None and self.d_model % block.n_head:
                yield ArchitectureError(
                    f"blocks.{index}.n_head must divide d_model {self.d_model}, but {block.n_head} does not",
                    field=f"blocks.{index}.n_head",
                    value=block.n_head,
                    allowed=f"a divisor of {self.d_model}, or any with d_head",
                )
            if isinstance(block, Attention) and block.window is not None and not self.causal:
                yield ArchitectureError(
                    f"blocks.{index}.window needs causal true: it counts the keys before a token",
                    field=f"blocks.{index}.window",
                    value=block.window,
                    allowed="omit it, or causal true",
                )

    def _parallel_faults(self) -> Iterator[ArchitectureError]:
        before: Block | None = None
        for index, block in enumerate(self.blocks):
            if isinstance(block, FeedForward) and block.parallel is not None:
                needs = "" if isinstance(before, Attention) else "an attention as the block before"
                needs = needs or ("" if self.norms_input else "norm pre or both")
                if needs:
                    yield ArchitectureError(
                        f"blocks.{index}.parallel {block.parallel} needs {needs}: it reads what an attention read",
                        field=f"blocks.{index}.parallel",
                        value=block.parallel,
                        allowed=f"omit it, or {needs}",
                    )
            before = block

    def _shared_faults(self) -> Iterator[ArchitectureError]:
        for index, block in enumerate(self.blocks):
            if not isinstance(block, Attention | FeedForward) or block.shares is None:
                continue
            owner = self.owner(index)
            if owner < 0 or self.blocks[owner] != block.model_copy(update={"shares": None}):
                where = "there is none" if owner < 0 else f"blocks.{owner} is another"
                yield ArchitectureError(
                    f"blocks.{index}.shares {block.shares} needs the same block, without shares, so many before it: "
                    f"{where}",
                    field=f"blocks.{index}.shares",
                    value=block.shares,
                    allowed="omit it, or how many blocks before it the same block stands that has weights of its own",
                )

    @property
    def has_parallel_blocks(self) -> bool:
        """Whether a feed_forward reads what the attention before it read."""
        return any(isinstance(block, FeedForward) and block.parallel is not None for block in self.blocks)

    def _relative_faults(self) -> Iterator[ArchitectureError]:
        if isinstance(self.positions, RelativePositions | SinusoidalPositions) and self.d_model % 2:
            yield ArchitectureError(
                f"d_model must be even with {self.positions.kind} positions, not {self.d_model}: "
                "half are sines, half cosines",
                field="d_model",
                value=self.d_model,
                allowed="an even number",
            )
        if not isinstance(self.positions, RelativePositions):
            return
        if not self.causal:
            yield ArchitectureError(
                "positions.kind relative needs causal true: distances only point back",
                field="positions.kind",
                value="relative",
                allowed="learned, sinusoidal or none",
            )
        attention = [(index, block) for index, block in enumerate(self.blocks) if isinstance(block, Attention)]
        for index, block in attention:
            first = attention[0][1]
            if self.positions.shared and (block.n_head, self.d_head(block)) != (first.n_head, self.d_head(first)):
                yield ArchitectureError(
                    f"blocks.{index}.n_head and d_head must be {first.n_head} and {self.d_head(first)} as in the first "
                    "attention block, because positions.shared gives all blocks one u and v",
                    field=f"blocks.{index}.n_head",
                    value=block.n_head,
                    allowed=f"{first.n_head} heads of {self.d_head(first)}, or positions.shared false",
                )
            for field, value, default in (
                ("n_kv_head", block.kv_heads, block.n_head),
                ("qk_norm", block.qk_norm, False),
                ("scale", block.scale, None),
                ("bias", self.attention_bias(block), "none"),
            ):
                if value != default:
                    yield ArchitectureError(
                        f"blocks.{index}.{field} does not go with positions.kind relative: Transformer-XL's attention "
                        "has neither grouped queries, nor norms of them, nor a scale of its own, nor biases",
                        field=f"blocks.{index}.{field}",
                        value=value,
                        allowed="omit it, or other positions",
                    )

    def _rotary_faults(self) -> Iterator[ArchitectureError]:
        for index, block in enumerate(self.blocks):
            if not isinstance(block, Attention):
                continue
            if block.theta is not None and self.rotary(block) is None:
                yield ArchitectureError(
                    f"blocks.{index}.theta needs rotary positions that turn this block: positions.kind rotary, and not "
                    "rope false",
                    field=f"blocks.{index}.theta",
                    value=block.theta,
                    allowed="omit it, or rotary positions",
                )
            if not isinstance(self.positions, RotaryPositions):
                if not block.rope:
                    yield ArchitectureError(
                        f"blocks.{index}.rope false needs positions.kind rotary, not {self.positions.kind}",
                        field=f"blocks.{index}.rope",
                        value=False,
                        allowed="omit it, or rotary positions",
                    )
                continue
            rotary = self.rotary(block)
            if rotary is None:
                continue
            d_head, width = self.d_head(block), rotary.width(self.d_head(block))
            if width < 2 or width % 2:
                field = "d_head" if block.d_head else "n_head"
                yield ArchitectureError(
                    f"blocks.{index}.{field} gives heads of {d_head} features, of which positions.percent "
                    f"{rotary.percent} turns {width}: they turn in pairs",
                    field=f"blocks.{index}.{field}",
                    value=block.d_head or block.n_head,
                    allowed="heads with an even number of turned features, 2 at least",
                )

    def _alibi_faults(self) -> Iterator[ArchitectureError]:
        if isinstance(self.positions, AlibiPositions) and not self.causal:
            yield ArchitectureError(
                "positions.kind alibi needs causal true: distances only point back",
                field="positions.kind",
                value="alibi",
                allowed="learned, sinusoidal, rotary or none",
            )

    def _source_faults(self) -> Iterator[ArchitectureError]:
        readers = [
            index
            for index, block in enumerate(self.blocks)
            if isinstance(block, Attention | Srupp) and block.attends in ("source", "both")
        ]
        if self.source is None:
            for index in readers:
                yield ArchitectureError(
                    f"blocks.{index}.attends needs a source: this model has none",
                    field=f"blocks.{index}.attends",
                    value=getattr(self.blocks[index], "attends"),  # noqa: B009
                    allowed="self, or a source architecture",
                )
            return
        rules: tuple[tuple[str, Any, Any, bool], ...] = (
            ("source.d_model", self.source.d_model, self.d_model, self.source.d_model == self.d_model),
            ("source.output.kind", self.source.output.kind, "none", self.source.output.kind == "none"),
            ("causal", self.causal, True, self.causal),
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
                yield ArchitectureError(
                    f"{field} must be {allowed} in a model with a source, not {value}",
                    field=field,
                    value=value,
                    allowed=str(allowed),
                )
        if isinstance(self.positions, RelativePositions | RotaryPositions | AlibiPositions):
            for index in readers:
                if isinstance(self.blocks[index], Attention):
                    yield ArchitectureError(
                        f"blocks.{index}.attends to a source, whose tokens have no distance: positions.kind "
                        f"{self.positions.kind} does not go with it",
                        field=f"blocks.{index}.attends",
                        value=getattr(self.blocks[index], "attends"),  # noqa: B009
                        allowed="self, or other positions",
                    )


def _expanded(blocks: Mapping[str, Any]) -> list[Any]:
    """The list that a pattern stands for. Also blocks that no letter of it names must be blocks."""
    letters: dict[str, Any] = {"i": {"kind": "identity"}, **{key: blocks[key] for key in blocks if key != "pattern"}}
    for letter in letters:
        if len(letter) != 1 or not letter.islower() or letter == "x":
            raise ArchitectureError(
                f"blocks.{letter}: every key other than pattern must be one letter, with its block",
                field=f"blocks.{letter}",
                value=letter,
                allowed="one small letter other than x",
            )
    pattern = blocks.get("pattern")
    if not isinstance(pattern, str):
        raise ArchitectureError(
            "blocks.pattern: blocks is a list, or an object with a pattern and its letters",
            field="blocks.pattern",
            value=pattern,
            allowed="a pattern such as (sfff)x6(f)x8",
        )
    try:
        expanded = expand(pattern, "".join(letters))
    except ArchitectureError as error:
        raise error.under("blocks") from None
    for letter, block in letters.items():
        try:
            _BLOCK.validate_python(block)
        except ValidationError as error:
            raise invalid_input(error, ArchitectureError, tags=BLOCK_KINDS).under("blocks", letter) from None
    return [letters[letter] for letter in expanded]


def _by_letter(error: InvalidInput, value: Mapping[str, Any]) -> InvalidInput:
    """The error with the letter that stands for a block in place of its number, where blocks are a pattern."""
    start = 1 if error.path[:1] == ("source",) else 0
    before, (key, *keys) = error.path[:start], error.path[start:] or ("",)
    part = value.get("source") if before else value
    blocks = part.get("blocks") if isinstance(part, Mapping) else None
    if key != "blocks" or not keys or not keys[0].isdecimal() or not isinstance(blocks, Mapping):
        return error
    letter = expand(blocks["pattern"], "".join({"i", *blocks} - {"pattern"}))[int(keys[0])]
    return error.at(*before, key, letter, *keys[1:])
