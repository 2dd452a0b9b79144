"""Dropout rates of a training. The rates are not part of an architecture and do not affect measurements."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Dropout(BaseModel):
    """Dropout rates: probabilities of setting a number to zero; the remaining numbers are scaled up by 1/(1 - p)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embedding: Rate = 0.0
    """Applies to the input of the first block."""
    narrow: Rate = 0.0
    """Applies to embeddings before their projection to d_model, and to hidden states after their projection to the
    embedding's width (SRU++ on words)."""
    hidden: Rate = 0.0
    """Applies to the update of an attention and of a feed-forward block, to Transformer-XL's sinusoids, and to the
    input of SRU++'s W^o.
    """
    inner: Rate | None = None
    """Applies to the inner activations of a feed-forward block. None means the rate `hidden` (Transformer-XL); BERT and
    GPT-2 have no such dropout.
    """
    attention: Rate = 0.0
    """Applies to the probabilities of attention, including SRU++'s."""
    highway: Rate = 0.0
    """Applies to the update of SRU's highway, with one mask for all tokens of a sequence, except in the final block."""
    output: Rate = 0.0
    """Applies to the input of the output layer; in a model of classes, to the pooled vector after its tanh (BERT)."""


NO_DROPOUT = Dropout()
