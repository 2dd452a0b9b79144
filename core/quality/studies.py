"""The studies that come with the product, as readable JSON: tables of trained models with what their trend was fitted
to. `scripts/make_quality_laws.py` makes them from the tables in `tests/golden`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.differences import ControlledVariables
from edgefront.core.quality.features import NAMES, Floats, rounded_features
from edgefront.core.quality.parts import GEMSTONES, LTS, UNSEEN_DATA, UNSEEN_RECIPE, Places, Shared
from edgefront.core.quality.study import KnownTable, Study
from edgefront.core.quality.trends import BudgetTrend, ShapeTrend

STUDIES = ("lts", "gemstones")
COLUMNS = ("table", "tokens", "log_perplexity", *NAMES)


_PLAIN = frozenset({"attention", "feed_forward"})
_GATED = frozenset({"grouped_attention", "gated_feed_forward"})


def lts(tables: Sequence[KnownTable], table: Places, shapes: Shapes, log_perplexity: Floats) -> Study:
    """Study of models that were trained for one budget, whose embedding and inner widths vary."""
    return Study(
        name="lts",
        trend=ShapeTrend(),
        shared=Shared(shape=0.012, shape_by_tokens=0.0, linear=0.003, row=0.003),
        controlled=ControlledVariables(kv_share=1.0, inner_ratio=None, gated=0.0, vocab_size=None, kinds=_PLAIN),
        table_deviation=LTS,
        recipe_deviation=UNSEEN_DATA,
        data_deviation=UNSEEN_DATA,
        tables=tuple(tables),
        inputs=rounded_features(shapes),
        log_tokens=np.log([lts_table.max_tokens for lts_table in tables])[table],
        table=table,
        log_perplexity=log_perplexity,
        budgets=False,
    )


def gemstones(
    tables: Sequence[KnownTable], table: Places, shapes: Shapes, log_tokens: Floats, log_perplexity: Floats,
    trend: BudgetTrend | None = None,
) -> Study:  # fmt: skip
    """Study of decoders of today's kind by width, depth and training tokens; it fits the trend unless it is given."""
    inputs = rounded_features(shapes)
    return Study(
        name="gemstones",
        trend=trend or BudgetTrend.fit(inputs, log_tokens, log_perplexity, table),
        shared=Shared(shape=0.03, shape_by_tokens=0.02, linear=0.0, row=0.003),
        controlled=ControlledVariables(kv_share=0.5, inner_ratio=6.0, gated=1.0, vocab_size=50_304, kinds=_GATED),
        table_deviation=GEMSTONES,
        recipe_deviation=UNSEEN_RECIPE,
        data_deviation=UNSEEN_DATA,
        tables=tuple(tables),
        inputs=inputs,
        log_tokens=log_tokens,
        table=table,
        log_perplexity=log_perplexity,
        budgets=True,
    )


def to_text(study: Study) -> str:
    """The study with a row a line."""
    names = [table.name for table in study.tables]
    value = {
        "name": study.name,
        "tables": [asdict(table) for table in study.tables],
        "trend": asdict(study.trend),
        "columns": list(COLUMNS),
    }
    rows = ",\n    ".join(
        json.dumps([names[table], float(f"{np.exp(log_tokens):.10g}"), log, *inputs])
        for table, log_tokens, log, inputs in zip(
            study.table.tolist(),
            study.log_tokens.tolist(),
            study.log_perplexity.tolist(),
            study.inputs.tolist(),
            strict=True,
        )
    )
    head = json.dumps(value, indent=2).removesuffix("\n}")
    return f'{head},\n  "rows": [\n    {rows}\n  ]\n}}\n'


@cache
def study(name: str) -> Study:
    """The study of this name, as it comes along."""
    value: dict[str, Any] = json.loads((files("edgefront.core.quality") / "laws" / f"study-{name}.json").read_bytes())
    tables = tuple(KnownTable(**table) for table in value["tables"])
    names = [table.name for table in tables]
    table = np.array([names.index(row[0]) for row in value["rows"]], dtype=np.int64)
    numbers = np.array([row[1:] for row in value["rows"]], dtype=np.float64)
    empty = Shapes.of([])
    if name == "lts":
        blank = lts(tables, table[:0], empty, numbers[:0, 1])
    else:
        blank = gemstones(tables, table[:0], empty, numbers[:0, 0], numbers[:0, 1], BudgetTrend(**value["trend"]))
    return blank.with_rows(numbers[:, 2:], np.log(numbers[:, 0]), table, numbers[:, 1])
