"""Dropout of a training: how much, and where. No part of an architecture, and nothing when a model is measured."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Dropout(BaseModel):
    """Probabilities that a number is set to zero, the others being scaled up by 1/(1 - p)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embedding: Rate = 0.0
    """Of what enters the first block."""
    narrow: Rate = 0.0
    """Of a projected embedding's vectors before their projection, and of those that a softmax reads after its own
    (SRU++ on words)."""
    hidden: Rate = 0.0
    """Of the update of an attention and of a feed-forward block, of Transformer-XL's sinusoids, of what SRU++'s W^o
    reads."""
    inner: Rate | None = None
    """Of a feed-forward block's inner activations: as `hidden` if absent (Transformer-XL); BERT and GPT-2 have none."""
    attention: Rate = 0.0
    """Of attention's probabilities, SRU++'s too."""
    highway: Rate = 0.0
    """Of SRU's update to its highway, one mask for all of a row's tokens; the last block has none."""
    output: Rate = 0.0
    """Of the states that the output layer reads; of a model of classes, of the pooled vector after its tanh (BERT)."""


NO_DROPOUT = Dropout()
