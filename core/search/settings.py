"""Sizes of a generation that is made in several ways, such as parents, mutants and crossovers."""

from __future__ import annotations

from collections.abc import Mapping


def shared(total: int, given: Mapping[str, int], defaults: Mapping[str, int]) -> dict[str, int]:
    """`defaults` with the `given` parts, the others shrunk or grown in proportion so that all make `total`.

    Whole numbers by largest remainder, the earlier part first. What cannot be shared out because every part is given
    is the caller's to refuse.
    """
    free = {name: size for name, size in defaults.items() if name not in given}
    left = total - sum(given.values())
    weight = sum(free.values())
    parts = {**defaults, **given}
    if not free or left < 0 or not weight:
        return parts
    exact = {name: left * size / weight for name, size in free.items()}
    parts.update({name: int(share) for name, share in exact.items()})
    by_remainder = sorted(free, key=lambda name: int(exact[name]) - exact[name])
    for name in by_remainder[: left - sum(int(share) for share in exact.values())]:
        parts[name] += 1
    return parts
