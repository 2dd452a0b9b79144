"""Supernet search of one seed: trains weights, then weights and architecture alternately (PAR §2.2, eq. 7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from edgefront.core.architectures.pattern import contract
from edgefront.core.common.errors import Diverged, InvalidInput, Unavailable
from edgefront.core.data.batches.batch import IGNORED, Batch, Batches
from edgefront.core.nn.context import Cache
from edgefront.core.search.supernet_settings import (
    Record,
    SearchOutcome,
    SearchSettings,
    undecided,
)
from edgefront.core.training.evaluation.perplexity import autocast
from edgefront.core.training.optimizers import set_learning_rate
from edgefront.core.training.recipes.recipe import Recipe, carries_state
from edgefront.core.training.step import Objective, is_out_of_memory, rows_of, seed_device, seed_of
from edgefront.core.training.supernet.supernet import Mixture, Supernet

Kind = Literal["weights", "architecture"]


class DataParts:
    """Splits the data: batches of the first steps of an epoch train weights, later batches train the architecture.

    With contiguous text one part is the beginning of each row, the other part the rest. Every epoch of a part has the
    same batches, and begins with empty memory.
    """

    def __init__(self, batches: Batches, architecture_fraction: float) -> None:
        self._batches = batches
        epoch = batches.steps_per_epoch
        if epoch < 2:
            raise InvalidInput(
                f"one epoch of this data has {epoch} step, but a search needs at least one step for the weights and "
                "one for the architecture",
                field="recipe.rows",
                allowed="more data, fewer rows or a shorter segment",
            )
        architecture = min(epoch - 1, max(1, round(epoch * architecture_fraction)))
        self.steps: dict[Kind, int] = {"weights": epoch - architecture, "architecture": architecture}

    def batch(self, kind: Kind, number: int) -> Batch:
        """Returns the batch of the `number`-th step (from 0) on weights or on the architecture."""
        within = number % self.steps[kind]
        batch = self._batches(within if kind == "weights" else self.steps["weights"] + within)
        return batch if within else replace(batch, starts=True)


@dataclass(frozen=True)
class StepPlan:
    """Plan of one step of the schedule."""

    kind: Kind
    number: int
    """Index of the step among the steps of the same kind (weights or architecture)."""
    temperature: float
    tuning: bool
    """Whether the architecture is trained too; False in the first phase, which trains only weights."""


class SearchSchedule:
    """Schedule of a search: steps on weights only, then cycles of steps on weights and architecture (PAR §2.2)."""

    def __init__(self, steps: int, settings: SearchSettings, epoch: int) -> None:
        """Plans `steps` steps, `epoch` steps per epoch. Raises `InvalidInput` if the architecture has no step."""
        self.steps, self._settings = steps, settings
        self.weight_steps = steps // 5 if settings.weight_steps is None else settings.weight_steps
        self.tuning_steps = steps - self.weight_steps
        if self.tuning_steps < 2:
            raise InvalidInput(
                f"weight_steps of {self.weight_steps} leave {max(0, self.tuning_steps)} of {steps} steps for the "
                "architecture",
                field="supernet.weight_steps",
                value=self.weight_steps,
                allowed=f"at most {max(0, steps - 2)}, or more steps",
            )
        least = math.ceil(1 / min(settings.architecture_fraction, 1 - settings.architecture_fraction))
        length = settings.cycle_steps or max(least, min(epoch, self.tuning_steps // 10))
        self._cycle = min(length, self.tuning_steps)
        share = round(self._cycle * settings.architecture_fraction)
        self._architecture = min(self._cycle - 1, max(1, share))

    def at(self, step: int) -> StepPlan:
        """Returns the plan of step `step`, counted from 0."""
        tuning_step = step - self.weight_steps
        settings = self._settings
        if tuning_step < 0:
            return StepPlan("weights", step, settings.temperature, False)
        progress = tuning_step / max(1, self.tuning_steps - 1)
        temperature = settings.temperature * (settings.final_temperature / settings.temperature) ** progress
        cycles, index = divmod(tuning_step, self._cycle)
        weights = self._cycle - self._architecture
        if index < weights:
            return StepPlan("weights", self.weight_steps + cycles * weights + index, temperature, True)
        return StepPlan("architecture", cycles * self._architecture + index - weights, temperature, True)

    def patience(self) -> int:
        """Number of steps without change of the most likely blocks after which a search ends."""
        return max(1, math.ceil(self.tuning_steps * self._settings.patience))


_RECENT = 20  # number of latest architecture steps in the reported mean loss
_DIGITS = 5  # number of decimal digits of stored probabilities


@dataclass(frozen=True)
class StepResult:
    """Result of one step. `loss` is in nats per token, without the latency term."""

    plan: StepPlan
    loss: float
    tokens: int


class Search:
    """Trains a supernet and its probabilities to the end of the schedule, or until the probabilities converge.

    Randomness and data are functions of seed and step; `restore` resumes from `tensors`, `optimizers`, `memory` and
    `progress`.

    Args:
        model: supernet with initial weights, on the device of the search.
        batches: batches of the training split, divided between weights and architecture (`DataParts`).
        recipe: recipe of the search; `steps` counts steps on weights and on the architecture.
        optimizer: optimiser of the supernet's parameters.
        lr: learning rate of the weights by step.

    Raises `InvalidInput` if no batch is left for training the architecture, and for float16.
    """

    def __init__(
        self,
        model: Supernet,
        batches: Batches,
        recipe: Recipe,
        optimizer: torch.optim.Optimizer,
        lr: Callable[[int], float],
        *,
        seed: int,
    ) -> None:
        if recipe.precision == "float16":
            raise InvalidInput(
                "a supernet cannot be trained in float16, because the gradients of its probabilities would vanish",
                field="recipe.precision",
                value=recipe.precision,
                allowed="bfloat16 or float32",
            )
        self.model, self.recipe, self.seed = model.train(), recipe, seed
        self.settings = settings = model.settings
        self._device = next(model.parameters()).device
        self._parts = DataParts(batches, settings.architecture_fraction)
        self._schedule = SearchSchedule(recipe.steps, settings, batches.steps_per_epoch)
        self._optimizer, self._lr = optimizer, lr
        self.mixture = Mixture(settings.layers, settings.choices).to(self._device)
        self._architecture_optimizer = torch.optim.Adam(
            self.mixture.parameters(), lr=settings.architecture_lr, weight_decay=settings.architecture_weight_decay
        )
        self._carries = carries_state(model.architecture, recipe.memory)
        self._objective = Objective(model, recipe.memory if self._carries else 0, recipe.label_smoothing)
        self._states: dict[Kind, Cache | None] = {"weights": None, "architecture": None}
        self.micro_rows = recipe.micro_rows or recipe.rows
        self.steps = 0
        """Number of finished steps."""
        self._letters, self._changed_at = self.mixture.letters(), 0
        self._recent: list[float] = []
        self._records: list[Record] = []
        self._record_every = max(1, math.ceil(recipe.steps / (settings.records - 1)))

    @property
    def converged(self) -> bool:
        """Whether the most likely block of every layer is distinct (`undecided`), and has stayed the same for the
        schedule's patience.
        """
        since = self.steps - max(self._changed_at, self._schedule.weight_steps)
        is_patient = self.steps > self._schedule.weight_steps and since >= self._schedule.patience()
        return is_patient and not undecided(self.probabilities())

    @property
    def finished(self) -> bool:
        return self.steps >= self.recipe.steps or self.converged

    @property
    def pattern(self) -> str:
        """Most likely block of each layer, as a string with a letter per layer."""
        return contract(self._letters)

    @property
    def has_architecture_step(self) -> bool:
        return bool(self._recent)

    def step(self) -> StepResult:
        """Runs the next step. Raises `Diverged` if the loss is not finite, `Unavailable` if memory is too small."""
        plan = self._schedule.at(self.steps)
        batch = self._parts.batch(plan.kind, plan.number)
        while True:
            try:
                loss = (
                    self._weight_step(batch, plan) if plan.kind == "weights" else self._architecture_step(batch, plan)
                )
                break
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler, whose traceback keeps every activation alive.
            self._halve_micro_rows()
        self.steps += 1
        if plan.kind == "architecture":
            self._recent = [*self._recent, loss][-_RECENT:]
            letters = self.mixture.letters()
            if letters != self._letters:
                self._letters, self._changed_at = letters, self.steps
        if self.steps % self._record_every == 0 or self.finished:
            self._records.append(
                Record(step=self.steps, temperature=plan.temperature, probabilities=self.probabilities())
            )
        return StepResult(plan, loss, batch.inputs.size)

    def probabilities(self) -> tuple[tuple[float, ...], ...]:
        """Probabilities of the blocks, one row per layer."""
        probabilities = self.mixture.probabilities().detach().cpu().tolist()
        return tuple(tuple(round(number, _DIGITS) for number in row) for row in probabilities)

    def expected_ms(self) -> float | None:
        """Expected latency in ms under the probabilities; None without a latency term."""
        term = self.settings.latency
        return None if term is None else round(self.mixture.expected_ms(term).item(), 6)

    def outcome(self) -> SearchOutcome:
        """Returns a pair: the architecture of the most likely blocks, and the record of the search."""
        architecture = self.settings.architecture(self._letters, self.model.architecture.embedding.vocab_size)
        return SearchOutcome(
            seed=self.seed,
            pattern=self.pattern,
            architecture=architecture.canonical,
            digest=architecture.digest,
            converged=self.converged,
            steps=self.steps,
            changed_at=self._changed_at,
            loss=sum(self._recent) / len(self._recent) if self._recent else None,
            expected_ms=self.expected_ms(),
            probabilities=self.probabilities(),
            records=tuple(self._records),
        )

    # Steps ----------------------------------------------------------------------------------------------------------

    def _weight_step(self, batch: Batch, plan: StepPlan) -> float:
        set_learning_rate(self._optimizer, self._lr(self.steps))
        self._optimizer.zero_grad(set_to_none=True)
        mixture = self._draw(plan).detach()
        loss = self._pass(batch, "weights", mixture, lambda part: part.backward())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip or math.inf)
        self._check(loss, norm.item())
        self._optimizer.step()
        return loss

    def _architecture_step(self, batch: Batch, plan: StepPlan) -> float:
        """Runs a step on the architecture. Only the logits get gradients, through the mixture; weights get none."""
        drawn = self._draw(plan)
        mixture = drawn.detach().requires_grad_()
        total = torch.zeros_like(mixture)

        def accumulate(part: Tensor) -> None:
            total.add_(torch.autograd.grad(part, mixture)[0])

        loss = self._pass(batch, "architecture", mixture, accumulate)
        self._check(loss, total.norm().item())
        self._architecture_optimizer.zero_grad(set_to_none=True)
        drawn.backward(total)
        if self.settings.latency is not None:
            self.mixture.penalty(self.settings.latency).backward()
        self._architecture_optimizer.step()
        return loss

    def _draw(self, plan: StepPlan) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of(self.seed, self.steps, 0))
        return self.mixture.draw(plan.temperature, generator, hard=self.settings.hard)

    def _pass(self, batch: Batch, kind: Kind, mixture: Tensor, backward: Callable[[Tensor], None]) -> float:
        """Computes the mean loss of a batch by micro-batches; calls `backward` with the loss of each micro-batch."""
        seed_device(self._device, seed_of(self.seed, self.steps, 1))  # the seed of dropout
        rows, targets = batch.inputs.shape[0], max(1, int((batch.targets != IGNORED).sum()))
        before = self._states[kind]
        if self._carries and (before is None or batch.starts):
            before = self.model.init_cache(rows, "memory")
        total, states = torch.zeros((), device=self._device), []
        for start in range(0, rows, self.micro_rows):
            stop = min(rows, start + self.micro_rows)
            with autocast(self._device, self.recipe.precision), self.model.mixed(mixture):
                part = None if before is None else before.rows(start, stop)
                loss, _, state = self._objective(rows_of(batch.rows(start, stop), self._device), part)
            backward(loss / targets)
            total += loss.detach()
            if state is not None:
                states.append(state)
        self._states[kind] = Cache.concatenate(states) if states else None
        mean: float = total.item() / targets
        return mean

    def _check(self, loss: float, norm: float) -> None:
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise Diverged(
                f"the supernet's loss is {loss} and its gradient's norm {norm} at step {self.steps} of seed "
                f"{self.seed}: take a lower learning rate, a longer warm-up or clip gradients"
            )

    def _halve_micro_rows(self) -> None:
        if self.micro_rows == 1:
            raise Unavailable(
                f"out of memory with one row of {self.recipe.segment} tokens at a time: this device is too small for "
                "this supernet; take a shorter segment, fewer layers or a larger device"
            )
        self.micro_rows = math.ceil(self.micro_rows / 2)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    # Resuming -------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Returns the supernet's parameters by name, and the logits."""
        return {**self.model.state_dict(), "mixture.logits": self.mixture.logits.detach()}

    def optimizers(self) -> dict[str, Any]:
        return {"weights": self._optimizer.state_dict(), "architecture": self._architecture_optimizer.state_dict()}

    def memory(self) -> dict[str, Tensor]:
        """Returns the cached tensors of both parts of the data (`DataParts`), by part and name."""
        return {f"{kind}/{name}": kept for kind, state in self._states.items() for name, kept in (state or {}).items()}

    def progress(self) -> dict[str, Any]:
        """Returns counters and records of the search, as JSON."""
        return {
            "steps": self.steps,
            "micro_rows": self.micro_rows,
            "letters": self._letters,
            "changed_at": self._changed_at,
            "recent": self._recent,
            "records": [record.model_dump(mode="json") for record in self._records],
        }

    def restore(
        self,
        tensors: dict[str, Tensor],
        optimizers: dict[str, Any],
        memory: dict[str, Tensor],
        progress: dict[str, Any],
    ) -> None:
        """Restores the state that the properties `tensors`, `optimizers`, `memory` and `progress` returned."""
        parameters = dict(tensors)
        with torch.no_grad():
            self.mixture.logits.copy_(parameters.pop("mixture.logits"))
        self.model.load_state_dict(parameters)
        self._optimizer.load_state_dict(optimizers["weights"])
        self._architecture_optimizer.load_state_dict(optimizers["architecture"])
        kinds: tuple[Kind, ...] = ("weights", "architecture")
        for kind in kinds:
            kept = {name.split("/", 1)[1]: tensor for name, tensor in memory.items() if name.startswith(f"{kind}/")}
            self._states[kind] = None
            if kept:
                state = Cache(self.model.architecture, "memory")
                state.update({name: tensor.to(self._device) for name, tensor in kept.items()})
                self._states[kind] = state
        self.steps, self.micro_rows = progress["steps"], progress["micro_rows"]
        self._letters, self._changed_at = progress["letters"], progress["changed_at"]
        self._recent = list(progress["recent"])
        self._records = [Record.model_validate(record) for record in progress["records"]]
