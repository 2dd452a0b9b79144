"""Loss on the validation split after a few steps of training (LTS, arXiv 2203.02094, §4.2): nats a token.

A training like any other, with a schedule as long as its steps: the same loop, data order and initialisation.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Diverged, InvalidInput
from edgefront.core.schemas.trainings import TrainingBudget
from edgefront.core.training.distributed import joined
from edgefront.core.training.loop import Trainer
from edgefront.core.training.proxies.registry import ProxySettings, scorable
from edgefront.core.training.recipes.catalogue import recipe
from edgefront.core.training.run_folder import Journal, RunSpec


def score(
    architecture: Architecture,
    seed: int,
    settings: ProxySettings,
    device: Literal["cpu", "cuda"] = "cpu",
    data: Path | None = None,
) -> float:
    """Lower is better. `data` is the folder of a prepared data set.

    Raises `InvalidInput` without data, where data, recipe and architecture do not go together, and for a loss that is
    no number.
    """
    if data is None:
        raise InvalidInput("partial_training needs a prepared data set", field="data", allowed="its folder")
    spec = RunSpec(
        architecture=scorable(architecture).canonical,
        data=str(data.absolute()),
        recipe=recipe(settings.recipe).model_dump(mode="json"),
        budget=TrainingBudget(steps=settings.steps),
        seed=seed,
        device=device,
        threads=1 if device == "cpu" else None,
    )
    with tempfile.TemporaryDirectory(prefix="edgefront-score-") as folder, joined(device, spec.threads) as ranks:
        journal = Journal(Path(folder), writes=True)
        trainer = Trainer(spec, Path(folder), ranks, journal)
        try:
            trainer.train()
        except Diverged as error:
            raise InvalidInput(f"partial_training diverged: {error.detail}", field="architecture") from None
    last = journal.status.last
    if last is None or last.valid_loss is None:
        raise InvalidInput(
            f"the data set in {data.name} has no validation split to take the loss on", field="data", value=data.name
        )
    return last.valid_loss
