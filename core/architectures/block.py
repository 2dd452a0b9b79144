"""Descriptions of the blocks of an architecture; each block is one residual unit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticKnownError

from edgefront.core.architectures.numbers import Number
from edgefront.core.common.errors import ArchitectureError

MAX_WIDTH = 1 << 16
MAX_LENGTH = 1 << 20
MAX_BLOCKS = 1024
SRUPP_NORM_EPS = 1e-5
"""Epsilon of the layer norm inside SRU++, in every architecture."""

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]


def _exact(value: Any) -> Any:
    # A Literal accepts 0 and 1 for False and True, even in strict mode.
    if isinstance(value, bool) or value == "whole":
        return value
    raise PydanticKnownError("literal_error", {"expected": "false, true or 'whole'"})


Attends = Literal["self", "source", "both", "none"]
"""Keys that a block attends to: its own sequence, the encoder's output (`source`), the encoder's output followed by its
own sequence (`both`), or none.
"""
Biases = Literal["all", "qkv", "none"]
"""Linear layers of an attention that have a bias."""
QkNorm = Annotated[Literal[False, True, "whole"], BeforeValidator(_exact)]
"""RMS norms of queries and keys: none, one per head, or one over all heads."""
Parallel = Literal["own_norm", "shared_norm"]
"""Input of a feed-forward block parallel to an attention: normed by its own norm, or the attention's normed input."""


class Part(BaseModel):
    """Base class of the sections of a description: immutable; refuses unknown fields and converts no types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Attention(Part):
    """Multi-head attention (Vaswani et al. 2017, eq. 1), with n_kv_head grouped queries (Ainslie et al. 2023).

    Relative positions make the block Transformer-XL's attention (Dai et al. 2019, §3.3): linear layers without biases,
    a projection of the distances, and the biases u and v. Rotary positions (Su et al. 2021) rotate queries and keys.
    """

    kind: Literal["attention"] = "attention"
    n_head: Width
    d_head: Width | None = None
    """Width of one head; d_model / n_head if absent."""
    n_kv_head: Width | None = None
    """Number of key-value heads, each for n_head / n_kv_head consecutive query heads; n_head if absent."""
    attends: Literal["self", "source", "both"] = "self"
    window: Annotated[int, Field(ge=2, le=MAX_LENGTH)] | None = None
    """Maximum number of keys that a token sees, itself included; unlimited if absent."""
    qk_norm: QkNorm = False
    """RMS norms of each head's query and key, before the rotation; "whole" has one norm over all heads' queries, and
    one over their keys (OLMo 2).
    """
    rope: bool = True
    """Whether rotary positions rotate queries and keys; False gives attention without positions (Kazemnejad et al.
    2023; every fourth layer of SmolLM3).
    """
    theta: Number | None = None
    """Base of this block's rotary positions, without scaling; the model's base if absent (in Gemma 3 local layers have
    another base than global layers).
    """
    scale: Number | None = None
    """Factor on the products of queries and keys; 1/√d_head if absent."""
    bias: Biases | None = None
    """Linear layers with biases; if absent all (GPT-2, BERT), or none with relative positions."""

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @model_validator(mode="after")
    def _heads_and_window_fit(self) -> Attention:
        if self.n_head % self.kv_heads:
            raise ArchitectureError(
                f"n_kv_head must divide n_head {self.n_head}, but {self.n_kv_head} does not",
                field="n_kv_head",
                value=self.n_kv_head,
                allowed=f"a divisor of {self.n_head}",
            )
        if self.window is not None and self.attends != "self":
            raise ArchitectureError(
                f"window {self.window} needs attends self, not {self.attends}: tokens of a source have no distance",
                field="window",
                value=self.window,
                allowed="omit it, or attends self",
            )
        return self


class FeedForward(Part):
    """Two linear layers with an activation in between: d_model → d_inner → d_model.

    `gated` (Shazeer 2020) multiplies the activation of one projection by a second projection, W₂·(act(W_g·x) ⊙ W_u·x);
    with silu this is SwiGLU, with a GELU GeGLU. A `parallel` block (GPT-J, Wang & Komatsuzaki 2021; Pythia and Phi) has
    the same input as the preceding attention, and adds to that attention's output.
    """

    kind: Literal["feed_forward"] = "feed_forward"
    d_inner: Width
    gated: bool = False
    bias: bool = True
    """Whether the linear layers have a bias."""
    parallel: Parallel | None = None
    """Norm of a block parallel to the preceding attention, its own or shared; None for a sequential block."""


class Sru(Part):
    """Simple Recurrent Unit (Lei et al. 2018) with highway output. d_proj factorises the weight d_model → 3·d_model."""

    kind: Literal["sru"] = "sru"
    d_proj: Width | None = None


class Srupp(Part):
    """SRU++ (Lei 2021, §3): a recurrence whose input is computed by attention of width d_attn, with n_head heads."""

    kind: Literal["srupp"] = "srupp"
    d_attn: Width
    n_head: Width = 1
    attends: Attends = "self"

    @model_validator(mode="after")
    def _heads_fit(self) -> Srupp:
        if self.d_attn % self.n_head:
            raise ArchitectureError(
                f"n_head must divide d_attn {self.d_attn}, but {self.n_head} does not",
                field="n_head",
                value=self.n_head,
                allowed=f"a divisor of {self.d_attn}",
            )
        if self.attends == "none" and self.n_head != 1:
            raise ArchitectureError(
                f"n_head {self.n_head} needs attention, but attends is none",
                field="n_head",
                value=self.n_head,
                allowed="1, or another value of attends",
            )
        return self


class ShortConv(Part):
    """Gated short convolution of LFM2 (Amini et al. 2025, arXiv 2511.23404, §2): `Lfm2ShortConv` in transformers.

    Of three projections to d_model features, two are multiplied, and the product is convolved along the tokens
    (depthwise) and multiplied by the third before the final linear layer. The block is always causal, even if `causal`
    is false.
    """

    kind: Literal["short_conv"] = "short_conv"
    kernel: Annotated[int, Field(ge=2, le=64)] = 3
    """Number of tokens that a token sees, itself included."""
    bias: bool = False
    """Whether the linear layers and the convolution have a bias."""


class Identity(Part):
    """Block that returns its input, the third choice in the search of PAR Transformer (Mandava et al. 2020, §2.1)."""

    kind: Literal["identity"] = "identity"


Block = Annotated[Attention | FeedForward | Sru | Srupp | Identity | ShortConv, Field(discriminator="kind")]
BLOCK_KINDS = ("attention", "feed_forward", "sru", "srupp", "identity", "short_conv")
