"""A quality law as readable JSON, from which the same numbers come on every platform.

It holds what the law was learnt from, not what was computed from it: a law that is read again predicts without being
fitted. `models` has a row for each model that was kept: its ln perplexity and its features.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError, model_validator

from edgefront.core.errors import InvalidInput
from edgefront.core.gaussian_process import Kernel
from edgefront.core.quality.features import BLOCK_NAMES, FEATURES, NAMES
from edgefront.core.quality.law import MIN_ROWS, Origin, QualityLaw
from edgefront.core.validation import form, invalid_input

COLUMNS = ("log_perplexity", *NAMES)

Positive = Annotated[FiniteFloat, Field(gt=0)]
Text = Annotated[str, Field(max_length=500)]
Name = Annotated[
    str,
    Field(pattern=form(r"^[a-z0-9][a-z0-9.-]{0,63}$", "lower-case letters, digits, dots and hyphens, at most 64")),
]

_NAME: TypeAdapter[str] = TypeAdapter(Name)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Kernel(_Part):
    amplitude: Positive
    length_scales: Annotated[tuple[Positive, ...], Field(min_length=len(NAMES), max_length=len(NAMES))]
    linear: Positive
    noise: Positive


class _Range(_Part):
    name: str
    unit: str
    meaning: str
    low: FiniteFloat
    high: FiniteFloat


class _Stored(_Part):
    version: Literal[1]
    name: Name
    title: Text
    family: Literal["gpt2", "transformer-xl", ""]
    data: Text
    split: Text
    tokens: Text
    trained: Text
    source: Text
    licence: Text
    table_models: Annotated[int, Field(ge=MIN_ROWS)]
    blocks: tuple[Literal[BLOCK_NAMES], ...]  # type: ignore[valid-type]
    features: tuple[_Range, ...]
    kernel: _Kernel
    widening: Positive
    quantile: Positive
    slope: FiniteFloat
    prior: _Stored | None
    columns: tuple[str, ...]
    models: Annotated[tuple[tuple[FiniteFloat, ...], ...], Field(min_length=MIN_ROWS, max_length=100_000)]

    @model_validator(mode="after")
    def _columns_known(self) -> _Stored:
        if tuple(feature.name for feature in self.features) != NAMES or self.columns != COLUMNS:
            raise InvalidInput(
                "features and columns are not those of this release",
                field="columns",
                value=list(self.columns),
                allowed=", ".join(COLUMNS),
            )
        for number, row in enumerate(self.models):
            if len(row) != len(COLUMNS):
                raise InvalidInput(
                    f"models.{number} has {len(row)} numbers, not {len(COLUMNS)}",
                    field=f"models.{number}",
                    value=len(row),
                    allowed=f"{len(COLUMNS)} numbers",
                )
        return self


def to_json(law: QualityLaw) -> dict[str, Any]:
    """Everything that the law is."""
    return {
        "version": 1,
        **asdict(law.origin),
        "table_models": law.models,
        "blocks": [kind for kind in BLOCK_NAMES if kind in law.kinds],
        "features": [
            {**asdict(feature), "low": low, "high": high}
            for feature, low, high in zip(FEATURES, law.low.tolist(), law.high.tolist(), strict=True)
        ],
        "kernel": {**asdict(law.kernel), "length_scales": list(law.kernel.length_scales)},
        "widening": law.widening,
        "quantile": law.quantile,
        "slope": law.slope,
        "prior": None if law.prior is None else to_json(law.prior),
        "columns": list(COLUMNS),
        "models": np.column_stack([law.log_perplexity, law.inputs]).tolist(),
    }


def to_text(law: QualityLaw) -> str:
    """The same as text, one model a line."""
    value = to_json(law)
    return _indented(value) + "\n"


def checked_name(name: str) -> str:
    """The name, if a law may have it; `InvalidInput` says what would be right."""
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise invalid_input(error, InvalidInput).under("name") from None


def from_json(value: Mapping[str, Any] | str | bytes) -> QualityLaw:
    """The law that was stored. `InvalidInput` names what is wrong with it."""
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"no quality law: not JSON ({error})", field="law", allowed="a stored law") from None
    if not isinstance(value, Mapping):
        raise InvalidInput("a quality law is a JSON object", field="law", value=value, allowed="a stored law")
    try:
        return _law(_Stored.model_validate(dict(value)))
    except ValidationError as error:
        raise invalid_input(error, InvalidInput).under("law") from None


def _law(stored: _Stored) -> QualityLaw:
    rows = np.array(stored.models, dtype=np.float64)
    kernel = stored.kernel
    return QualityLaw(
        origin=Origin(
            stored.name,
            stored.title,
            family=stored.family,
            data=stored.data,
            split=stored.split,
            tokens=stored.tokens,
            trained=stored.trained,
            source=stored.source,
            licence=stored.licence,
        ),
        inputs=rows[:, 1:],
        log_perplexity=rows[:, 0],
        kernel=Kernel(kernel.amplitude, kernel.length_scales, kernel.linear, kernel.noise),
        models=stored.table_models,
        low=np.array([feature.low for feature in stored.features]),
        high=np.array([feature.high for feature in stored.features]),
        kinds=frozenset(stored.blocks),
        widening=stored.widening,
        quantile=stored.quantile,
        prior=None if stored.prior is None else _law(stored.prior),
        slope=stored.slope,
    )


def _indented(value: dict[str, Any], depth: int = 1) -> str:
    """JSON with a line for each key, each model, each feature."""
    inner, outer = "  " * depth, "  " * (depth - 1)
    lines = []
    for key, part in value.items():
        if isinstance(part, dict) and key == "prior":
            text = _indented(part, depth + 1)
        elif isinstance(part, list) and part and isinstance(part[0], list | dict):
            rows = f",\n{inner}  ".join(json.dumps(row, ensure_ascii=False) for row in part)
            text = f"[\n{inner}  {rows}\n{inner}]"
        else:
            text = json.dumps(part, ensure_ascii=False)
        lines.append(f"{inner}{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + f"\n{outer}}}"


_ORIGIN = ("name", "family", "title", "data", "split", "tokens", "trained", "source", "licence")


def summary(law: QualityLaw) -> dict[str, Any]:
    """A law as JSON without its table: what it predicts, where it holds, and its prior's name."""
    value = to_json(law)
    kept = (*_ORIGIN, "table_models", "blocks", "features", "widening")
    return {**{name: value[name] for name in kept}, "prior": law.prior.origin.name if law.prior else None}
