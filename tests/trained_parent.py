"""A small model that was really trained, with a study of its cuts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import Prepared, open_prepared
from edgefront.core.training.evaluation.package import Package, read_package
from edgefront.core.training.pruning.prune import EvaluationText
from edgefront.core.training.pruning.study import PruningStudy, PruningStudySettings, study_pruning, write_pruning_study
from edgefront.core.training.recipes.recipe import Recipe
from edgefront.core.training.run import run
from edgefront.core.training.run_folder import EXIT_DONE, RESULT, SPEC, RunSpec

ARCHITECTURE = {
    "d_model": 32,
    "positions": {"kind": "rotary"},
    "norm_kind": "rms",
    "activation": "silu",
    "embedding": {"vocab_size": 256},
    "blocks": [
        {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"},
        {"kind": "feed_forward", "d_inner": 96, "gated": True, "bias": False},
    ]
    * 3,
}
RECIPE = {
    "name": "test",
    "steps": 250,
    "rows": 8,
    "segment": 32,
    "order": "shuffled",
    "optimizer": {"name": "adamw", "lr": 0.01},
    "schedule": {"warmup": 20},
    "clip": 1.0,
    "checkpoint_every": 1000,
    "evaluation": {"segment": 32, "every": 1000},
}
SETTINGS = PruningStudySettings(calibration_tokens=2048, tokens=512, segment=32, combinations=24)


@dataclass(frozen=True)
class TrainedParent:
    package: Package
    data: Prepared
    study: PruningStudy

    def held_out(self) -> EvaluationText:
        """Rows of the test split, which the study never saw."""
        tokens = self.data.split("test").tokens.astype(np.int64)
        rows = [tokens[start : start + 33] for start in range(0, len(tokens) - 33, 32)]
        return EvaluationText(torch.from_numpy(np.stack(rows)), torch.device("cpu"))


def trained_parent(folder: Path) -> TrainedParent:
    """Trains it on counting aloud, in about ten seconds of a core, and studies its cuts."""
    text = folder / "counting.txt"
    text.write_text("".join(f"{number} and {number + 1} make {2 * number + 1}\n" for number in range(400)))
    data = open_prepared(prepare(str(text), folder / "prepared", settings=Preparation(level="bytes")).folder)
    at = folder / "run"
    at.mkdir()
    recipe = Recipe.parse(RECIPE).model_dump(mode="json")
    spec = RunSpec(architecture=ARCHITECTURE, data=str(data.folder), recipe=recipe, threads=1)
    (at / SPEC).write_text(spec.model_dump_json())
    assert run(at, threading.Event()) == EXIT_DONE
    package = read_package(at / RESULT)
    study = study_pruning(package, data, "counter", SETTINGS)
    write_pruning_study(study, package.folder)
    return TrainedParent(package, data, study)
