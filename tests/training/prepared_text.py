"""A small prepared data set, made from numbers: counting aloud, which a model of a few thousand weights can learn; and
trainings on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.training.distributed import Ranks
from edgefront.core.training.loop import Trainer
from edgefront.core.training.run_folder import Journal, RunSpec

ALONE = Ranks(0, 1, torch.device("cpu"))


def prepared_text(folder: Path, **settings: Any) -> Path:
    """The folder of a data set, by default of bytes, with about 4,000 of them to train on."""
    text = folder / "counting.txt"
    text.write_text("".join(f"{number} and {number + 1} make {2 * number + 1}\n" for number in range(220)))
    return prepare(str(text), folder / "prepared", settings=Preparation(**{"level": "bytes"} | settings)).folder


def trainer(spec: RunSpec, folder: Path, stop: Callable[[], bool] = lambda: False) -> Trainer:
    folder.mkdir(exist_ok=True)
    return Trainer(spec, folder, ALONE, Journal(folder, writes=True), stop)


def after(steps: int) -> Callable[[], bool]:
    """True when asked for the (steps + 1)th time."""
    left = iter(range(steps))
    return lambda: next(left, None) is None
