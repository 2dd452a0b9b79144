"""The pass whose costs are counted. Without numpy, as the command line loads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["forward", "prefill", "decode"]
Logits = Literal["all", "last", "none"]
"""The positions whose scores a pass returns; "none": hidden states instead."""


@dataclass(frozen=True)
class Pass:
    """`batch` sequences of `tokens` new tokens each, after `memory` past ones.

    In forward a memory is a segment memory of layer inputs, in decode a cache of keys and values. `encoder_tokens` is
    the length of the source of a translation model.
    """

    batch: int
    tokens: int
    memory: int = 0
    encoder_tokens: int = 0
    mode: Mode = "forward"
    logits: Logits = "all"

    @property
    def positions(self) -> int:
        """Positions that `logits` names, of all sequences together."""
        return {"all": self.batch * self.tokens, "last": self.batch, "none": 0}[self.logits]
