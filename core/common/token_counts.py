"""Counts of training tokens as people write them: `10B`, `300M`, `1e9`, `10000000000`."""

from __future__ import annotations

import re
from decimal import Decimal

from edgefront.core.common.errors import InvalidInput

MIN_TRAIN_TOKENS, MAX_TRAIN_TOKENS = 1, 10**18
ALLOWED = "a count from 1 to 10^18, such as 300M, 10B or 1e9"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_WRITTEN = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,18})?(?:e\+?[0-9]{1,3})?)([kmbt]?)", re.IGNORECASE | re.ASCII)


def parse_token_count(text: str, option: str = "train-tokens") -> int:
    """The count that `text` stands for; K, M, B and T are 10^3, 10^6, 10^9 and 10^12.

    `InvalidInput` names `option` and says what would be right.
    """
    match = _WRITTEN.fullmatch(text)
    count = None if match is None else Decimal(match[1]) * _UNITS[match[2].lower()]
    if count is None or count != count.to_integral_value() or not MIN_TRAIN_TOKENS <= count <= MAX_TRAIN_TOKENS:
        raise InvalidInput(
            f"--{option} {text!r} is no count of tokens: give {ALLOWED}", field=option, value=text, allowed=ALLOWED
        )
    return int(count)
