"""Stores predictors as readable JSON, with equal predictions on every platform.

A document contains the training data and hyperparameters; only the regression of version 3 is fitted on reading.

| version | predictor | data |
| --- | --- | --- |
| 1 | scaling law of one table | `models`: ln perplexity and features of each kept model |
| 2 | scaling law of several tables | name of the study; the owner's trainings |
| 3 | pruning predictor | losses of single cuts, and of evaluated combinations |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError, model_validator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.gaussian_process import Kernel
from edgefront.core.common.validation import form, invalid_input
from edgefront.core.quality.covariance import LengthScales
from edgefront.core.quality.differences import NAMES as DIFFERENCE_NAMES
from edgefront.core.quality.features import BLOCK_NAMES, FEATURES, NAMES
from edgefront.core.quality.predictor import Origin, PerplexityPredictor
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.pruning_table import BlockPruning, Cut, Loss, PruningTable
from edgefront.core.quality.scaling_law import OwnTrainings, ScalingLaw
from edgefront.core.quality.scaling_study import STUDIES, study
from edgefront.core.quality.table_fit import MIN_ROWS, law_of_table

COLUMNS = ("log_perplexity", *NAMES)

_ORIGIN = ("name", "family", "title", "data", "split", "tokens", "trained", "how", "source", "licence")

Positive = Annotated[FiniteFloat, Field(gt=0)]
MAX_LOG_PERPLEXITY = 100.0
"""Maximum ln perplexity of a parent, so that predictions stay finite."""
MAX_COMBINED_BLOCKS = 200_000
"""Maximum number of combinations times blocks of the parent, so that reading takes seconds and some hundred MB."""
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


class _About(_Part):
    name: Name
    title: Text
    family: Literal["gpt2", "llama", "transformer-xl", ""]
    data: Text
    split: Text
    tokens: Text
    trained: Text
    how: Text = ""
    source: Text
    licence: Text

    @property
    def origin(self) -> Origin:
        return Origin(**{name: getattr(self, name) for name in _ORIGIN})


class _Stored(_About):
    version: Literal[1]
    table_models: Annotated[int, Field(ge=MIN_ROWS)]
    blocks: tuple[Literal[BLOCK_NAMES], ...]  # type: ignore[valid-type]
    features: tuple[_Range, ...]
    kernel: _Kernel
    widening: Positive
    quantile: Positive
    columns: tuple[str, ...]
    models: Annotated[tuple[tuple[FiniteFloat, ...], ...], Field(min_length=MIN_ROWS, max_length=100_000)]
    slope: FiniteFloat = 1.0
    prior: _Stored | None = None

    @model_validator(mode="after")
    def _columns_known(self) -> _Stored:
        if tuple(feature.name for feature in self.features) != NAMES or self.columns != COLUMNS:
            raise InvalidInput(
                "features and columns must be the features and columns of this release",
                field="columns",
                value=list(self.columns),
                allowed=", ".join(COLUMNS),
            )
        for number, row in enumerate(self.models):
            if len(row) != len(COLUMNS):
                raise InvalidInput(
                    f"models.{number} must have {len(COLUMNS)} numbers, not {len(row)}",
                    field=f"models.{number}",
                    value=len(row),
                    allowed=f"{len(COLUMNS)} numbers",
                )
        return self


class _OwnTrainings(_Part):
    """The n rows of an owner's trainings in the stored JSON, by column."""

    training: tuple[int, ...]
    tokens: tuple[Positive, ...]
    log_perplexity: tuple[FiniteFloat, ...]
    features: tuple[tuple[FiniteFloat, ...], ...]
    differences: tuple[tuple[FiniteFloat, ...], ...]


class _StoredStudy(_About):
    version: Literal[2]
    study: Literal[STUDIES]  # type: ignore[valid-type]
    table: str | None
    known: bool
    train_tokens: Positive
    reference: str
    base: str | None
    own: _OwnTrainings | None


class _Combination(_Part):
    architecture: dict[str, Any]
    log_perplexity: Loss


class _StoredCuts(_About):
    version: Literal[3]
    parent: dict[str, Any]
    parent_log_perplexity: Annotated[FiniteFloat, Field(ge=0, le=MAX_LOG_PERPLEXITY)]
    blocks: Annotated[tuple[BlockPruning, ...], Field(min_length=1, max_length=1024)]
    width: Cut
    combinations: Annotated[tuple[_Combination, ...], Field(min_length=1, max_length=10_000)]


