"""Fields of a `config.json`, read with their faults collected."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Activation
from edgefront.core.validation import short

_MAX_ERRORS = 20
"""So many fields are listed."""
_REQUIRED: Any = object()
_Value = TypeVar("_Value")

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Ours by the names of transformers; the first of each is the one that is written."""
WRITTEN = {ACTIVATIONS[theirs]: theirs for theirs in reversed(list(ACTIVATIONS))}


class Fields:
    """Reads a configuration and collects what is wrong with it, so that one error has it all."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._errors: list[dict[str, Any]] = []

    def fault(self, field: str, value: Any, reason: str, allowed: str) -> None:
        shown = field if value is None else f"{field} {short(value)}"
        detail = f"{shown}: {reason}"
        self._errors.append({"field": field, "value": value, "allowed": allowed, "detail": detail})

    def finish(self) -> None:
        """Raises what was collected."""
        if not self._errors:
            return
        first, count = self._errors[0], len(self._errors)
        raise InvalidInput(
            f"config.json has {count} field{'s' * (count > 1)} that cannot be expressed: "
            + "; ".join(error["detail"] for error in self._errors[:_MAX_ERRORS]),
            field=first["field"],
            value=first["value"],
            allowed=first["allowed"],
            errors=self._errors[:_MAX_ERRORS],
        )

    def get(self, field: str, kinds: tuple[type, ...], allowed: str, default: _Value) -> _Value:
        """The value of one of these types, a null or a missing one being the default."""
        value = self.config.get(field)
        if value is None:
            if default is _REQUIRED:
                self.fault(field, value, "it is missing", allowed)
            return default
        if type(value) not in kinds:
            self.fault(field, value, f"must be {allowed}", allowed)
            return default
        return value  # type: ignore[no-any-return]

    def count(self, field: str, default: int = _REQUIRED) -> int:
        """A positive integer; 1 where it is wrong."""
        value = self.get(field, (int,), "a positive integer", default)
        if value is not _REQUIRED and value is not None and value < 1:
            self.fault(field, value, "must be a positive integer", "a positive integer")
            return 1
        return 1 if value is _REQUIRED else value

    def flag(self, field: str, default: bool) -> bool:
        return self.get(field, (bool,), "true or false", default)

    def fixed(self, field: str, wanted: Any) -> None:
        """A field of which only one value can be expressed."""
        value = self.config.get(field)
        if value is not None and value != wanted:
            self.fault(field, value, f"only {json.dumps(wanted)} can be expressed", json.dumps(wanted))

    def one_of(self, field: str, allowed: tuple[str, ...], default: str = _REQUIRED) -> str:
        words = " or ".join((", ".join(allowed[:-1]), allowed[-1]))
        value = self.get(field, (str,), words, default)
        if value is not _REQUIRED and value not in allowed:
            self.fault(field, value, f"there are {words}", words)
        return value

    def activation(self, field: str, default: str) -> Activation:
        return ACTIVATIONS.get(self.one_of(field, tuple(ACTIVATIONS), default), "gelu")

    def epsilon(self, field: str, default: float) -> str:
        value = self.get(field, (float, int), "a power of ten", default)
        for digits in range(1, 13):
            if value == float(f"1e-{digits}"):
                return f"1e-{digits}"
        self.fault(field, value, "must be a power of ten", "1e-1 to 1e-12")
        return "1e-5"

    def layer_types(self, allowed: tuple[str, str], layers: int, default: list[str]) -> list[str]:
        """One of two kinds for each layer."""
        value = self.get("layer_types", (list,), "a list", default)
        if len(value) != layers:
            self.fault("layer_types", value, f"must have {layers} entries, as num_hidden_layers", f"{layers} entries")
            return default
        wrong = [index for index, kind in enumerate(value) if kind not in allowed]
        for index in wrong:
            self.fault(f"layer_types.{index}", value[index], f"there are {' and '.join(allowed)}", " or ".join(allowed))
        return default if wrong else value

    def rotary(self, theta: int) -> dict[str, Any]:
        """Rotary positions; of the ways to stretch them that of Llama 3."""
        name = next((name for name in ("rope_parameters", "rope_scaling") if self.config.get(name)), "rope_scaling")
        given: Any = self.get(name, (dict,), "an object", {})
        base = given.get("rope_theta") or self.config.get("rope_theta") or theta
        positions: dict[str, Any] = {"kind": "rotary", "theta": self._whole("rope_theta", base)}
        share = given.get("partial_rotary_factor", self.config.get("partial_rotary_factor"))
        if share not in (None, 1):
            self.fault("partial_rotary_factor", share, "models of this type turn whole heads", "1")
        kind = given.get("rope_type") or given.get("type") or "default"
        if kind == "llama3":
            positions["scaling"] = {
                ours: self._whole(f"{name}.{theirs}", given.get(theirs))
                for ours, theirs in (
                    ("factor", "factor"),
                    ("length", "original_max_position_embeddings"),
                    ("low", "low_freq_factor"),
                    ("high", "high_freq_factor"),
                )
            }
        elif kind != "default":
            self.fault(f"{name}.rope_type", kind, "only default and llama3 can be expressed", "default or llama3")
        return positions

    def _whole(self, field: str, value: Any) -> int:
        """A whole number, also one that is written as 10000.0."""
        if type(value) in (int, float) and math.isfinite(value) and value >= 1 and value == int(value):
            return int(value)
        self.fault(field, value, "must be a whole number", "a whole number")
        return 2
