"""Units of sizes, numbers as text, and counts of training tokens (`10B`, `300M`, `1e9`).

Memory, and limits on it (`memory_mb`), are in MB; sizes of files are in MiB and GiB.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from edgefront.core.common.errors import InvalidInput

MB = 10**6
MIB = 1 << 20
GIB = 1 << 30

_PLAIN = 1e15
"""Numbers up to this are written without an exponent."""


def plain(value: float) -> str:
    """`0.05`, `1234.5`, `300000000`: six significant digits, integers in full."""
    return f"{value:.0f}" if 1e6 <= value < _PLAIN else f"{value:g}"


def rounded(value: float, digits: int) -> str:
    """Text with this number of significant digits, without an exponent: `1.23`, `12300`."""
    return plain(float(f"{value:.{digits}g}"))


def decimals(half_width: float) -> int:
    """Decimals of a figure with this half-width (above 0): those of its first significant digit, or of its second if
    the first is 1 or 2.
    """
    exponent = math.floor(math.log10(half_width))
    return min(3, max(0, (half_width / 10.0**exponent < 2.95) - exponent))


def rounded_up(value: float) -> float:
    """Rounds up to three digits; value above 0."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")


MIN_TRAIN_TOKENS, MAX_TRAIN_TOKENS = 1, 10**18
COUNT_FORMAT = "a count from 1 to 10^18, such as 300M, 10B or 1e9"
_TOKEN_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_TOKEN_COUNT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,18})?(?:e\+?[0-9]{1,3})?)([kmbt]?)", re.IGNORECASE | re.ASCII)


def parse_token_count(text: str, option: str = "train-tokens") -> int:
    """The count as an integer; K, M, B and T are 10^3, 10^6, 10^9 and 10^12.

    `InvalidInput` names `option` and says what would be right.
    """
    match = _TOKEN_COUNT.fullmatch(text)
    count = None if match is None else Decimal(match[1]) * _TOKEN_UNITS[match[2].lower()]
    if count is None or count != count.to_integral_value() or not MIN_TRAIN_TOKENS <= count <= MAX_TRAIN_TOKENS:
        raise InvalidInput(
            f"--{option} {text!r} is no count of tokens: give {COUNT_FORMAT}",
            field=option,
            value=text,
            allowed=COUNT_FORMAT,
        )
    return int(count)
