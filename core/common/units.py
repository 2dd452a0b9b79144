"""Units of sizes, formatting of numbers, and parsing of counts of training tokens (`10B`, `300M`, `1e9`).

Memory and memory limits (`memory_mb`) are in MB; sizes of files are in MiB and GiB.
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
"""Numbers below this bound are written without an exponent."""


def plain(value: float) -> str:
    """A number as text with six significant digits, or as a whole number from a million on: `0.05`, `300000000`."""
    return f"{value:.0f}" if 1e6 <= value < _PLAIN else f"{value:g}"


def rounded(value: float, digits: int) -> str:
    """A number as text with this number of significant digits, without an exponent: `1.23`, `12300`."""
    return plain(float(f"{value:.{digits}g}"))


def decimals(half_width: float) -> int:
    """Number of decimals (0 to 3) to print for a figure with an uncertainty interval of this half-width above 0.

    The last printed digit is the half-width's first significant digit, or the second if the first is 1 or 2.
    """
    exponent = math.floor(math.log10(half_width))
    return min(3, max(0, (half_width / 10.0**exponent < 2.95) - exponent))


def rounded_up(value: float) -> float:
    """Rounds a value above 0 up to three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")


MIN_TRAIN_TOKENS, MAX_TRAIN_TOKENS = 1, 10**18
COUNT_FORMAT = "a count from 1 to 10^18, such as 300M, 10B or 1e9"
_TOKEN_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_TOKEN_COUNT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,18})?(?:e\+?[0-9]{1,3})?)([kmbt]?)", re.IGNORECASE | re.ASCII)


def parse_token_count(text: str, option: str = "train-tokens") -> int:
    """Parses a count of tokens; K, M, B and T are 10^3, 10^6, 10^9 and 10^12.

    Raises `InvalidInput`, which names `option`, if the text is not a count in the permitted range.
    """
    match = _TOKEN_COUNT.fullmatch(text)
    count = None if match is None else Decimal(match[1]) * _TOKEN_UNITS[match[2].lower()]
    if count is None or count != count.to_integral_value() or not MIN_TRAIN_TOKENS <= count <= MAX_TRAIN_TOKENS:
        raise InvalidInput(
            f"--{option} {text!r} is not a count of tokens: give {COUNT_FORMAT}",
            field=option,
            value=text,
            allowed=COUNT_FORMAT,
        )
    return int(count)
