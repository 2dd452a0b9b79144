"""The architecture description, version 0: what a model is, without its weights.

An `Architecture` is immutable, knows its canonical JSON and is named by the digest of it. All validation of
descriptions lives here; rules that belong to a search space (such as d_inner ≥ 2·d_model) live with the space.

Version 0 holds the GPT-2 family. The fields that other families need are drawn up in
`docs/decisions/0002-architecture-description.md`; each joins with a default that keeps today's digests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core.canonical import canonical_json, digest
from core.errors import ArchitectureError
from core.validation import invalid_input

VERSION = 0
MAX_WIDTH = 1 << 16
MAX_BLOCKS = 1024
MAX_VOCABULARY = 1 << 22
MAX_LENGTH = 1 << 20

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Attention(_Part):
    """Multi-head self-attention with biases; head width is d_model / n_head (Vaswani et al. 2017, eq. 1)."""

    kind: Literal["attention"] = "attention"
    n_head: Width


class FeedForward(_Part):
    """Two linear maps with biases and the activation between: d_model → d_inner → d_model."""

    kind: Literal["feed_forward"] = "feed_forward"
    d_inner: Width


Block = Annotated[Attention | FeedForward, Field(discriminator="kind")]
_KINDS = ("attention", "feed_forward")


class Positions(_Part):
    """Learned absolute positions: a table of (length + offset) rows of d_model; OPT starts at row 2 (offset)."""

    kind: Literal["learned"] = "learned"
    length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] = 1024
    offset: Annotated[int, Field(ge=0, le=16)] = 0


class Embedding(_Part):
    """Token embedding and the output layer tied to it.

    Without `cutoffs`: one table of vocab_size × d_embed. With them, the adaptive embedding and softmax of
    Baevski & Auli (2019) in Transformer-XL's layout: cluster i holds the tokens between two cut-offs in a table of
    width d_embed // div^i, projected to d_model; the embedding is multiplied by √d_model.
    """

    vocab_size: Annotated[int, Field(ge=2, le=MAX_VOCABULARY)]
    d_embed: Width | None = None  # None: d_model
    cutoffs: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=16, strict=False)] = ()
    div: Annotated[int, Field(ge=1, le=64)] = 1
    tied: Literal[True] = True

    @model_validator(mode="after")
    def _clusters_hold_tokens(self) -> Embedding:
        edges = (0, *self.cutoffs, self.vocab_size)
        if any(low >= high for low, high in pairwise(edges)):
            raise ArchitectureError(
                f"embedding.cutoffs must rise and stay below vocab_size {self.vocab_size}, not {list(self.cutoffs)}",
                field="cutoffs",
                value=list(self.cutoffs),
                allowed=f"rising numbers from 1 to {self.vocab_size - 1}",
            )
        if self.div > 1 and not self.cutoffs:
            raise ArchitectureError(
                f"embedding.div {self.div} needs cutoffs: it divides the width of the clusters that they make",
                field="div",
                value=self.div,
                allowed="1, or any factor together with cutoffs",
            )
        return self


class Architecture(_Part):
    """One model. Equal descriptions have equal digests, whatever defaults were spelled out.

    Raises `ArchitectureError` that names the field, through `Architecture.parse`.
    """

    version: Literal[0] = 0
    d_model: Width
    positions: Positions = Positions()
    norm: Literal["pre"] = "pre"
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu_tanh"
    causal: Literal[True] = True
    embedding: Embedding
    blocks: Annotated[tuple[Block, ...], Field(min_length=1, max_length=MAX_BLOCKS, strict=False)]

    @model_validator(mode="after")
    def _widths_agree(self) -> Architecture:
        for index, block in enumerate(self.blocks):
            if isinstance(block, Attention) and self.d_model % block.n_head:
                raise ArchitectureError(
                    f"blocks.{index}.n_head must divide d_model {self.d_model}, but {block.n_head} does not",
                    field=f"blocks.{index}.n_head",
                    value=block.n_head,
                    allowed=f"a divisor of {self.d_model}",
                )
        embedding = self.embedding
        if self.d_embed // embedding.div ** len(embedding.cutoffs) < 1:
            raise ArchitectureError(
                f"embedding.div {embedding.div} leaves no width for the last of {len(embedding.cutoffs) + 1} clusters "
                f"of d_embed {self.d_embed}",
                field="embedding.div",
                value=embedding.div,
                allowed="a factor whose power by the number of cutoffs is at most d_embed",
            )
        return self

    @classmethod
    def parse(cls, value: Architecture | Mapping[str, Any] | str | bytes) -> Architecture:
        """An architecture from a mapping or JSON text; `ArchitectureError` names what is wrong with it."""
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
        if version != VERSION or isinstance(version, bool):
            raise ArchitectureError(
                f"version: this release reads version {VERSION}, not {version!r}",
                field="version",
                value=version,
                allowed=str(VERSION),
            )
        try:
            return cls.model_validate(dict(value))
        except ValidationError as error:
            raise invalid_input(error, ArchitectureError, tags=_KINDS) from None

    @property
    def d_embed(self) -> int:
        """Width of the first (widest) embedding cluster."""
        return self.embedding.d_embed or self.d_model

    @property
    def n_layer(self) -> int:
        """Number of attention blocks: the layers of a GPT-2."""
        return sum(isinstance(block, Attention) for block in self.blocks)

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """The description with every field at its default left out, except version and kinds."""
        value = self.model_dump(mode="json", exclude_defaults=True)
        value["version"] = self.version
        for dumped, block in zip(value["blocks"], self.blocks, strict=True):
            dumped["kind"] = block.kind
        if value["embedding"].get("d_embed") == self.d_model:
            del value["embedding"]["d_embed"]
        if not value.get("positions", True):
            del value["positions"]
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
