"""GFLOPs of PAR's Table A2 by each reading of it, with what is left over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from published import Convention, par_flops
from test_published_counts import PAR

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.models import named_model

ROWS = [
    row
    for line in (Path(__file__).parent.parent / "golden" / "par_models.jsonl").read_text(encoding="utf-8").splitlines()
    if (row := json.loads(line))["flops"]
]

RESIDUALS: dict[tuple[str, Convention], float] = {
    ("Transformer-XL Base", "every_position"): 3.669,
    ("Sandwich Transformer Base", "every_position"): 3.669,
    ("PAR Transformer Base", "every_position"): -0.131,
    ("Transformer-XL Base", "queries_only"): -1.700,
    ("Sandwich Transformer Base", "queries_only"): -1.700,
    ("PAR Transformer Base", "queries_only"): -2.144,
    ("Transformer-XL Base", "fitted"): -0.021,
    ("Sandwich Transformer Base", "fitted"): -0.021,
    ("PAR Transformer Base", "fitted"): -0.464,
}
"""GFLOPs counted less GFLOPs printed."""


def counted(row: dict[str, Any], convention: Convention) -> int:
    architecture = named_model(PAR[row["name"]]).architecture
    return par_flops(architecture, row["sequence_length"], row["memory_length"], convention)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ROWS])
def test_every_reading_of_every_row(row: dict[str, Any]) -> None:
    for convention, flops in row["flops"].items():
        assert counted(row, convention) == flops


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ROWS if row["paper_gflops"]])
def test_only_the_fitted_reading_gives_what_is_printed(row: dict[str, Any]) -> None:
    """27, 27 and 17."""
    for convention in get_args(Convention):
        gflops = counted(row, convention) / 1e9
        assert gflops - row["paper_gflops"] == pytest.approx(RESIDUALS[row["name"], convention], abs=5e-4)
    assert round(counted(row, "fitted") / 1e9) == row["paper_gflops"]


def test_no_other_reading_gives_both_figures() -> None:
    base = [row for row in ROWS if row["paper_gflops"]]
    for convention in ("every_position", "queries_only"):
        assert any(round(counted(row, convention) / 1e9) != row["paper_gflops"] for row in base)


def test_what_is_built_multiplies_what_only_the_queries_need_less_what_the_clamp_saves() -> None:
    """704 keys, but 401 distances to be mapped."""
    for name in ("transformer-xl-base", "sandwich-base", "par-base"):
        architecture = named_model(name).architecture
        built = costs(architecture, CostOptions(sequence_length=64, memory_length=640, logits="none")).flops
        attention = sum(block.kind == "attention" for block in architecture.blocks)
        fewer = (704 - 401) * 512 * 512 - 64 * 512  # one distance more meets each query
        assert built == par_flops(architecture, 64, 640, "queries_only") - 2 * attention * fewer


def test_the_fitted_reading_needs_its_softmax() -> None:
    for name in ("par-large", "par-24b-enwik8"):
        with pytest.raises(InvalidInput, match="adaptive softmax"):
            par_flops(named_model(name).architecture, 128, 1600, "fitted")
