"""Description of a forward pass, to count its costs. Imports no numpy, because the command line imports this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["forward", "prefill", "decode"]
Logits = Literal["all", "last", "none"]
"""Positions whose scores a forward pass returns; "none" returns hidden states instead."""


@dataclass(frozen=True)
class Pass:
    """A forward pass of `batch` sequences with `tokens` new tokens each, after `memory` past tokens.

    In mode "forward" the past tokens are a segment memory of layer inputs, in "decode" a cache of keys and values.
    `encoder_tokens` is the length of the source of a translation model.
    """

    batch: int
    tokens: int
    memory: int = 0
    encoder_tokens: int = 0
    mode: Mode = "forward"
    logits: Logits = "all"

    @property
    def positions(self) -> int:
        """Number of positions, in all sequences together, whose output scores are computed (the option `logits`)."""
        return {"all": self.batch * self.tokens, "last": self.batch, "none": 0}[self.logits]
