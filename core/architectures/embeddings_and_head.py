"""Descriptions of the modules before and after the blocks: positions, token embedding and output layer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgefront.core.architectures.block import MAX_LENGTH, Part, Width
from edgefront.core.architectures.numbers import Number
from edgefront.core.common.errors import ArchitectureError


@dataclass(frozen=True)
class Cluster:
    """Tokens `start` … `stop` - 1 with embeddings of `width` features. Cluster 0 is the head, all others are tails."""

    index: int
    start: int
    stop: int
    width: int

    @property
    def size(self) -> int:
        return self.stop - self.start


MAX_VOCABULARY = 1 << 22
MAX_CONTEXT = (1 << 31) - 1


class LearnedPositions(Part):
    """Learned absolute positions: a matrix (length + offset, d_model); position 0 reads row `offset` (2 in OPT)."""

    kind: Literal["learned"] = "learned"
    length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] = 1024
    offset: Annotated[int, Field(ge=0, le=16)] = 0


class RelativePositions(Part):
    """Transformer-XL's relative positions (Dai et al. 2019, §3.3): attention scores have a term for the distance.

    `shared`: all attention blocks share one pair of biases u, v (the paper's code), or each has its own pair (LTS).
    `clamp`: maximum relative distance, to which larger distances are clamped; unlimited if absent.
    """

    kind: Literal["relative"] = "relative"
    shared: bool = True
    clamp: Annotated[int, Field(ge=1, le=MAX_LENGTH)] | None = None


class SinusoidalPositions(Part):
    """Sinusoidal absolute positions, sines then cosines, added to the embedding (Vaswani et al. 2017, §3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"


class RotaryScaling(Part):
    """Llama 3.1's scaling of rotary positions for sequences longer than `length`, the sequence length in pre-training.

    Features with a wavelength above length / low rotate `factor` times slower. Features with a wavelength below length
    / high are unchanged. Wavelengths in between have a smooth transition.
    """

    factor: Number
    length: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] = 8192
    low: Number = 1
    high: Number = 4

    @property
    def reach(self) -> int:
        """Maximum sequence length of the scaled positions, in tokens."""
        return max(1, min(MAX_CONTEXT, int(float(self.factor) * self.length)))

    @model_validator(mode="after")
    def _low_is_below_high(self) -> RotaryScaling:
        if float(self.low) >= float(self.high):
            raise ArchitectureError(
                f"low must be below high {self.high}, not {self.low}",
                field="low",
                value=self.low,
                allowed=f"a positive number below {self.high}",
            )
        return self


class RotaryPositions(Part):
    """Rotary positions (Su et al. 2021): attention rotates queries and keys by their position, so that scores depend on
    the distance.

    Feature i of the first half of a head's rotated features is paired with feature i of the second half, as in Hugging
    Face's transformers, and rotates by theta^(-2i/width) per token.
    """

    kind: Literal["rotary"] = "rotary"
    theta: Number = 10_000
    percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Percentage of each head's features that are rotated, starting with the first feature."""
    scaling: RotaryScaling | None = None

    def width(self, d_head: int) -> int:
        """Number of a head's features that are rotated."""
        return d_head * self.percent // 100


class NoPositions(Part):
    """No position encoding, for models of SRU and SRU++ blocks, because a recurrence depends on the order of tokens."""

    kind: Literal["none"] = "none"


Positions = Annotated[
    LearnedPositions | RelativePositions | RotaryPositions | SinusoidalPositions | NoPositions,
    Field(discriminator="kind"),
]
POSITION_KINDS = ("learned", "relative", "rotary", "sinusoidal", "none")


class Embedding(Part):
    """Token embedding of a model.

    Without `cutoffs` the embedding is one matrix of vocab_size × d_embed. With cut-offs it is the adaptive embedding of
    Baevski & Auli (2019) in Transformer-XL's layout: cluster i has the tokens between two cut-offs, and an embedding
    matrix of width d_embed // div^i, projected to d_model.
    """

    vocab_size: Annotated[int, Field(ge=2, le=MAX_VOCABULARY)]
    d_embed: Width | None = None
    """Width of the first (widest) cluster; d_model if absent."""
    cutoffs: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=16, strict=False, fail_fast=True)] = ()
    div: Annotated[int, Field(ge=1, le=64)] = 1
    scaled: bool | None = None
    """Whether the embedding is multiplied by √d_model; if absent, only with cut-offs, as in Transformer-XL."""
    multiplier: Number = 1
    """Additional factor on the token embedding (Granite)."""
    segments: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of segment types, whose embeddings are added to the token embeddings: 2 in BERT."""
    norm: bool = False
    """Whether a norm follows the sum of token, position and segment embeddings, as in BERT."""

    @model_validator(mode="after")
    def _clusters_hold_tokens(self) -> Embedding:
        edges = (0, *self.cutoffs, self.vocab_size)
        if any(low >= high for low, high in pairwise(edges)):
            raise ArchitectureError(
                f"cutoffs must rise and stay below vocab_size {self.vocab_size}, not {list(self.cutoffs)}",
                field="cutoffs",
                value=list(self.cutoffs),
                allowed=f"rising numbers from 1 to {self.vocab_size - 1}",
            )
        if self.div > 1 and not self.cutoffs:
            raise ArchitectureError(
                f"div {self.div} needs cutoffs, because it divides the width of the clusters between them",
                field="div",
                value=self.div,
                allowed="1, or any factor together with cutoffs",
            )
        return self


WIKITEXT_103 = Embedding(vocab_size=267_735, cutoffs=(19_997, 39_997, 199_997))
"""Word-level embedding of WikiText-103, with the cut-offs of NVIDIA's code, which PAR, LTS and SRU++ use.

