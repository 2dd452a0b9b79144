"""Block patterns of PAR Transformer and Sandwich Transformer: `(sfff)x6(f)x8`.

A pattern is a sequence of groups: letters in brackets and their number of repetitions (`x6`; one if absent). Spaces
between groups are allowed. The usual letters are s (attention), f (feed-forward) and i (identity).
"""

from __future__ import annotations

import math
import re

from edgefront.core.common.errors import ArchitectureError
from edgefront.core.common.validation import short

MAX_LETTERS = 1024
_GROUP = 32  # maximum letters of a group in a contracted pattern
_BLOCKS = re.compile(r"\s*\(([^()]*)\)(?:\s*x\s*([0-9]+))?\s*")


def expand(pattern: str, letters: str = "sfi") -> str:
    """Expands a pattern: `(sf)x2 (f)` → `sfsff`. Raises `ArchitectureError` with the position of the fault."""
    blocks, at = "", 0
    while at < len(pattern) or not blocks:
        match = _BLOCKS.match(pattern, at)
        if match is None:
            rest = repr(pattern[at : at + 20]) if pattern[at:].strip() else "nothing"
            raise _wrong(pattern, f"a group must be letters in brackets, but at character {at + 1} there is {rest}")
        group = "".join(match[1].split())
        # Five digits exceed the maximum already; Python does not parse numbers of thousands of digits.
        count = 1 if match[2] is None else int(match[2].lstrip("0")[:5] or 0)
        if not group or not set(group) <= set(letters):
            raise _wrong(
                pattern, f"the letters of a group must be {', '.join(letters)}, at least one, not {short(group)}"
            )
        if count < 1:
            raise _wrong(pattern, f"the group {short(group)} must be repeated at least once")
        if len(blocks) + count * len(group) > MAX_LETTERS:
            raise _wrong(pattern, f"this is more than {MAX_LETTERS} blocks")
        blocks += group * count
        at = match.end()
    return blocks


def contract(letters: str) -> str:
    """Contracts letters to the shortest pattern with groups of up to 32 letters: `sfsff` → `(sf)x2(f)`."""
    best: list[str] = [""] * (len(letters) + 1)  # shortest pattern of the letters from each index on
    for at in range(len(letters) - 1, -1, -1):
        spellings = []
        for length in range(1, min(_GROUP, len(letters) - at) + 1):
            group, end, count = letters[at : at + length], at + length, 1
            while letters.startswith(group, end):
                end, count = end + length, count + 1
            times = f"x{count}" if count > 1 else ""
            spellings.append(f"({group}){times}{best[end]}")
            if count > 1:
                spellings.append(f"({group}){best[at + length]}")
        best[at] = min(spellings, key=len)
    return best[0]


def par_pattern(layers: int, p: int = 5) -> str:
    """Pattern by PAR's design rules (Mandava et al. 2020, §2.3): round(layers / p) attentions in the first two thirds.

    The paper says "uniformly". A stride of ceil((R - 1) / n) from the first layer on, with n attentions and R =
    round(2·layers / 3), gives all of the paper's patterns for 24, 32 and 36 layers; with 36 layers the final attention
    is one layer after R. A larger stride is shortened. The paper uses p above 2.
    """
    if layers < 2 or p < 1:
        raise ArchitectureError(
            f"a pattern needs at least 2 layers and p at least 1, not {layers} and {p}",
            field="layers" if layers < 2 else "p",
            value=layers if layers < 2 else p,
            allowed="layers ≥ 2, p ≥ 1",
        )
    attention, region = max(1, round(layers / p)), round(2 * layers / 3)
    stride = max(1, math.ceil((region - 1) / attention))
    while stride > 1 and (attention - 1) * stride > region:
        stride -= 1
    rest = layers - attention * stride
    group = f"(s{'f' * (stride - 1)})x{attention}"
    return group + (f"(f)x{rest}" if rest else "")


def _wrong(pattern: str, reason: str) -> ArchitectureError:
    return ArchitectureError(
        f"pattern: {reason}",
        field="pattern",
        value=pattern,
        allowed="groups such as (sfff)x6(f)x8",
    )
