"""Units of sizes, and numbers as people read them.

Memory, and limits on it (`memory_mb`), are given and shown in MB; sizes of files in MiB and GiB.
"""

from __future__ import annotations

import math

MB = 10**6
MIB = 1 << 20
GIB = 1 << 30

_PLAIN = 1e15
"""Numbers of up to so much are written out."""


def plain(value: float) -> str:
    """`0.05`, `1234.5`, `300000000`: to six digits, a larger one in full; beyond all sense with an exponent."""
    return f"{value:.0f}" if 1e6 <= value < _PLAIN else f"{value:g}"


def rounded(value: float, digits: int) -> str:
    """To so many significant digits, without an exponent: `1.23`, `12300`."""
    return plain(float(f"{value:.{digits}g}"))


def decimals(half_width: float) -> int:
    """Of a figure whose interval is so wide to each side: down to the first digit of that, or the second behind a 1 or
    2. `half_width` above 0.
    """
    exponent = math.floor(math.log10(half_width))
    return min(3, max(0, (half_width / 10.0**exponent < 2.95) - exponent))


def rounded_up(value: float) -> float:
    """Rounds up to three digits; value above 0."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")
