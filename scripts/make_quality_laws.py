"""Fits the shipped scaling laws to the tables in tests/golden.

    python scripts/make_quality_laws.py

Takes half a minute. The same tables give the same laws.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefront.core.quality.features import NAMES, rounded_features
from edgefront.core.quality.predictor import Origin
from edgefront.core.quality.scaling_study import Hierarchy, ScalingStudy, StudyTable, study_of
from edgefront.core.quality.shipped import LTS_SOURCE
from edgefront.core.quality.stored import to_text
from edgefront.core.quality.table_fit import fit_table
from edgefront.core.training.proxies.table import Row, quality_of, read_table, where
from edgefront.core.training.proxies.trained import trained_models

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from published_tables import fit_trend, read_published  # noqa: E402 - tests are no package

TABLES = ROOT / "tests" / "golden"
LAWS = ROOT / "core" / "quality" / "laws"

LTS_RECIPE = "to the end of 40,000 steps of 256 sequences with LAMB at 0.01 (Table 2 of the paper)"
LTS_STEPS = "40,000 steps"
ORIGINS = {
    "gpt2": Origin(
        name="lts-gpt2-wikitext103",
        title="GPT-2 with its own heads and inner width in every layer, on WikiText-103",
        family="gpt2",
        data="WikiText-103",
        split="validation",
        tokens="BPE token (vocabulary of 50,264)",
        trained=LTS_RECIPE,
        how=LTS_STEPS,
        source=LTS_SOURCE,
        licence="MIT",
    ),
    "txl": Origin(
        name="lts-transformer-xl-wikitext103",
        title="Transformer-XL with its own heads and inner width in every layer, on WikiText-103",
        family="transformer-xl",
        data="WikiText-103",
        split="validation",
        tokens="word (vocabulary of 267,736)",
        trained=LTS_RECIPE,
        how=LTS_STEPS,
        source=LTS_SOURCE,
        licence="MIT",
    ),
}
HWGPT = Origin(
    name="hwgpt-gpt2-openwebtext",
    title="GPT-2 S with its own heads and inner width in every layer, on OpenWebText",
    family="gpt2",
    data="OpenWebText",
    split="validation",
    tokens="BPE token (vocabulary of 50,254, by its configuration)",
    trained=(
        "not on their own: weights are inherited from one supernet, trained by the sandwich rule (its configuration "
        "says 800,000 steps of 32 sequences of 1,024 tokens a GPU on 4 GPUs)"
    ),
    how="weights of a supernet",
    source="Sukthanker et al., HW-GPT-Bench (arXiv 2405.10299, automl/HW-GPT-Bench), 1,500 models",
    licence="Apache-2.0",
)

LTS_TOKENS = 40_000 * 256 * 192
"""Tokens of a training on WikiText-103: steps × sequences × their length. On LM1B sequences have 32 tokens."""
LTS_TABLES = (
    StudyTable("random_GPT2_wt103", "WikiText-103", LTS_TOKENS, LTS_TOKENS),
    StudyTable("random_TransXL_wt103", "WikiText-103", LTS_TOKENS, LTS_TOKENS),
    StudyTable("random_TransXL_wt103_homogeneous", "WikiText-103", LTS_TOKENS, LTS_TOKENS),
    StudyTable("random_GPT2_lm1b", "LM1B", LTS_TOKENS, LTS_TOKENS),
    StudyTable("random_TransXL_lm1b", "LM1B", LTS_TOKENS, LTS_TOKENS),
)
MIN_TOKENS = 4e9
"""Minimum training tokens of a point. The Gemstones warm up until about half of this."""
MAX_TOKENS = 250e9
"""Maximum training tokens of predictions: from here to 350e9 small models' curves are flat and their slope is noise."""
GEMSTONES_TABLES = (
    StudyTable("constant_lr", "Dolma", MIN_TOKENS, MAX_TOKENS),
    StudyTable("cooled", "Dolma", 11e9, 110e9),
    StudyTable("half_lr", "Dolma", MIN_TOKENS, 100e9),
)
POINTS = 14
"""Points per learning curve, evenly spaced by ln tokens. More points would slow down predictions only."""


def learn(table: str, origin: Origin, backbone: str | None = None) -> None:
    rows = (read_published if backbone is None else read_table)(TABLES / table)
    if backbone is not None:
        rows = where(rows, {"backbone": backbone})
    models = trained_models(rows, quality_of(rows))
    law = fit_table(models.shapes, models.log_perplexity, origin)
    path = LAWS / f"{origin.name}.json"
    path.write_text(to_text(law), encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {law.models} models, of one table")  # noqa: T201


def lts_study() -> ScalingStudy:
    rows = [row for name in ("lts_trained_wt103", "lts_trained_other") for row in read_table(TABLES / f"{name}.jsonl")]
    models = trained_models(rows, quality_of(rows))
    names = [table.name for table in LTS_TABLES]
    table = np.array([names.index(row["set"]) for row in rows], dtype=np.int64)
    log_tokens = np.log([lts_table.max_tokens for lts_table in LTS_TABLES])[table]
    return study_of(LTS_TABLES, rounded_features(models.shapes), log_tokens, table, models.log_perplexity.round(6))


def gemstones_study() -> ScalingStudy:
    rows: list[Row] = []
    tables: list[int] = []
    for index, table in enumerate(GEMSTONES_TABLES):
        kept = thinned(read_published(TABLES / f"gemstones_{table.name}.csv.gz"))
        rows += kept
        tables += [index] * len(kept)
    models = trained_models(rows, quality_of(rows))
    log_tokens = np.log([float(row["tokens"]) for row in rows])
    inputs, logs, table = rounded_features(models.shapes), models.log_perplexity.round(6), np.array(tables, np.int64)
    trend = fit_trend(inputs, log_tokens, logs, table)
    return study_of(GEMSTONES_TABLES, inputs, log_tokens, table, logs, trend)


def text_of(study: ScalingStudy) -> str:
    """Formats a study of several tables as JSON, with a line for each row."""
    assert isinstance(study.prior, Hierarchy)
    names = [table.name for table in study.tables]
    value = {
        "name": study.name,
        "tables": [asdict(table) for table in study.tables],
        "trend": asdict(study.prior.trend),
        "columns": ["table", "tokens", "log_perplexity", *NAMES],
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


def thinned(rows: Sequence[Row]) -> list[Row]:
    """Returns `POINTS` points of each model's learning curve from `MIN_TOKENS` on, evenly spaced by ln tokens."""
    curves: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if float(row["tokens"]) >= MIN_TOKENS:
            curves.setdefault((row["width"], row["depth"]), []).append(row)
    kept = []
    for curve in curves.values():
        logs = np.log([float(row["tokens"]) for row in curve])
        kept += [curve[place] for place in _nearest(logs, np.linspace(logs.min(), logs.max(), POINTS))]
    return kept


def _nearest(values: NDArray[np.float64], targets: NDArray[np.float64]) -> list[int]:
    return np.unique(np.abs(values[:, None] - targets).argmin(0)).tolist()


def main() -> None:
    LAWS.mkdir(exist_ok=True)
    for backbone, origin in ORIGINS.items():
        learn("lts_trained_wt103.jsonl", origin, backbone)
    learn("hwgpt_owt_perplexity_s.csv.gz", HWGPT)
    for study in (lts_study(), gemstones_study()):
        path = LAWS / f"study-{study.name}.json"
        path.write_text(text_of(study), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(study.inputs)} rows, several tables")  # noqa: T201


if __name__ == "__main__":
    main()
