"""The architecture description, version 1: a model without its weights.

An `Architecture` is immutable and identified by the digest of its canonical JSON. `core.architectures.block` and
`core.architectures.embeddings_and_head` validate each section alone, `core.architectures.consistency` validates the
combination of sections. Rules of a search space (such as d_inner ≥ 2·d_model) are in the space. The specification is
`docs/architecture.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from edgefront.core.architectures.block import (
    BLOCK_KINDS,
    MAX_BLOCKS,
    Attention,
    Biases,
    Block,
    FeedForward,
    Part,
    Width,
)
from edgefront.core.architectures.consistency import faults
from edgefront.core.architectures.embeddings_and_head import (
    MAX_CONTEXT,
    POSITION_KINDS,
    Cluster,
    Embedding,
    LearnedPositions,
    Output,
    Positions,
    RelativePositions,
    RotaryPositions,
)
from edgefront.core.architectures.numbers import Number, NumberText
from edgefront.core.architectures.pattern import expand
from edgefront.core.common.canonical import canonical_json, digest
from edgefront.core.common.errors import ArchitectureError, InvalidInput
from edgefront.core.common.validation import invalid_input, short

VERSION = 1
MAX_LAYER_PAIRS = MAX_BLOCKS // 2
"""Maximum number of layers that consist of a token mixer and a feed-forward block."""

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
NormKind = Literal["layer", "rms"]
NormPlace = Literal["pre", "post", "branch", "both"]

_BLOCK: TypeAdapter[Block] = TypeAdapter(Block)


class Architecture(Part):
    """Description of one model. A field at its default does not change the digest, whether written or omitted.

    `Architecture.parse` raises `ArchitectureError` that names the invalid field.
    """

    version: Literal[1] = 1
    d_model: Width
    causal: bool = True
    positions: Positions = LearnedPositions()
    context_length: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    """Maximum sequence length of the training, if positions are unlimited; if absent, 4096 or the reach of scaled
    rotary positions. The length changes no score, but every file of the model states it.
    """
    norm: NormPlace = "pre"
    """Position of the norms in a block. pre: x + f(norm(x)); post: norm(x + f(x)); branch: x + norm(f(x)), as in OLMo 2
    (OLMo team 2024, arXiv 2501.00656, §3.2); both: x + norm(f(norm(x))), as in Gemma 2 and 3. SRU and SRU++ blocks have
    no such norms.
    """
    norm_kind: NormKind = "layer"
    """Layer norm (Ba et al. 2016), or RMS norm (Zhang & Sennrich 2019). SRU++ always has a layer norm inside."""
    final_norm: bool | None = None
    """Whether a norm follows the final block; if absent, a norm follows unless `norm` is post."""
    norm_eps: NumberText = "1e-5"
    residual_multiplier: Number = 1
    """Factor on the updates of attention, feed-forward and short convolutions, after their norm if any (Granite)."""
    activation: Activation = "gelu_tanh"
    embedding: Embedding
    blocks: Annotated[tuple[Block, ...], Field(min_length=1, max_length=MAX_BLOCKS, strict=False, fail_fast=True)]
    output: Output = Output()
    source: Architecture | None = None
    """Encoder of a translation model, to whose output blocks may attend."""

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, value: Any) -> Any:
        """Refuses an encoder inside an encoder. Runs before nested sections are parsed, to bound the nesting."""
        source = value.get("source") if isinstance(value, Mapping) else None
        nested = source.get("source") if isinstance(source, Mapping) else getattr(source, "source", None)
        if nested is not None:
            raise ArchitectureError(
                "source.source: an encoder cannot have a source",
                field="source.source",
                value="an architecture",
                allowed="omit it",
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _pattern_expanded(cls, value: Any) -> Any:
        """Expands `blocks` written as {"pattern": "(sfff)x6(f)x8", "s": {…}, "f": {…}}; the letter i means the identity
        block by default.
        """
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
        for fault in faults(self):
            raise fault
        return self

    @classmethod
    def parse(cls, value: Architecture | Mapping[str, Any] | str | bytes) -> Architecture:
        """Parses a mapping or JSON text. Raises `ArchitectureError` that names the invalid field."""
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
        if type(version) is not int or version != VERSION:
            raise ArchitectureError(
                f"version: this release reads version {VERSION}, not {short(version)}",
                field="version",
                value=version,
                allowed=str(VERSION),
            )
        try:
            return cls.model_validate(dict(value))
        except ValidationError as error:
            fault = invalid_input(error, ArchitectureError, tags=(*BLOCK_KINDS, *POSITION_KINDS))
            raise _by_letter(fault, value) from None

    @property
    def d_embed(self) -> int:
        """Width of the first (widest) embedding cluster."""
        return self.embedding.d_embed or self.d_model

    @property
    def max_length(self) -> int | None:
        """Maximum sequence length, including past tokens; None if unlimited."""
        return self.positions.length if isinstance(self.positions, LearnedPositions) else None

    @property
    def stated_length(self) -> int:
        """Context length to declare in files of other formats, in tokens."""
        return self.max_length or self.context_length or self._default_context

    @property
    def _default_context(self) -> int:
        scaling = self.positions.scaling if isinstance(self.positions, RotaryPositions) else None
        return 4096 if scaling is None else scaling.reach

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the final block."""
        return self._default_final_norm if self.final_norm is None else self.final_norm

    @property
    def _default_final_norm(self) -> bool:
        return self.norm != "post"

    @property
    def norms_input(self) -> bool:
        """Whether attention, feed-forward and short convolutions norm their input."""
        return self.norm in ("pre", "both")

    @property
    def norms_update(self) -> bool:
        """Whether attention, feed-forward and short convolutions norm their update."""
        return self.norm in ("branch", "both")

    @property
    def scaled_embedding(self) -> bool:
        """Whether the token embedding is multiplied by √d_model."""
        return bool(self.embedding.cutoffs) if self.embedding.scaled is None else self.embedding.scaled

    @property
    def embedding_factor(self) -> float:
        """Factor on the token embedding: `multiplier`, times √d_model if the embedding is scaled."""
        return float(self.embedding.multiplier) * (math.sqrt(self.d_model) if self.scaled_embedding else 1.0)

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """Clusters of the vocabulary: the embeddings of cluster i have width d_embed // div^i. One without cut-offs."""
        edges = pairwise((0, *self.embedding.cutoffs, self.embedding.vocab_size))
        return tuple(Cluster(i, *ends, self.d_embed // self.embedding.div**i) for i, ends in enumerate(edges))

    @property
    def tables(self) -> tuple[Cluster, ...]:
        """Clusters with an embedding matrix: every cluster if div > 1, else one cluster of the whole vocabulary."""
        return self.clusters if self.embedding.div > 1 else (Cluster(0, 0, self.embedding.vocab_size, self.d_embed),)

    @property
    def projected(self) -> bool:
        """Whether embeddings are projected to d_model: always if div > 1, else if d_embed differs from d_model."""
        return self.embedding.div > 1 or self.d_embed != self.d_model

    @property
    def scores_tokens(self) -> bool:
        """Whether the output has a score for every token of the vocabulary."""
        return self.output.kind in ("tokens", "masked_tokens")

    @property
    def output_bias(self) -> bool:
        """Whether the output layer has a bias for each token."""
        if not self.scores_tokens:
            return False
        default = bool(self.embedding.cutoffs) or self.output.kind == "masked_tokens"
        return default if self.output.bias is None else self.output.bias

    def d_head(self, block: Attention) -> int:
        """Width of one head of an attention block of this model."""
        return block.d_head or self.d_model // block.n_head

    def attention_scale(self, block: Attention) -> float:
        """Factor on the products of queries and keys in an attention block of this model."""
        return 1 / math.sqrt(self.d_head(block)) if block.scale is None else float(block.scale)

    def rotary(self, block: Attention) -> RotaryPositions | None:
        """Rotary positions of an attention block of this model; None without rotary positions."""
        if not isinstance(self.positions, RotaryPositions) or not block.rope:
            return None
        if block.theta is None:
            return self.positions
        return self.positions.model_copy(update={"theta": block.theta, "scaling": None})

    def attention_bias(self, block: Attention) -> Biases:
        """Which linear layers have a bias in an attention block of this model."""
        return self._default_bias if block.bias is None else block.bias

    @property
    def _default_bias(self) -> Biases:
        return "none" if isinstance(self.positions, RelativePositions) else "all"

    @property
    def has_parallel_blocks(self) -> bool:
        """Whether a feed-forward block is parallel to the preceding attention."""
        return any(isinstance(block, FeedForward) and block.parallel is not None for block in self.blocks)

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """Description as JSON; omits fields at their defaults, but always has the version and the kinds."""
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
        """SHA-256 of the canonical JSON, the identity of this architecture in every database and file."""
        return digest(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _expanded(blocks: Mapping[str, Any]) -> list[Any]:
    """Expands a pattern to a list of blocks. Raises `ArchitectureError`, also for an unused invalid block."""
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
    """Returns the error; if `blocks` is a pattern, the path has the block's pattern letter instead of its index."""
    start = 1 if error.path[:1] == ("source",) else 0
    before, (key, *keys) = error.path[:start], error.path[start:] or ("",)
    part = value.get("source") if before else value
    blocks = part.get("blocks") if isinstance(part, Mapping) else None
    if key != "blocks" or not keys or not keys[0].isdecimal() or not isinstance(blocks, Mapping):
        return error
    letter = expand(blocks["pattern"], "".join({"i", *blocks} - {"pattern"}))[int(keys[0])]
    return error.at(*before, key, letter, *keys[1:])
