"""The time left of a training has its evaluations, during it and at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_text import prepared_text, trainer

from edgefront.core.training.recipes.recipe import Recipe
from edgefront.core.training.run_folder import RunSpec

ARCHITECTURE = {
    "version": 1,
    "d_model": 16,
    "embedding": {"vocab_size": 256},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 32}],
}


def test_the_time_left_includes_all_evaluations(tmp_path: Path) -> None:
    evaluation = {"every": 5, "tokens": 100, "segment": 16}
    recipe = Recipe.parse({"name": "short", "steps": 12, "rows": 4, "segment": 16, "evaluation": evaluation})
    spec = RunSpec(architecture=ARCHITECTURE, data=str(prepared_text(tmp_path)), recipe=recipe.model_dump(mode="json"))
    made = trainer(spec, tmp_path / "run")
    validation, splits = made._validation, made.data.splits
    whole = sum(len(splits[name].tokens) for name in ("valid", "test"))
    for step, evaluations in ((1, 3), (5, 3), (6, 2), (11, 1), (12, 1)):
        forward = validation.seconds_left(step, 64 * 3.0)  # a token is trained in three seconds, and read in one
        assert forward == pytest.approx(100 * evaluations + whole)

    said = list[float]()
    for split in ("valid", "test"):
        validation(made.model, split, whole=True, left=said.append)
    assert said[-1] < 0.01 * said[0], "nothing is left"
    assert min(said[:3]) > 0