The first cluster and its three rows for the tails are 20,000 rows. Users set `div`: 1 in the Base models, 4 in the
Large ones and in LTS.
"""
UNSCALED_WIKITEXT_103 = WIKITEXT_103.model_copy(update={"scaled": False})
"""Word-level embedding of WikiText-103 that is not multiplied by √d_model, as in SRU++'s scripts."""


class Output(Part):
    """Description of the output layer. The field `kind` selects the output:

    - tokens: scores of every token of the vocabulary; with cut-offs by an adaptive softmax
    - masked_tokens: scores of every token after BERT's transform (a linear layer, the activation and a layer norm)
    - pooled: BERT's pooler, tanh of a linear layer on the first position
    - classes: scores of `classes` classes, by the pooler and a linear layer
    - spans: two scores per position, for the start and the end of an answer
    - none: the hidden states, for an encoder

    `tied`: the output uses the embedding's matrices instead of separate matrices in the same shapes.
    `tied_projections`, for a tied output with a projected embedding: "tails" ties all projections except the head
    cluster's (Transformer-XL), "all" ties every projection (SRU++ on WikiText-103), "none" ties no projection. `bias`:
    whether each token has a bias; if absent, only with cut-offs or for masked_tokens. `logits_scaling`: divisor of the
    scores (Granite).
    """

    kind: Literal["tokens", "masked_tokens", "pooled", "classes", "spans", "none"] = "tokens"
    tied: bool = True
    tied_projections: Literal["tails", "all", "none"] = "tails"
    bias: bool | None = None
    logits_scaling: Number = 1
    classes: Annotated[int, Field(ge=1, le=1 << 16)] | None = None

    @model_validator(mode="after")
    def _classes_counted(self) -> Output:
        if (self.kind == "classes") != (self.classes is not None):
            raise ArchitectureError(
                "classes must be the number of classes"
                if self.kind == "classes"
                else f"classes needs output.kind classes, not {self.kind}",
                field="classes",
                value=self.classes,
                allowed="a number with kind classes, else absent",
            )
        if self.kind not in ("tokens", "masked_tokens"):
            for name in ("tied", "tied_projections", "bias", "logits_scaling"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ArchitectureError(
                        f"{name} needs an output over the vocabulary, not {self.kind}",
                        field=name,
                        value=getattr(self, name),
                        allowed="omit it, or kind tokens or masked_tokens",
                    )
        if self.tied_projections != "tails" and not self.tied:
            raise ArchitectureError(
                f"tied_projections {self.tied_projections} needs a tied output",
                field="tied_projections",
                value=self.tied_projections,
                allowed="omit it, or tied true",
            )
        return self