def to_json(law: PerplexityPredictor) -> dict[str, Any]:
    """Returns the JSON document of a predictor."""
    if isinstance(law, PruningPredictor):
        tried = zip(law.architectures, law.log_perplexity.tolist(), strict=True)
        return {
            "version": 3,
            **asdict(law.origin),
            "parent": law.parent.canonical,
            "parent_log_perplexity": law.parent_log_perplexity,
            "blocks": [asdict(cuts) for cuts in law.table.blocks],
            "width": asdict(law.table.width),
            "combinations": [{"architecture": part.canonical, "log_perplexity": loss} for part, loss in tried],
        }
    assert isinstance(law, ScalingLaw)
    scales = law.study.prior
    if not isinstance(scales, LengthScales):
        return _study_json(law)
    return {
        "version": 1,
        **asdict(law.origin),
        "table_models": law.models,
        "blocks": [kind for kind in BLOCK_NAMES if kind in law.kinds],
        "features": _ranges(law),
        "kernel": {**asdict(scales.kernel), "length_scales": list(scales.kernel.length_scales)},
        "widening": scales.widening,
        "quantile": scales.quantile,
        "columns": list(COLUMNS),
        "models": np.column_stack([law.study.log_perplexity, law.study.inputs]).tolist(),
        **({"slope": scales.slope, "prior": to_json(scales.base)} if isinstance(scales.base, ScalingLaw) else {}),
    }


def _study_json(law: ScalingLaw) -> dict[str, Any]:
    own = law.own
    assert law.reference is not None
    return {
        "version": 2,
        **asdict(law.origin),
        "study": law.study.name,
        "table": None if law.asked is None else law.study.tables[law.asked].name,
        "known": law.same_recipe,
        "train_tokens": float(f"{np.exp(law.log_train_tokens):.10g}"),
        "reference": law.reference[0],
        "base": law.base,
        "own": None
        if own is None
        else {
            "training": own.model.tolist(),
            "tokens": [float(f"{tokens:.10g}") for tokens in np.exp(own.log_tokens).tolist()],
            "log_perplexity": own.log_perplexity.tolist(),
            "features": own.inputs.tolist(),
            "differences": own.differences.round(9).tolist(),
        },
    }


def _ranges(law: PerplexityPredictor) -> list[dict[str, Any]]:
    """Descriptions of all features, with the features' ranges in the predictor's data."""
    return [
        {**asdict(feature), "low": low, "high": high}
        for feature, low, high in zip(FEATURES, law.low.tolist(), law.high.tolist(), strict=True)
    ]


def to_text(law: PerplexityPredictor) -> str:
    """Returns the JSON document of a predictor as text, with a line for each key, each model and each feature."""
    lines = []
    for key, part in to_json(law).items():
        text = json.dumps(part, ensure_ascii=False)
        if isinstance(part, list) and part and isinstance(part[0], list | dict):
            rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in part)
            text = f"[\n    {rows}\n  ]"
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def checked_name(name: str) -> str:
    """Returns the name of a scaling law. Raises `InvalidInput` if the name is invalid."""
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise invalid_input(error, InvalidInput).under("name") from None


def from_json(value: Mapping[str, Any] | str | bytes) -> PerplexityPredictor:
    """Reads a predictor from a stored document. Raises `InvalidInput`, which names the wrong field."""
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"the scaling law is not JSON: {error}", field="law", allowed="a stored scaling law"
            ) from None
    if not isinstance(value, Mapping):
        raise InvalidInput(
            "a scaling law must be a JSON object", field="law", value=value, allowed="a stored scaling law"
        )
    try:
        if value.get("version") == 2:
            return _law_of_study(_StoredStudy.model_validate(dict(value)))
        if value.get("version") == 3:
            return _cut_law(_StoredCuts.model_validate(dict(value)))
        return _law_of_table(_Stored.model_validate(dict(value)))
    except ValidationError as error:
        raise invalid_input(error, InvalidInput).under("law") from None


def _law_of_table(stored: _Stored) -> ScalingLaw:
    rows = np.array(stored.models, dtype=np.float64)
    kernel, inputs, logs = stored.kernel, rows[:, 1:], rows[:, 0]
    base, level = None, float(logs.mean())
    if stored.prior is not None:
        base = _law_of_table(stored.prior)
        level -= stored.slope * float(base.of_features(inputs).mean())
    scales = LengthScales(
        kernel=Kernel(kernel.amplitude, kernel.length_scales, kernel.linear, kernel.noise),
        centre=inputs.mean(0),
        level=level,
        models=stored.table_models,
        low=np.array([feature.low for feature in stored.features]),
        high=np.array([feature.high for feature in stored.features]),
        kinds=frozenset(stored.blocks),
        widening=stored.widening,
        quantile=stored.quantile,
        base=base,
        slope=stored.slope,
    )
    return law_of_table(stored.origin, scales, inputs, logs)


