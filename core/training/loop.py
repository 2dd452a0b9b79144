"""The training loop. Data and randomness depend only on the step, so a resumed training gives the same weights."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Diverged, InvalidInput, Unavailable
from edgefront.core.data.batches.batch import IGNORED, Batch
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.nn.context import Cache
from edgefront.core.nn.model import LanguageModel
from edgefront.core.schemas.trainings import MetricView
from edgefront.core.training.batches import make_batches
from edgefront.core.training.checkpoint import (
    Checkpoints,
    Progress,
    read_memory,
    read_model,
    read_optimizer,
    read_progress,
)
from edgefront.core.training.distributed import Meter, Ranks
from edgefront.core.training.evaluation.perplexity import Perplexity, autocast
from edgefront.core.training.optimizers import learning_rate, make_optimizer, set_learning_rate
from edgefront.core.training.parametrisation import initialise, load_initial_weights, load_teacher
from edgefront.core.training.recipes.recipe import carries_state, check_task
from edgefront.core.training.run_folder import (
    CHECKPOINTS,
    Journal,
    RunSpec,
    read_limit,
    recipe_of,
    with_vocabulary,
    write_limit,
)
from edgefront.core.training.step import (
    Objective,
    Validation,
    deterministic,
    is_not_deterministic,
    is_out_of_memory,
    rows_of,
    seed_device,
    seed_of,
)

_log = logging.getLogger(__name__)

Outcome = Literal["done", "stopped"]

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
_REPORTS = 100  # minimum number of reports of a training; a report takes as long as a small layer
_PENDING = "pending_losses"  # key of unreported losses in the stored memory of a rank


class SmallerBatch(Unavailable):
    """A rank ran out of memory. All ranks restart from the latest checkpoint with half the micro rows."""


class Abandoned(Exception):
    """Ends a step or an evaluation early, because each may take an hour. A resumed training repeats it."""


class Trainer:
    """Runs one training from the latest checkpoint, if there is one, to the end of the budget.

    Args:
        folder: run folder (`core.training.run_folder`) with the checkpoints.
        stop: called between steps; the training stops early if `stop` returns True.

    Raises `InvalidInput` if architecture, data and recipe are incompatible, or a checkpoint is of another training.
    """

    def __init__(
        self, spec: RunSpec, folder: Path, ranks: Ranks, journal: Journal, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.spec, self.ranks, self.journal, self._stop, self._folder = spec, ranks, journal, stop, folder
        self.recipe = recipe_of(spec)
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, self.recipe.checkpoints)
        # The data is verified once, before the first step.
        verify = ranks.is_first and self.checkpoints.latest() is None
        self.data = open_prepared(Path(spec.data), verify=verify)
        self.architecture = with_vocabulary(
            Architecture.parse(spec.architecture),
            max(self.data.vocab_size, spec.vocab_size or 0),
            self.data.source_vocab_size,
        )
        check_task(self.architecture, self.recipe)
        self.batches = make_batches(
            self.data, self.recipe, split="train", seed=spec.seed, rank=ranks.rank, ranks=ranks.ranks
        )
        self.model = LanguageModel(self.architecture)
        self.model.dropout = self.recipe.dropout
        initialise(self.model, self.recipe.initialisation, spec.seed, self.recipe.parametrisation)
        start_sha256, pruned = None, None
        if spec.start is not None and self.checkpoints.latest() is None:
            start_sha256, pruned = load_initial_weights(self.model, Path(spec.start), self.data, inherit=spec.inherit)
        self.model.to(ranks.device).train()
        self._validation = Validation(self.data, self.recipe, ranks.device)
        self._carries = carries_state(self.architecture, self.recipe.memory)
        memory = self.recipe.memory if self._carries else 0
        self.teacher = load_teacher(spec.teacher, self.recipe, self.data, ranks.device)
        objective = Objective(self.model, memory, self.recipe.label_smoothing, self.teacher)
        self._ddp: nn.parallel.DistributedDataParallel | None = None  # averages gradients over the ranks
        if ranks.ranks > 1:
            self._ddp = nn.parallel.DistributedDataParallel(objective, gradient_as_bucket_view=True)
        self._parameters = list(self.model.parameters())  # a walk through the modules takes as long as a small layer
        module = self._ddp or objective
        self._call = torch.compile(module) if self.recipe.compile else module
        self._meter = Meter(ranks)
        self.optimizer = make_optimizer(self.model, self.recipe.optimizer, self.recipe.parametrisation)
        self._scaler = torch.amp.GradScaler(ranks.device.type, enabled=self.recipe.precision == "float16")
        self._state: Cache | None = None
        rows = self.recipe.rows // ranks.ranks
        identity = [self.architecture.digest, self.data.digest, self.recipe.effective(), spec.seed]
        identity += [] if self.teacher is None else [self.teacher.sha256]
        self.progress = Progress(
            micro_rows=min(rows, self.recipe.micro_rows or rows, read_limit(folder) or rows),
            ranks=ranks.ranks,
            spec=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
            start=start_sha256,
            cut=pruned,
        )
        self._saved: int | None = None
        self._resume()

    def train(self) -> Outcome:
        """Trains until the budget is spent or `stop` returns True, and writes a checkpoint of the final step.

        Raises `Diverged` for a loss that is not finite, `SmallerBatch` (several ranks), `Unavailable` (a full disk).
        """
        # Deterministic mode would forbid the compiler's autotuning, and make compiled models slower.
        with nullcontext() if self.recipe.compile else deterministic(self.ranks.device):
            try:
                return self._train()
            except Abandoned:
                self._save_early()
                return "stopped"

    def _train(self) -> Outcome:
        recipe, steps = self.recipe, self.recipe.steps
        report_every = min(100, max(1, steps // _REPORTS))
        self.journal.update(state="training", step=self.progress.step, steps=steps, micro_rows=self.progress.micro_rows)
        self._meter.restart(self.progress.step)
        if self.progress.evaluated_step != self.progress.step > 0 == self.progress.step % recipe.evaluation.every:
            self._evaluate()  # it was stopped during this evaluation
        for step in range(self.progress.step, steps):
            batch, done = self.batches(step), step + 1
            counted = int((batch.targets != IGNORED).sum())
            is_spent = self.spec.budget.hours is not None and self.progress.seconds > self.spec.budget.hours * 3600
            # One all-reduce per step, so that all ranks continue or stop together.
            targets, stops, over = map(int, self.ranks.sums(counted, self._stop(), is_spent))
            if stops:
                raise Abandoned
            if over:
                self.journal.note(f"The {self.spec.budget.hours:g} hours were over after {step} of {steps} steps.")
                break
            lr = learning_rate(recipe.schedule, recipe.optimizer.lr, step, steps)
            self._meter.add(*self._step(batch, targets, step, lr))
            self.progress = self.progress.model_copy(update={"step": done, "tokens": self.progress.tokens + targets})
            evaluates = done % recipe.evaluation.every == 0 or done == steps
            saves = done % recipe.checkpoint_every == 0 or done == steps
            if done % report_every == 0 or evaluates or saves:
                self._report(lr)
            if evaluates:
                saves = self._evaluate() or saves
            if saves:
                self._save()
            if evaluates or saves:
                self._meter.restart(done)
        if self.progress.evaluated_step != self.progress.step:  # the budget of hours was spent between evaluations
            if self._meter.pending is not None:
                self._report(learning_rate(recipe.schedule, recipe.optimizer.lr, self.progress.step - 1, steps))
            self._evaluate()
            self._save()
        return "done"

    def load_best(self) -> int:
        """Loads the best checkpoint's parameters into the model. Returns the step of that checkpoint."""
        best = self.progress.best_step
        assert best is not None
        if best != self.progress.step:
            options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=self.ranks.ranks > 1)
            parameters = read_model(self.checkpoints.at(best)) if self.ranks.is_first else {}
            set_model_state_dict(self.model, dict(parameters), options=options)
        return best

    def evaluate(self, split: str, *, whole: bool = True) -> Perplexity | None:
        """Returns the perplexity on the whole split or (not `whole`) the part for evaluations; None on ranks > 0."""

        def left(seconds: float | None) -> None:
            if self.ranks.ranks == 1 and self._stop():
                raise Abandoned
            if seconds is not None:
                self.journal.update(now=False, seconds_left=round(seconds, 1))

        perplexity = self._validation(self.model, split, whole=whole, left=left) if self.ranks.is_first else None
        self.ranks.wait()
        return perplexity

    # Steps ----------------------------------------------------------------------------------------------------------

    def _step(self, batch: Batch, targets: int, step: int, lr: float) -> tuple[Tensor, Tensor]:
        """Runs one optimiser step. Returns mean losses, [1] (with a teacher [2]), and gradient norm, on the device."""
        set_learning_rate(self.optimizer, lr)
        while True:
            try:
                loss, state = self._gradients(batch, step, max(1, targets))
                break
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) and not is_not_deterministic(error):
                    raise
                nondeterministic = "" if is_out_of_memory(error) else str(error)
            # Outside the handler, whose traceback keeps every activation alive.
            if nondeterministic:
                torch.use_deterministic_algorithms(True, warn_only=True)
                why = nondeterministic.partition(". ")[0]
                self.journal.note(f"On this device it does not resume bit for bit: {why}.")
            else:
                self._halve_micro_rows(step)
        self._scaler.unscale_(self.optimizer)
        limit = math.inf if self.recipe.clip is None else self.recipe.clip
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, limit)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self._state = state
        return loss, norm

    def _gradients(self, batch: Batch, step: int, targets: int) -> tuple[Tensor, Cache | None]:
        """Accumulates gradients by micro-batches. Returns mean losses, and the cache for the next step."""
        seed_device(self.ranks.device, seed_of(self.spec.seed, step, self.ranks.rank))
        self.optimizer.zero_grad(set_to_none=True)
        rows = batch.inputs.shape[0]
        before = self._state if self._carries else None
        if self._carries and (before is None or batch.starts):
            before = self.model.init_cache(rows, "memory")
        size = self.progress.micro_rows or rows
        total = torch.zeros((), device=self.ranks.device)  # becomes [kinds] with the first loss
        states = []
        for start in range(0, rows, size):
            stop = min(rows, start + size)
            if start and self.ranks.ranks == 1 and self._stop():
                raise Abandoned
            is_last = stop == rows
            with self._ddp.no_sync() if self._ddp is not None and not is_last else nullcontext():
                with autocast(self.ranks.device, self.recipe.precision):
                    part = None if before is None else before.rows(start, stop)
                    loss, parts, state = self._call(rows_of(batch.rows(start, stop), self.ranks.device), part)
                # DDP averages gradients over the ranks, while `targets` is the sum over the ranks.
                self._scaler.scale(loss * (self.ranks.ranks / targets)).backward()
            total = total + parts
            if state is not None:
                states.append(state)
        return total / targets, Cache.concatenate(states) if states else None

    def _halve_micro_rows(self, step: int) -> None:
        """Halves the rows of a micro-batch. The batch of a step and the training's result do not change."""
        rows = self.progress.micro_rows or 1
        if rows == 1:
            raise Unavailable(
                f"out of memory at step {step} with one row of {self.recipe.segment} tokens at a time: this device is "
                "too small for this model; take a shorter segment, a smaller model or a larger device"
            )
        half = math.ceil(rows / 2)
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        self.progress = self.progress.model_copy(update={"micro_rows": half})
        write_limit(self._folder, half)
        self.journal.update(micro_rows=half)
        text = f"Out of memory with {rows} rows at a time; from step {step} on {half}. The batch is the same."
        _log.warning(text)
        self.journal.note(text)
        if self.ranks.ranks > 1:
            raise SmallerBatch(text)

    # Between steps --------------------------------------------------------------------------------------------------

    def _report(self, lr: float) -> None:
        """Writes the metrics of the steps since the previous report. Raises `Diverged` if a loss is not finite."""
        self._check_finite()
        reading = self._meter.read(self.progress.step)
        self.progress = self.progress.model_copy(update={"seconds": self.progress.seconds + reading.seconds})
        self.journal.report(
            self._metric(
                loss=reading.losses[0],
                extra=dict(zip(("divergence",), reading.losses[1:], strict=False)),
                lr=lr,
                gradient_norm=reading.norm if math.isfinite(reading.norm) else None,
                tokens_per_s=round(self.recipe.rows * self.recipe.segment / reading.seconds_per_step, 1),
            )
        )
        step, pace, hours = self.progress.step, reading.seconds_per_step, self.spec.budget.hours or math.inf
        training = min((self.recipe.steps - step) * pace, max(0.0, hours * 3600 - self.progress.seconds))
        left = training + self._validation.seconds_left(step, pace)
        self.journal.update(now=False, seconds_left=round(left, 1))

    def _save_early(self) -> None:
        """Saves a checkpoint before the end of the training."""
        self._check_finite()
        self.progress = self.progress.model_copy(update={"seconds": self.progress.seconds + self._meter.seconds})
        self._meter.restart(self.progress.step)
        self._save()

    def _check_finite(self) -> None:
        """Raises `Diverged` if a loss or gradient is not finite; float16 skips steps with infinite gradients."""
        if not self._meter.is_finite(norm=not self._scaler.is_enabled()):
            raise Diverged(
                f"the loss or its gradient is not a number by step {self.progress.step}: take a lower learning rate, "
                "a longer warm-up or clip gradients; the last checkpoint is from before"
            )

    def _evaluate(self) -> bool:
        """Evaluates on the validation split. Returns whether the loss is the best so far."""
        self.journal.update(state="evaluating")
        found = self.evaluate("valid", whole=False)
        (loss,) = self.ranks.sums(0.0 if found is None else found.loss)
        if found is not None:
            self.journal.report(
                self._metric(valid_loss=found.loss, valid_perplexity=found.perplexity, valid_bpc=found.bpc)
            )
        self.journal.update(state="training")
        is_best = self.progress.best_loss is None or loss < self.progress.best_loss
        best = {"best_loss": loss, "best_step": self.progress.step} if is_best else {}
        self.progress = self.progress.model_copy(update={"evaluated_step": self.progress.step, **best})
        return is_best

    def _metric(self, **values: Any) -> MetricView:
        done = self.progress
        return MetricView(step=done.step, tokens=done.tokens, seconds=round(done.seconds, 3), **values)

    def _save(self) -> None:
        if self._saved == self.progress.step:
            return
        model = get_model_state_dict(self.model, options=_WHOLE)
        optimizer = get_optimizer_state_dict(self.model, self.optimizer, options=_WHOLE)
        memory = {} if self._state is None else dict(self._state)
        if (pending := self._meter.pending) is not None:
            memory[_PENDING] = pending
        self.progress = self.progress.model_copy(update={"scaler": self._scaler.state_dict()})
        self.checkpoints.save(self.progress, model, optimizer, memory, self.ranks)
        self._saved = self.progress.step

    def _resume(self) -> None:
        """Resumes from the latest checkpoint, if any."""
        latest = self.checkpoints.latest()
        if latest is None:
            self.journal.rewind(0)
            return
        before = read_progress(latest)
        if before.spec != self.progress.spec:
            raise InvalidInput(
                f"{latest} is a checkpoint of another training: its architecture, data, recipe or seed differ",
                field="checkpoints",
                value=before.spec,
                allowed=f"checkpoints of {self.progress.spec}, or an empty folder",
            )
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=self.ranks.ranks > 1)
        optimizer = read_optimizer(latest) if self.ranks.is_first else {}
        set_model_state_dict(self.model, read_model(latest) if self.ranks.is_first else {}, options=options)
        set_optimizer_state_dict(self.model, self.optimizer, optimizer, options=options)
        if before.scaler:
            self._scaler.load_state_dict(dict(before.scaler))
        if before.ranks == self.ranks.ranks:
            self._restore_memory(read_memory(latest, self.ranks.rank))
        else:
            self.journal.note(
                f"It resumed with {self.ranks.ranks} ranks instead of {before.ranks}: memory was cleared."
            )
        # The micro rows depend on this device, so the checkpoint's value is not restored.
        self.progress = before.model_copy(update={"ranks": self.ranks.ranks, "micro_rows": self.progress.micro_rows})
        self._saved = before.step
        self.journal.rewind(before.step)
        self.journal.note(f"It resumed from step {before.step}.")

    def _restore_memory(self, memory: dict[str, Tensor]) -> None:
        if (pending := memory.pop(_PENDING, None)) is not None:
            self._meter.resume(pending)
        if memory:
            # Counts stay on the CPU, because reading a count on the GPU would wait for the GPU in every step.
            device, self._state = self.ranks.device, Cache(self.architecture, "memory")
            for name, value in memory.items():
                self._state[name] = value.to(device) if value.is_floating_point() else value
