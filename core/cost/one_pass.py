"""What is run: the pass that costs and features are counted for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["forward", "prefill", "decode"]
Logits = Literal["all", "last", "none"]


@dataclass(frozen=True)
class Pass:
    """`batch` sequences of `tokens` new tokens each, after `memory` earlier ones.

    In forward a memory is a segment memory of layer inputs, in decode a cache of keys and values. `source` tokens
    stand on the other side of a translation model.
    """

    batch: int
    tokens: int
    memory: int = 0
    source: int = 0
    mode: Mode = "forward"
    logits: Logits = "all"

    @property
    def positions(self) -> int:
        """Positions that `logits` names, of all sequences together."""
        return {"all": self.batch * self.tokens, "last": self.batch, "none": 0}[self.logits]
