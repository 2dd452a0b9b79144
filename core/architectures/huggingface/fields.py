"""Reads the fields of a `config.json` and collects faults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from edgefront.core.architectures.architecture import Activation
from edgefront.core.architectures.embeddings_and_head import MAX_CONTEXT
from edgefront.core.architectures.numbers import MAX_FLOAT32, as_number, as_text, is_positive
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.validation import short

_MAX_ERRORS = 20
"""Maximum number of fields in one error."""
REQUIRED: Any = object()
_POSITIVE = "a positive number"
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
"""Names of activations in transformers → names in descriptions; the first name of each activation is written."""
WRITTEN = {ACTIVATIONS[theirs]: theirs for theirs in reversed(list(ACTIVATIONS))}


class Fields:
    """Reads the fields of a configuration, and collects the configuration's faults for one error."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._read: set[str] = set()
        self._errors: list[dict[str, Any]] = []

    def fault(self, field: str, value: Any, reason: str, allowed: str) -> None:
        shown = field if value is None else f"{field} {short(value)}"
        detail = f"{shown}: {reason}"
        self._errors.append({"field": field, "value": value, "allowed": allowed, "detail": detail})

    def ignore(self, *fields: str) -> None:
        """Marks fields that do not change a model's output as read, so that `finish` accepts the fields."""
        self._read.update(fields)

    def finish(self) -> None:
        """Raises one error with the collected faults and a fault for each unread (unknown) field, if any."""
        for field, value in self.config.items():
            if field not in self._read and value is not None:
                self.fault(field, value, "its effect on the model is unknown", "leave it out")
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

    def value(self, field: str) -> Any:
        """Value of the field; None if the field is missing."""
        self._read.add(field)
        return self.config.get(field)

    def get(self, field: str, kinds: tuple[type, ...], allowed: str, default: _Value) -> _Value:
        """Value of the field, which must have one of the types `kinds`; the default if the value is null or missing."""
        value = self.value(field)
        if value is None:
            if default is REQUIRED:
                self.fault(field, value, "must be given", allowed)
            return default
        if type(value) not in kinds:
            self.fault(field, value, f"must be {allowed}", allowed)
            return default
        return value  # type: ignore[no-any-return]

    def either(self, *fields: str) -> str:
        """Returns the first of these alternative names that the file uses; adds a fault if their values differ."""
        given = [field for field in fields if self.value(field) is not None]
        for field in given[1:]:
            self.fixed(field, self.config[given[0]], f"must equal {given[0]} {short(self.config[given[0]])}")
        return given[0] if given else fields[0]

    def count(self, field: str, default: int = REQUIRED, *, null: int | None = None) -> int:
        """Reads a positive integer; returns 1 if the value is wrong, and for null `null`, or else the default."""
        if null is not None and field in self.config and self.config[field] is None:
            default = null
        value = self.get(field, (int,), "a positive integer", default)
        if value is not REQUIRED and value is not None and not 1 <= value <= MAX_CONTEXT:
            allowed = f"a positive integer up to {MAX_CONTEXT}"
            self.fault(field, value, f"must be {allowed}", allowed)
            return 1
        return 1 if value is REQUIRED else value

    def flag(self, field: str, default: bool) -> bool:
        return self.get(field, (bool,), "true or false", default)

    def fixed(self, field: str, required: Any, reason: str | None = None) -> None:
        """Adds a fault unless the field is absent or has the value `required`, the only value that can be expressed."""
        value = self.value(field)
        if value is not None and value != required:
            allowed = json.dumps(required)
            self.fault(field, value, reason or f"only {allowed} can be expressed", allowed)

    def one_of(self, field: str, allowed: tuple[str, ...], default: str = REQUIRED) -> str:
        words = " or ".join((", ".join(allowed[:-1]), allowed[-1]))
        value = self.get(field, (str,), words, default)
        if value is not REQUIRED and value not in allowed:
            self.fault(field, value, f"must be {words}", words)
        return value

    def activation(self, field: str, default: str) -> Activation:
        return ACTIVATIONS.get(self.one_of(field, tuple(ACTIVATIONS), default), "gelu")

    def positive(self, field: str, default: float) -> float:
        return self._positive(field, self.get(field, (float, int), _POSITIVE, default))

    def epsilon(self, field: str, default: float) -> str:
        return as_text(self.positive(field, default))

    def layer_types(self, allowed: tuple[str, str], layers: int, default: list[str]) -> list[str]:
        """Reads the field `layer_types`, a list with one of the two `allowed` words for each layer."""
        value = self.get("layer_types", (list,), "a list", default)
        if len(value) != layers:
            self.fault("layer_types", value, f"must have {layers} entries, as num_hidden_layers", f"{layers} entries")
            return default
        wrong = [index for index, kind in enumerate(value) if kind not in allowed]
        for index in wrong:
            self.fault(f"layer_types.{index}", value[index], f"must be {' or '.join(allowed)}", " or ".join(allowed))
        return default if wrong else value

    def rotary(
        self,
        theta: int,
        context: int,
        share: float | None = None,
        beside: tuple[str, str] = ("rope_theta", "partial_rotary_factor"),
    ) -> dict[str, Any]:
        """Reads rotary positions, plain or with Llama 3's scaling.

        Args:
            theta: default base of the rotation.
            context: default original length of a scaling.
            share: default share of each head that is rotated; None for a type that rotates whole heads.
            beside: this type's names of base and share outside `rope_parameters`.

        transformers reads `rope_scaling` if it is given, else `rope_parameters`, and takes missing values from outside.
        If the two objects disagree, one of the two is a mistake and a fault is added.
        """
        faults = len(self._errors)
        given = [name for name in ("rope_scaling", "rope_parameters") if self.get(name, (dict,), "an object", None)]
        rotaries = [self._rotary(name, self.config[name], theta, context, share, beside) for name in given]
        rotaries = rotaries or [self._rotary("", {}, theta, context, share, beside)]
        if rotaries[-1] != rotaries[0] and len(self._errors) == faults:
            self.fault(given[0], self.config[given[0]], "must agree with rope_parameters", "one of the two")
        return rotaries[0]

    def rotary_by_type(self, types: Mapping[str, tuple[int, str]], context: int) -> dict[str, dict[str, Any]]:
        """Reads the rotary positions of each type of layer: layer type → positions, in the form that `rotary` returns.

        `types` maps the type to its default theta and the name of theta outside `rope_parameters`, which has one object
        per type. `rope_scaling` belongs to full_attention.
        """
        given: dict[str, Any] = dict(self.get("rope_parameters", (dict,), "an object", {}))
        found: dict[str, dict[str, Any]] = {}
        for kind, (theta, beside) in types.items():
            inner = given.pop(kind, None) or {}
            if not isinstance(inner, Mapping):
                self.fault(f"rope_parameters.{kind}", inner, "must be an object", "an object")
                inner = {}
            if kind == "full_attention":
                inner = {**inner, **self.get("rope_scaling", (dict,), "an object", dict[str, Any]())}
            names = (beside, "partial_rotary_factor")
            found[kind] = self._rotary(f"rope_parameters.{kind}", inner, theta, context, None, names)
        for key, value in given.items():
            allowed = " and ".join(types)
            self.fault(f"rope_parameters.{key}", value, f"the keys must be {allowed}", allowed)
        return found

    def _rotary(
        self,
        name: str,
        given: Mapping[str, Any],
        theta: int,
        context: int,
        share: float | None,
        beside: tuple[str, str],
    ) -> dict[str, Any]:
        """Reads the rotary positions of the object `given`, whose field is `name`."""
        inner: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        for key, theirs in zip(("rope_theta", "partial_rotary_factor"), beside, strict=True):
            outer = self.value(theirs)
            if outer is not None and inner.setdefault(key, outer) != outer:
                self.fault(theirs, outer, f"must equal {name}.{key} {short(inner[key])}", "one of the two")
        percent = self._percent(
            beside[1], inner.pop("partial_rotary_factor", 1 if share is None else share), share is not None
        )
        base = self._positive(beside[0], inner.pop("rope_theta", theta))
        kind, older = inner.pop("rope_type", None), inner.pop("type", None)
        if older is not None and kind not in (None, older):
            self.fault(f"{name}.type", older, f"must equal {name}.rope_type {short(kind)}", "one of the two")
        kind = kind or older or "default"
        if kind not in ("default", "llama3"):
            self.fault(f"{name}.rope_type", kind, "only default and llama3 can be expressed", "default or llama3")
            return {"kind": "rotary", "theta": as_number(base), **percent}
        scaling: dict[str, Any] = {}
        if kind == "llama3":
            inner.setdefault("original_max_position_embeddings", context)
            scaling = {
                ours: as_number(self._positive(f"{name}.{theirs}", inner.pop(theirs, None)))
                for ours, theirs in (
                    ("factor", "factor"),
                    ("length", "original_max_position_embeddings"),
                    ("low", "low_freq_factor"),
                    ("high", "high_freq_factor"),
                )
            }
            if not isinstance(scaling["length"], int):
                field = f"{name}.original_max_position_embeddings"
                self.fault(field, scaling["length"], "must be a whole number", "a whole number")
        for key, value in inner.items():
            self.fault(f"{name}.{key}", value, f"its effect with rope_type {kind} is unknown", "leave it out")
        return {"kind": "rotary", "theta": as_number(base), **percent, **({"scaling": scaling} if scaling else {})}

    def _percent(self, field: str, share: Any, may_be_part: bool) -> dict[str, Any]:
        """The field `percent` of a description: the percentage of a head that is rotated; empty for 100."""
        percent = 100 * share if type(share) in (int, float) else 0
        if not may_be_part:
            if share != 1:
                self.fault(field, share, "models of this type rotate whole heads", "1")
        elif not 1 <= percent <= 100 or abs(percent - round(percent)) > 1e-9:
            self.fault(field, share, "must be a whole percentage", "0.01 to 1 in steps of 0.01")
        elif percent != 100:
            return {"percent": round(percent)}
        return {}

    def _positive(self, field: str, value: Any) -> float:
        """Returns the value if it is a positive number; else adds a fault and returns 1."""
        if is_positive(value):
            return value  # type: ignore[no-any-return]
        self.fault(field, value, f"must be {_POSITIVE}", f"more than 0, at most {MAX_FLOAT32:.2g}")
        return 1
