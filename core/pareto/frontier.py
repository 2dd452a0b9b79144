"""Dominance, hypervolume and a frontier that is kept up as reports arrive: arrays in, arrays out.

A point is (proxy, latency_ms, memory_bytes): the proxy is wanted high, the others low. A point dominates another if it
is nowhere worse and somewhere better; so equal points do not dominate each other, and all of them are on the frontier.
Non-dominated sets and hypervolumes are moocore's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = NDArray[np.float64]
Mask = NDArray[np.bool_]
Key = TypeVar("Key", bound=Hashable)

LARGE = 512
"""Frontiers from this size on have their hypervolume kept up by what each point that comes or goes dominates alone."""

_MAXIMISE = (True, False, False)
_SIGN = np.array([-1.0, 1.0, 1.0])


def nondominated(points: ArrayLike) -> Mask:
    """Which of the points (n, 3) no other dominates; of equal points all. ValueError if one is not finite."""
    checked = _checked(points)
    if not len(checked):
        return np.zeros(0, dtype=bool)
    mask: Mask = np.asarray(moocore.is_nondominated(checked, maximise=_MAXIMISE, keep_weakly=True), dtype=bool)
    return mask


def hypervolume(points: ArrayLike, reference: Mapping[str, float]) -> float:
    """Volume that the points (n, 3) dominate, in units of the box between the ideal corner and the reference point.

    Args:
        points: dominated ones and those beyond the reference point add nothing.
        reference: `proxy` (the least one), `latency_ms` and `memory_bytes` (the worst ones) are the reference point;
            the ideal corner is (`proxy_scale`, 0, 0). A proxy above `proxy_scale` can make the volume exceed 1.
    """
    checked = _checked(points)
    if not len(checked):
        return 0.0
    return _hypervolume(_normalised(checked, reference))


@dataclass(frozen=True)
class Change(Generic[Key]):
    """What a report did to a frontier."""

    joined: tuple[Key, ...] = ()
    left: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.joined or self.left)


class Frontier(Generic[Key]):
    """The non-dominated points of a growing set, by key.

    It holds every point it was given, dominated ones too: they come back when what dominated them is removed or gets
    worse. Inserting compares with the frontier alone; only a frontier point that leaves or gets worse needs the rest.
    """

    def __init__(
        self, points: Iterable[tuple[Key, ArrayLike]] = (), *, reference: Mapping[str, float] | None = None
    ) -> None:
        self._reference = dict(reference) if reference is not None else None
        given = dict(points)
        self._keys: list[Key] = list(given)
        self._row: dict[Key, int] = {key: row for row, key in enumerate(self._keys)}
        # Everything is minimised inside: the proxy's sign is turned. Rows beyond len(self._keys) are spare room.
        self._costs = _checked(list(given.values())) * _SIGN
        self._front: Mask = nondominated(self._costs * _SIGN)
        self._volume: float | None = None

    def __len__(self) -> int:
        """Size of the frontier."""
        return int(np.count_nonzero(self._front[: len(self._keys)]))

    def __contains__(self, key: object) -> bool:
        """Whether this key is on the frontier."""
        row = self._row.get(key)  # type: ignore[arg-type]
        return row is not None and bool(self._front[row])

    @property
    def keys(self) -> tuple[Key, ...]:
        """Keys on the frontier, by rising proxy."""
        rows = self._front_rows()
        return tuple(self._keys[row] for row in rows[np.argsort(-self._costs[rows, 0], kind="stable")])

    @property
    def points(self) -> Points:
        """Points on the frontier (n, 3), in the order of `keys`."""
        rows = self._front_rows()
        ordered = rows[np.argsort(-self._costs[rows, 0], kind="stable")]
        found: Points = self._costs[ordered] * _SIGN
        return found

    @property
    def total(self) -> int:
        """How many points it was given, dominated ones included."""
        return len(self._keys)

    @property
    def hypervolume(self) -> float:
        """Hypervolume of the frontier against the reference it was made with; ValueError without one."""
        if self._reference is None:
            raise ValueError("a hypervolume needs a reference: Frontier(reference=…)")
        if self._volume is None:
            self._volume = hypervolume(self._costs[self._front_rows()] * _SIGN, self._reference)
        return self._volume

    def insert(self, key: Key, point: ArrayLike) -> Change[Key]:
        """Adds a point under a new key (KeyError if it is there) and says who joined and left the frontier."""
        if key in self._row:
            raise KeyError(key)
        cost = self._cost(point)
        row = len(self._keys)
        if row == len(self._costs):
            self._grow()
        self._keys.append(key)
        self._row[key] = row
        self._costs[row] = cost
        self._front[row] = False
        return self._place(row)

    def remove(self, key: Key) -> Change[Key]:
        """Takes a point away (KeyError if it is not there); those that only it dominated join."""
        row, last = self._row[key], len(self._keys) - 1
        was_front, cost = bool(self._front[row]), self._costs[row].copy()
        moved = self._keys[last]
        self._keys[row], self._row[moved] = moved, row
        self._costs[row], self._front[row] = self._costs[last], self._front[last]
        self._front[last] = False
        self._keys.pop()
        del self._row[key]
        if not was_front:
            return Change()
        return Change(joined=self._freed_by(cost), left=(key,))

    def update(self, key: Key, point: ArrayLike) -> Change[Key]:
        """Moves the point of a key, or adds it; keys that were and stay on the frontier are not in the change."""
        if key not in self._row:
            return self.insert(key, point)
        row, cost = self._row[key], self._cost(point)
        old = self._costs[row].copy()
        if np.array_equal(old, cost):
            return Change()
        was_front = bool(self._front[row])
        self._costs[row], self._front[row] = cost, False
        freed = self._freed_by(old, but=row) if was_front else ()
        placed = self._place(row)
        # A point that was freed may be dominated by the new place at once, and the key itself may merely have moved.
        on = [one for one in (*freed, *placed.joined) if one not in placed.left and not (was_front and one == key)]
        off = [one for one in placed.left if one not in freed]
        if was_front and not placed.joined:
            off.append(key)
        return Change(tuple(on), tuple(off))

    def _place(self, row: int) -> Change[Key]:
        """Puts a row that is not on the frontier there if nothing dominates it, and takes off what it dominates."""
        cost, rows = self._costs[row], self._front_rows()
        front = self._costs[rows]
        differs = ~_all(front == cost)
        if (_all(front <= cost) & differs).any():
            return Change()
        self._add_volume(cost, front, 1.0)
        beaten = rows[_all(front >= cost) & differs]
        self._front[beaten] = False
        self._front[row] = True
        return Change(joined=(self._keys[row],), left=tuple(self._keys[index] for index in beaten))

    def _freed_by(self, cost: Points, but: int = -1) -> tuple[Key, ...]:
        """Takes onto the frontier the points that nothing dominates now that `cost`, a frontier point, is gone."""
        count = len(self._keys)
        below = ~self._front[:count] & _all(self._costs[:count] >= cost)
        if 0 <= but < count:
            below[but] = False
        rows, front = np.flatnonzero(below), self._costs[self._front_rows()]
        freed = rows
        if len(rows):
            # Of the points it dominated, those not dominated by each other or by the rest of the frontier.
            freed = rows[nondominated(np.concatenate([self._costs[rows], front]) * _SIGN)[: len(rows)]]
            self._front[freed] = True
        self._add_volume(cost, np.concatenate([front, self._costs[freed]]), -1.0)
        return tuple(self._keys[row] for row in freed)

    def _add_volume(self, cost: Points, others: Points, sign: float) -> None:
        """Adds to the hypervolume what `cost` alone dominates beside `others` (its box less their part of it).

        On a large frontier this is several times faster than computing the whole volume again; on a small one, and
        where the volume is not known, it is left to be computed when it is asked for.
        """
        if self._volume is None or self._reference is None or len(others) < LARGE:
            self._volume = None
            return
        box = hypervolume(cost[None] * _SIGN, self._reference)
        shared = hypervolume(np.maximum(others, cost) * _SIGN, self._reference)
        self._volume += sign * (box - shared)

    def _front_rows(self) -> NDArray[np.intp]:
        return np.flatnonzero(self._front[: len(self._keys)])

    def _cost(self, point: ArrayLike) -> Points:
        cost: Points = _checked([point])[0] * _SIGN
        return cost

    def _grow(self) -> None:
        room = max(64, len(self._costs))
        self._costs = np.concatenate([self._costs, np.zeros((room, 3))])
        self._front = np.concatenate([self._front, np.zeros(room, dtype=bool)])


def _all(mask: Mask) -> Mask:
    """`mask.all(axis=1)` of three columns, many times as fast."""
    found: Mask = mask[:, 0] & mask[:, 1] & mask[:, 2]
    return found


def _checked(points: Any) -> Points:
    array = np.asarray(points, dtype=np.float64)
    array = array.reshape(0, 3) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"points have the shape (n, 3): proxy, latency_ms, memory_bytes; not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("points must be finite")
    return array


def _normalised(points: Points, reference: Mapping[str, float]) -> Points:
    """Points with the reference at (0, 1, 1) and the ideal corner at (1, 0, 0)."""
    low, scale = reference["proxy"], reference["proxy_scale"]
    return np.column_stack(
        [
            (points[:, 0] - low) / (scale - low),
            points[:, 1] / reference["latency_ms"],
            points[:, 2] / reference["memory_bytes"],
        ]
    )


def _hypervolume(normalised: Points) -> float:
    return float(moocore.hypervolume(normalised, ref=(0.0, 1.0, 1.0), maximise=_MAXIMISE))
