"""Dropout rates of a training. They are not part of an architecture and play no role in measurements."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Dropout(BaseModel):
    """Probabilities that a number is set to zero, the others being scaled up by 1/(1 - p)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embedding: Rate = 0.0
    """Applies to what enters the first block."""
    narrow: Rate = 0.0
    """Applies to embeddings before their projection to d_model, and to hidden states after their projection to the
    embedding's width (SRU++ on words)."""
    hidden: Rate = 0.0
    """Applies to the update of an attention and of a feed-forward block, to Transformer-XL's sinusoids, and to what
    SRU++'s W^o reads."""
    inner: Rate | None = None
    """Applies to the inner activations of a feed-forward block. If absent it is `hidden` (Transformer-XL); BERT and
    GPT-2 have none."""
    attention: Rate = 0.0
    """Applies to the probabilities of attention, SRU++'s too."""
    highway: Rate = 0.0
    """Applies to SRU's update to its highway, with one mask for all tokens of a row; the last block has none."""
    output: Rate = 0.0
    """Applies to the states that the output layer reads; in a model of classes, to the pooled vector after its tanh
    (BERT)."""


NO_DROPOUT = Dropout()
