"""Runs supernet searches of one or several seeds in a run's folder (`core.training.run_folder`).

Metrics count steps over all searches; `extra` of a line has seed, phase, temperature, pattern and probabilities.
`result/supernet.json` is a `core.search.supernet_settings.SupernetResult`; `result.json` has the same
content without the history of probabilities.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgefront.core.common.errors import InvalidInput, Unavailable
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.schemas.trainings import MetricView
from edgefront.core.search.supernet_settings import SearchOutcome, SupernetResult, SupernetSettings
from edgefront.core.training.batches import make_batches
from edgefront.core.training.checkpoint import (
    Checkpoints,
    Progress,
    read_memory,
    read_model,
    read_optimizer,
    read_progress,
)
from edgefront.core.training.distributed import Ranks, joined
from edgefront.core.training.optimizers import learning_rate, make_optimizer
from edgefront.core.training.parametrisation import initialise
from edgefront.core.training.recipes.recipe import check_task
from edgefront.core.training.run_folder import (
    CHECKPOINTS,
    EXIT_DONE,
    EXIT_STOPPED,
    RESULT,
    Journal,
    RunSpec,
    read_limit,
    recipe_of,
    tensorboard,
    write_limit,
)
from edgefront.core.training.supernet.search import Search, StepResult
from edgefront.core.training.supernet.supernet import Supernet

_log = logging.getLogger(__name__)

_REPORTS = 200  # lines of metrics of one search, in addition to a line every `_REPORT_S` seconds
_REPORT_S = 10.0


def run(spec: RunSpec, folder: Path, stop: Callable[[], bool] = lambda: False) -> int:
    """Searches until each seed has an architecture or `stop` returns True; resumes from the latest checkpoint.

    A budget of steps or tokens applies to each search; a budget of hours applies to all searches together. Returns
    `EXIT_DONE`, or, after a checkpoint, `EXIT_STOPPED`; writes the outcome into `status.json`.

    Raises:
        InvalidInput: settings, data and recipe are incompatible, or the checkpoint belongs to another run.
        Diverged: a loss is not finite.
        Unavailable: the disk is full, memory is too small for one row, or no architecture step fits into the hours.
    """
    with joined(spec.device, spec.threads) as ranks:
        if ranks.ranks > 1:
            raise InvalidInput(
                f"a supernet is trained by one process, not by {ranks.ranks}",
                field="gpus",
                value=ranks.ranks,
                allowed="1",
            )
        runner = _Run(spec, folder, ranks)
        with tensorboard(runner.journal, folder):
            if not runner.search(stop):
                runner.journal.update(state="stopped")
                return EXIT_STOPPED
            runner.result().write(folder / RESULT)
            runner.journal.update(state="done", seconds_left=0.0)
            return EXIT_DONE


class _Run:
    def __init__(self, spec: RunSpec, folder: Path, ranks: Ranks) -> None:
        self._spec, self._folder, self._ranks = spec, folder, ranks
        self._settings = SupernetSettings.parse(spec.supernet or {})
        self._recipe = recipe_of(spec)
        self.journal = Journal(folder, writes=True)
        self._checkpoints = Checkpoints(folder / CHECKPOINTS, self._recipe.checkpoints)
        # The data is verified once, before the first step.
        self._data = open_prepared(Path(spec.data), verify=self._checkpoints.latest() is None)
        self._outcomes: list[SearchOutcome] = []
        self._steps_before = 0
        """Total number of steps of finished searches."""
        self._tokens, self._seconds = 0, 0.0
        self._saved = -1
        self._unreported: list[StepResult] = []
        self._since = 0.0
        self._search = self._resumed()

    def search(self, stop: Callable[[], bool]) -> bool:
        """Searches every seed. Returns False if `stop` ended the search early."""
        self.journal.update(state="training", step=self._step, steps=self._steps, micro_rows=self._search.micro_rows)
        self._since = time.monotonic()
        while True:
            search = self._search
            hours = self._spec.budget.hours
            spent = hours is not None and self._seconds > hours * 3600
            if search.finished or spent:
                self._report()
                self._finish_search(search)
                if spent or len(self._outcomes) == self._settings.seeds:
                    return True
                self._search = self._begin(len(self._outcomes))
                self._since = time.monotonic()
                continue
            if stop():
                self._report()
                self._save()
                return False
            rows = search.micro_rows
            self._unreported.append(search.step())
            if search.micro_rows != rows:
                write_limit(self._folder, search.micro_rows)
                self.journal.update(micro_rows=search.micro_rows)
                self.journal.note(f"Out of memory with {rows} rows at a time; now {search.micro_rows}, the same batch.")
            saves = search.steps % self._recipe.checkpoint_every == 0
            is_due = search.steps % max(1, self._recipe.steps // _REPORTS) == 0
            if is_due or time.monotonic() - self._since > _REPORT_S or search.finished or saves:
                self._report()
            if saves:
                self._save()

    def result(self) -> SupernetResult:
        return SupernetResult(settings=self._settings, searches=tuple(self._outcomes))

    def _report(self) -> None:
        """Writes the metrics of the steps since the previous report, if there are any."""
        if not self._unreported:
            return
        seconds, steps, step = time.monotonic() - self._since, self._unreported, self._unreported[-1]
        self._unreported, self._since = [], time.monotonic()
        loss, tokens = sum(each.loss for each in steps) / len(steps), sum(each.tokens for each in steps)
        self._tokens, self._seconds = self._tokens + tokens, self._seconds + seconds
        search = self._search
        left = (self._steps - self._step) * self._seconds / max(1, self._step)
        self.journal.update(now=False, steps=self._steps, seconds_left=round(left, 1))
        extra: dict[str, Any] = {
            "seed": search.seed,
            "phase": "tuning" if step.plan.tuning else "weights",
            "temperature": round(step.plan.temperature, 5),
            "pattern": search.pattern,
            "probabilities": search.probabilities(),
        }
        if (expected := search.expected_ms()) is not None:
            extra["expected_ms"] = expected
        self.journal.report(
            MetricView(
                step=self._step,
                tokens=self._tokens,
                seconds=round(self._seconds, 3),
                loss=loss,
                lr=self._lr(search.steps - 1),
                tokens_per_s=round(tokens / max(seconds, 1e-9), 1),
                extra=extra,
            )
        )

    @property
    def _step(self) -> int:
        return self._steps_before + self._search.steps

    @property
    def _steps(self) -> int:
        """Maximum number of steps of all searches together; a search that converges takes fewer steps."""
        return self._steps_before + (self._settings.seeds - len(self._outcomes)) * self._recipe.steps

    def _lr(self, step: int) -> float:
        lr: float = learning_rate(self._recipe.schedule, self._recipe.optimizer.lr, step, self._recipe.steps)
        return lr

    def _begin(self, index: int) -> Search:
        recipe, seed = self._recipe, self._spec.seed + index
        model = Supernet(self._settings, self._data.vocab_size)
        check_task(model.architecture, recipe)
        model.dropout = recipe.dropout
        initialise(model, recipe.initialisation, seed, recipe.parametrisation)
        model.to(self._ranks.device)
        batches = make_batches(self._data, recipe, split="train", seed=seed)
        optimizer = make_optimizer(model, recipe.optimizer, recipe.parametrisation)
        search = Search(model, batches, recipe, optimizer, self._lr, seed=seed)
        search.micro_rows = min(search.micro_rows, read_limit(self._folder) or search.micro_rows)
        return search

    def _finish_search(self, search: Search) -> None:
        """Stores the outcome of a search after a checkpoint, so that the search is not repeated."""
        if (
            not search.has_architecture_step and self._outcomes
        ):  # the hours were over before the first architecture step of this search
            return
        if not search.has_architecture_step:
            raise Unavailable(
                f"the budget of {self._spec.budget.hours:g} hours was over after {search.steps} of "
                f"{self._recipe.steps} steps, before the first architecture step. Give more hours or fewer steps"
            )
        result = search.outcome()
        _log.info("seed %d: %s after %d steps", result.seed, result.pattern, result.steps)
        if result.note:
            self.journal.note(result.note)
        self._save()
        self._outcomes.append(result)
        self._steps_before += search.steps

    # Checkpoints ----------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._saved == self._step:
            return
        search = self._search
        progress = Progress(
            step=self._step,
            tokens=self._tokens,
            seconds=self._seconds,
            micro_rows=search.micro_rows,
            spec=self._digest(),
        )
        position = {
            "search": search.progress(),
            "found": [result.model_dump(mode="json") for result in self._outcomes],
            "before": self._steps_before,
        }
        optimizers = {**search.optimizers(), "place": json.dumps(position)}
        self._checkpoints.save(progress, search.tensors(), optimizers, search.memory(), self._ranks)
        self._saved = self._step

    def _resumed(self) -> Search:
        """Returns the search of the latest checkpoint; without a checkpoint, a new search of the first seed."""
        latest = self._checkpoints.latest()
        if latest is None:
            self.journal.rewind(0)
            return self._begin(0)
        progress = read_progress(latest)
        if progress.spec != self._digest():
            raise InvalidInput(
                f"{latest} is a checkpoint of another search: its settings, data, recipe or seed differ",
                field="checkpoints",
                value=progress.spec,
                allowed=f"checkpoints of {self._digest()}, or an empty folder",
            )
        optimizers = read_optimizer(latest)
        position = json.loads(optimizers.pop("place"))
        self._outcomes = [SearchOutcome.model_validate(result) for result in position["found"]]
        self._steps_before, self._tokens, self._seconds = position["before"], progress.tokens, progress.seconds
        search = self._begin(len(self._outcomes))
        search.restore(read_model(latest), optimizers, read_memory(latest, 0), position["search"])
        self._saved = progress.step
        self.journal.rewind(progress.step)
        self.journal.note(f"It resumed from step {progress.step}.")
        return search

    def _digest(self) -> str:
        """Digest of settings, data, recipe and seed. A checkpoint with another digest is refused."""
        identity = [
            self._settings.model_dump(mode="json"),
            self._data.digest,
            self._recipe.effective(),
            self._spec.seed,
        ]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
