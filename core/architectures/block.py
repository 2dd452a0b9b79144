"""The blocks of an architecture: one residual unit each, as a description."""

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
"""Epsilon of the layer norm inside SRU++, whatever the architecture's."""

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]


def _exact(value: Any) -> Any:
    # A literal takes 0 and 1 for False and True, even where no types are converted.
    if isinstance(value, bool) or value == "whole":
        return value
    raise PydanticKnownError("literal_error", {"expected": "false, true or 'whole'"})


Context = Literal["self", "source", "both"]
"""What an attention sees: its own sequence, the states of the `source`, or the source's before its own."""
Biases = Literal["all", "qkv", "none"]
"""The linear layers of an attention that have a bias."""
QkNorm = Annotated[Literal[False, True, "whole"], BeforeValidator(_exact)]
"""Norms of queries and keys: none, one of each head, or one of all heads of a token together."""
Parallel = Literal["own_norm", "shared_norm"]
"""How a feed_forward beside an attention reads the stream: through a norm of its own, or as the attention read it."""


class Part(BaseModel):
    """A frozen piece of a description: no unknown fields, and no conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Attention(Part):
    """Multi-head attention (Vaswani et al. 2017, eq. 1), with grouped queries (Ainslie et al. 2023) where n_kv_head is.

    With relative positions it is Transformer-XL's (Dai et al. 2019, §3.3): no biases in its linear layers, a projection
    of the distances, and the biases u and v. With rotary ones (Su et al. 2021) queries and keys are turned.
    """

    kind: Literal["attention"] = "attention"
    n_head: Width
    d_head: Width | None = None
    """Width of one head; d_model / n_head if absent."""
    n_kv_head: Width | None = None
    """Heads of keys and of values, each for n_head / n_kv_head heads of queries that follow each other; n_head if
    absent."""
    attends: Context = "self"
    window: Annotated[int, Field(ge=2, le=MAX_LENGTH)] | None = None
    """Each token sees so many keys at most, itself included; all before it if absent."""
    qk_norm: QkNorm = False
    """An RMS norm of each head's query and of each head's key, before they are turned; "whole": one of the queries of
    all heads, and one of the keys (OLMo 2)."""
    rope: bool = True
    """Whether rotary positions turn its queries and keys; False: it has no positions (Kazemnejad et al. 2023; every
    fourth layer of SmolLM3)."""
    theta: Number | None = None
    """Base of the rotary positions here, which are not stretched then; if absent, they turn as the model's (the local
    layers of Gemma 3 have another base than the global ones)."""
    scale: Number | None = None
    """What the products of queries and keys are multiplied with; 1/√d_head if absent."""
    bias: Biases | None = None
    """Linear layers with biases; if absent, all of them (GPT-2, BERT), and none with relative positions."""

    @property
    def kv_heads(self) -> int:
        """Heads of keys and of values."""
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
                f"window {self.window} needs attends self, not {self.attends}: a source's tokens are no nearer or "
                "farther",
                field="window",
                value=self.window,
                allowed="omit it, or attends self",
            )
        return self


class FeedForward(Part):
    """Two linear layers and the activation between: d_model → d_inner → d_model.

    `gated` (Shazeer 2020): the activation of one projection times another, W₂·(act(W_g·x) ⊙ W_u·x); with silu it is
    SwiGLU, with a GELU GeGLU. `parallel` (GPT-J, Wang & Komatsuzaki 2021; Pythia and Phi): it reads what the attention
    before it read, and adds to what that left.
    """

    kind: Literal["feed_forward"] = "feed_forward"
    d_inner: Width
    gated: bool = False
    bias: bool = True
    """Whether its linear layers have a bias."""
    parallel: Parallel | None = None
    """Beside the attention before it, and not after it, with a norm of its own or without."""


class Sru(Part):
    """Simple Recurrent Unit (Lei et al. 2018) with highway output: d_model → 3·d_model, through d_proj if given."""

    kind: Literal["sru"] = "sru"
    d_proj: Width | None = None


class Srupp(Part):
    """SRU++ (Lei 2021, §3): the recurrence's input goes through d_attn features and single- or multi-head attention.

    With `attends` "none" the layer keeps its projection and layer norm but has no attention.
    """

    kind: Literal["srupp"] = "srupp"
    d_attn: Width
    n_head: Width = 1
    attends: Literal["self", "source", "both", "none"] = "self"

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
                f"n_head {self.n_head} needs attention: this layer attends to none",
                field="n_head",
                value=self.n_head,
                allowed="1, or another value of attends",
            )
        return self


class ShortConv(Part):
    """The gated short convolution of LFM2 (Amini et al. 2025, arXiv 2511.23404, §2), `Lfm2ShortConv` of transformers.

    Three projections of d_model features: the product of two of them is convolved along the tokens, feature by feature,
    and multiplied with the third before the last linear layer. It sees no later token, whatever `causal` says.
    """

    kind: Literal["short_conv"] = "short_conv"
    kernel: Annotated[int, Field(ge=2, le=64)] = 3
    """Tokens that it sees, itself included."""
    bias: bool = False
    """Whether its linear layers and the convolution have a bias."""


class Identity(Part):
    """Nothing: the residual stream passes (the third choice of PAR's search, Mandava et al. 2020, §2.1)."""

    kind: Literal["identity"] = "identity"


Block = Annotated[Attention | FeedForward | Sru | Srupp | Identity | ShortConv, Field(discriminator="kind")]
BLOCK_KINDS = ("attention", "feed_forward", "sru", "srupp", "identity", "short_conv")
