"""Trainings of `bench_gain.py`: by the training pool's own loop and the recipe `modern`, one thread each."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROWS, SEGMENT = 4, 128
TOKENS_A_STEP = ROWS * SEGMENT
POINTS = 4
"""Of a learning curve."""


@dataclass(frozen=True)
class Run:
    """One training."""

    digest: str
    architecture: dict[str, Any]
    seed: int
    steps: int
    cost: float
    """FLOPs, to start the longest first."""

    @property
    def key(self) -> tuple[str, int, int]:
        return self.digest, self.seed, self.steps


def train(run: Run, data: Path, until: float, lr: float) -> dict[str, Any] | None:
    """The result of a training; None where the time is over before its start."""
    if time.time() > until:
        return None
    import torch
    from reference import perplexity

    from edgefront.core.data.prepared.prepared import open_prepared
    from edgefront.core.recipes.papers import recipe
    from edgefront.core.training.distributed import Ranks
    from edgefront.core.training.journal import Journal, read_metrics
    from edgefront.core.training.loop import Trainer
    from edgefront.core.training.run_folder import METRICS, RunSpec

    torch.set_num_threads(1)
    every = max(1, run.steps // POINTS)
    how = recipe("modern").overridden(
        {
            "steps": run.steps,
            "rows": ROWS,
            "segment": SEGMENT,
            "optimizer": {"lr": lr},
            "schedule": {"warmup": run.steps // 10},
            "checkpoint_every": run.steps,
            "evaluation": {"every": every, "tokens": 32 * SEGMENT, "segment": SEGMENT},
        }
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spec = RunSpec(
            architecture=run.architecture,
            data=str(data.absolute()),
            recipe=how.model_dump(mode="json"),
            seed=run.seed,
            threads=1,
        )
        begun = time.perf_counter()
        trainer = Trainer(spec, folder, Ranks(0, 1, torch.device("cpu")), Journal(folder, writes=True), lambda: False)
        trainer.train()
        seconds = time.perf_counter() - begun
        curve = [
            [metric.tokens, metric.valid_loss]
            for metric in read_metrics(folder / METRICS)
            if metric.valid_loss is not None
        ]
        test = perplexity(trainer.model, open_prepared(data).split("test"))
    return {
        "digest": run.digest,
        "seed": run.seed,
        "steps": run.steps,
        "tokens": run.steps * TOKENS_A_STEP,
        "perplexity": test,
        "log_perplexity": math.log(test),
        "curve": curve,
        "seconds": round(seconds, 2),
        "tokens_per_s": round(run.steps * TOKENS_A_STEP / seconds),
    }


def train_all(runs: Sequence[Run], data: Path, processes: int, minutes: float, lr: float) -> Iterator[dict[str, Any]]:
    """Results as they come, the longest trainings first. None begins after so many minutes."""
    until = time.time() + 60 * minutes
    ordered = sorted(runs, key=lambda run: -run.cost * run.steps)
    # Processes that are started anew: a fork would inherit torch's threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(train, run, data, until, lr) for run in ordered]):
            result = finished.result()
            if result is not None:
                yield result
