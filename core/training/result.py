"""What a training leaves: the best weights with everything that is needed to use them, and what they score."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefront.core.evaluation.package import write_package
from edgefront.core.training.loop import Trainer
from edgefront.core.training.run_folder import RESULT


def write_result(trainer: Trainer, folder: Path) -> None:
    """Evaluates the best weights on the whole of the held-out splits and writes `result/`. All ranks call it."""
    best = trainer.load_best()
    scores = {split: trainer.evaluate(split) for split in ("valid", "test") if split in trainer.data.splits}
    progress = trainer.progress
    facts: dict[str, Any] = {
        **trainer.spec.about,
        "steps": progress.step,
        "best_step": best,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 3),
        **_start(trainer),
        "digest": trainer.architecture.digest,
        "dataset": trainer.data.name,
        "data_digest": trainer.data.digest,
        "level": trainer.data.level,
        "recipe": trainer.recipe.model_dump(mode="json"),
        "seed": trainer.spec.seed,
        **{split: None if score is None else asdict(score) for split, score in scores.items()},
    }
    model = trainer.whole_model()
    if model is not None:
        write_package(folder / RESULT, model, trainer.data, facts)
    trainer.ranks.wait()


def _start(trainer: Trainer) -> dict[str, Any]:
    """With whose weights it began."""
    sha256 = trainer.progress.start
    return {} if sha256 is None else {"start": {**trainer.spec.about.get("start", {}), "sha256": sha256}}