def _law_of_study(stored: _StoredStudy) -> ScalingLaw:
    of, own = study(stored.study), stored.own
    names = [table.name for table in of.tables]
    if stored.table is not None and stored.table not in names:
        raise InvalidInput(
            f"the study {of.name} has no table {stored.table!r}",
            field="table",
            value=stored.table,
            allowed=", ".join(names),
        )
    try:
        reference = named_model(stored.reference)
    except NotFound as error:
        raise InvalidInput(
            f"reference: {error.detail}", field="reference", value=stored.reference, allowed="a named model"
        ) from None
    return ScalingLaw(
        origin=stored.origin,
        study=of,
        asked=None if stored.table is None else names.index(stored.table),
        same_recipe=stored.known,
        log_train_tokens=float(np.log(stored.train_tokens)),
        reference=(stored.reference, Shapes.of([reference.architecture])),
        own=None if own is None else _own(own),
        base=stored.base,
    )


def _cut_law(stored: _StoredCuts) -> PruningPredictor:
    parent = Architecture.parse(stored.parent)
    if len(stored.blocks) != len(parent.blocks):
        raise InvalidInput(
            f"blocks: must have the cuts of all {len(parent.blocks)} blocks of the parent, not of {len(stored.blocks)}",
            field="blocks",
            value=len(stored.blocks),
            allowed=str(len(parent.blocks)),
        )
    most = MAX_COMBINED_BLOCKS // len(parent.blocks)
    if len(stored.combinations) > most:
        raise InvalidInput(
            f"combinations: {len(stored.combinations):,} are too many for a model of {len(parent.blocks):,} blocks; "
            f"at most {most:,} are allowed",
            field="combinations",
            value=len(stored.combinations),
            allowed=f"at most {most:,}",
        )
    tried = tuple(Architecture.parse(combination.architecture) for combination in stored.combinations)
    law = PruningPredictor(
        origin=stored.origin,
        table=PruningTable(parent, stored.blocks, stored.width),
        parent_log_perplexity=stored.parent_log_perplexity,
        architectures=tried,
        log_perplexity=np.array([each.log_perplexity for each in stored.combinations]),
    )
    law.check(Shapes.of(tried))
    return law


def _own(stored: _OwnTrainings) -> OwnTrainings:
    count = len(stored.training)
    inputs = np.array(stored.features, dtype=np.float64).reshape(count, -1)
    apart = np.array(stored.differences, dtype=np.float64).reshape(count, -1)
    columns = {len(stored.tokens), len(stored.log_perplexity), len(stored.features), len(stored.differences)}
    if columns != {count} or inputs.shape[1] != len(NAMES) or apart.shape[1] != len(DIFFERENCE_NAMES):
        raise InvalidInput(
            "own trainings must be columns of equal length, with the features of this release",
            field="own",
            allowed=f"{count} rows of {len(NAMES)} features and {len(DIFFERENCE_NAMES)} differences",
        )
    return OwnTrainings(
        inputs,
        apart,
        np.log(np.array(stored.tokens)),
        np.array(stored.log_perplexity),
        np.array(stored.training, dtype=np.int64),
    )


def summary(law: PerplexityPredictor) -> dict[str, Any]:
    """Returns the fields of `QualityLawView`: a description of the predictor, without the data of the fit."""
    scales = law.study.prior if isinstance(law, ScalingLaw) else None
    return {
        **{name: getattr(law.origin, name) for name in _ORIGIN if name != "how"},
        "label": law.label,
        "table_models": law.models,
        "blocks": [kind for kind in BLOCK_NAMES if kind in law.kinds],
        "features": _ranges(law),
        "widening": scales.widening if isinstance(scales, LengthScales) else 1.0,
        "prior": law.base if isinstance(law, ScalingLaw) else None,
        "relative_to": law.relative_to,
        "train_tokens": law.train_tokens,
        "min_train_tokens": law.token_range[0] if law.token_range else None,
        "max_train_tokens": law.token_range[1] if law.token_range else None,
    }
