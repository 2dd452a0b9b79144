"""One gene of a search space: the values it may take, and how a job narrows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefront.core.errors import SpaceError
from edgefront.core.validation import short

Value = int | str
_RANGE_KEYS = frozenset({"min", "max", "step"})


@dataclass(frozen=True)
class Gene:
    """`values` are what the search draws from, `options` what a job may choose from.

    They differ only for a gene that is fixed unless it is freed, such as the adaptive factor of the LTS searches.
    Values are integers in rising order, or one word that names another gene to follow (`d_model`). A `per_layer` gene
    has one value in each layer.
    """

    name: str
    values: tuple[Value, ...]
    options: tuple[Value, ...] = ()
    per_layer: bool = False

    def __post_init__(self) -> None:
        if not self.options:
            object.__setattr__(self, "options", self.values)

    def narrowed(self, narrowing: Any) -> Gene:
        """This gene with the wanted values only: one value, a list of values, or {min, max, step} (each optional).

        Raises `SpaceError` if a value is not among `options`, or if none is left.
        """
        if isinstance(narrowing, Mapping):
            values = self._range(narrowing)
        else:
            values = tuple(narrowing) if isinstance(narrowing, list | tuple) else (narrowing,)
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int | str) or value not in self.options:
                    raise self._error(f"{self.name} cannot be {short(value)} in this space", value)
        if not values:
            raise self._error(f"narrowing {self.name} to {short(narrowing)} leaves no value", narrowing)
        return self.keeping(values)

    def keeping(self, values: Collection[Value]) -> Gene:
        """This gene with `values` and no others, in the order of `options`."""
        kept = set(values)
        chosen = tuple(option for option in self.options if option in kept)
        return Gene(self.name, chosen, chosen, self.per_layer)

    def describe(self) -> dict[str, Any]:
        """For people and clients: {min, max, step} or {values}, whether per layer, and `options` where they differ."""
        described: dict[str, Any] = _spread(self.values)
        if self.options != self.values:
            described["options"] = list(self.options)
        return {**described, "per_layer": self.per_layer}

    def _range(self, bounds: Mapping[str, Any]) -> tuple[Value, ...]:
        unknown = sorted(str(key) for key in set(bounds) - _RANGE_KEYS)
        if unknown:
            raise self._error(
                f"a range of {self.name} has min, max and step, not {short(', '.join(unknown))}", dict(bounds)
            )
        for key, value in bounds.items():
            if isinstance(value, bool) or not isinstance(value, int) or (key == "step" and value < 1):
                kind = "a positive integer" if key == "step" else "an integer"
                raise self._error(f"{key} of {self.name} must be {kind}, not {short(value)}", value, key)
        numbers = [option for option in self.options if isinstance(option, int)]
        if not numbers:
            raise self._error(f"{self.name} has no range: its values are words", dict(bounds))
        low, high = bounds.get("min", numbers[0]), bounds.get("max", numbers[-1])
        inside = [number for number in numbers if low <= number <= high]
        start = low if low in numbers else (inside[0] if inside else low)
        step = bounds.get("step", 1)
        if step != 1 and start + step <= high and start + step not in numbers:
            raise self._error(f"{self.name}.step {step} leaves its values after {start}", step, "step")
        return tuple(number for number in inside if (number - start) % step == 0)

    def _error(self, detail: str, value: Any, key: str = "") -> SpaceError:
        allowed = in_words(self.options)
        field = f"{self.name}.{key}" if key else self.name
        return SpaceError(f"{detail}; allowed: {allowed}", field=field, value=value, allowed=allowed)


def in_words(values: Sequence[Value]) -> str:
    """Values for an error message: `128 to 1024 in steps of 64`, or a list."""
    spread = _spread(values)
    if "min" in spread and spread["step"] == 1:
        return f"{spread['min']} to {spread['max']}"
    if "min" in spread:
        return f"{spread['min']} to {spread['max']} in steps of {spread['step']}"
    return ", ".join(str(value) for value in values)


def _spread(values: Sequence[Value]) -> dict[str, Any]:
    if len(values) > 3 and isinstance(values[0], int) and isinstance(values[1], int):
        step = values[1] - values[0]
        if list(values) == list(range(values[0], values[0] + step * len(values), step)):
            return {"min": values[0], "max": values[-1], "step": step}
    return {"values": list(values)}


def steps(low: int, high: int, step: int) -> tuple[int, ...]:
    """The values from `low` to `high`, both included."""
    return tuple(range(low, high + 1, step))
