"""One search of one seed: weights first, then weights and architecture in turn (PAR §2.2, eq. 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.data.batches.batch import IGNORED, Batch, Batches
from edgefront.core.errors import Diverged, InvalidInput, Unavailable
from edgefront.core.nn.state import State
from edgefront.core.recipes.precision import autocast
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.recipes.task import carries_state
from edgefront.core.spaces.pattern import contract
from edgefront.core.supernet.schedule import Kind, Moment, Parts, Schedule
from edgefront.core.supernet.settings import CHOICES, LETTERS, Choice, LatencyTerm, Record, SearchOutcome
from edgefront.core.supernet.supernet import Supernet
from edgefront.core.training.objective import Objective, rows_of
from edgefront.core.training.optimizers import set_learning_rate
from edgefront.core.training.step import is_out_of_memory, seed_device, seed_of

# The probabilities of a search: one row of logits a layer, and the Gumbel-softmax that draws mixtures of them.


class Mixture(nn.Module):
    """`logits` [layers, 3] over `CHOICES`, even at the start (PAR §2.2).

    They are no parameters of the supernet: weights and architecture have optimisers of their own.
    """

    def __init__(self, layers: int, choices: Sequence[Choice] = CHOICES) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(layers, len(CHOICES)))
        closed = torch.tensor([choice not in choices for choice in CHOICES])
        self.register_buffer("_closed", closed, persistent=False)

    def probabilities(self) -> Tensor:
        """float32 [layers, 3]: the odds that a draw is nearest to each block, whatever the temperature."""
        return F.softmax(self._open(), -1)

    def draw(self, temperature: float, generator: torch.Generator, *, hard: bool = False) -> Tensor:
        """One mixture m of each layer, [layers, 3], rows of sum 1 (PAR eq. 5; Jang et al. 2017, eq. 2).

        m = softmax((logits + g) / temperature) with Gumbel noise g, drawn on the CPU so that devices agree. Hard: one
        block a layer, with the gradient of m (straight-through).
        """
        uniform = torch.rand(self.logits.shape, generator=generator, dtype=torch.float64)
        noise = -torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-12)))
        soft = F.softmax((self._open() + noise.to(self.logits)) / temperature, -1)
        if not hard:
            return soft
        chosen = F.one_hot(soft.argmax(-1), len(CHOICES)).to(soft)
        return chosen + (soft - soft.detach())

    def letters(self) -> str:
        """The likeliest block of each layer, as letters of a pattern."""
        return "".join(LETTERS[index] for index in self._open().argmax(-1).tolist())

    def expected_ms(self, term: LatencyTerm) -> Tensor:
        """E = Σ over layers and blocks of probability · latency, a scalar."""
        return (self.probabilities() @ self.logits.new_tensor(term.block_ms)).sum()

    def penalty(self, term: LatencyTerm) -> Tensor:
        """What the latency adds to the loss (see `LatencyTerm`), a scalar in nats."""
        expected = self.expected_ms(term)
        if term.target_ms is not None:
            return term.weight * F.relu(expected / term.target_ms - 1)
        open_ms = [ms for ms, closed in zip(term.block_ms, self._closed.tolist(), strict=True) if not closed]
        even = self.logits.shape[0] * sum(open_ms) / len(open_ms)
        return term.weight * expected / even if even else expected * 0.0

    def _open(self) -> Tensor:
        return self.logits.masked_fill(self._closed, -torch.inf)


_RECENT = 20  # architecture steps in the reported mean loss
_DIGITS = 5  # of probabilities that are kept


@dataclass(frozen=True)
class Step:
    """What one step did; `loss` in nats a token, without the latency's term."""

    moment: Moment
    loss: float
    tokens: int


class Search:
    """Trains a supernet and its probabilities to the end of the schedule, or until the probabilities have converged.

    The random numbers and the data of a step are a function of seed and step; `tensors`, `optimizers`, `memory` and
    `progress` are all that `restore` needs to resume elsewhere.

    Args:
        model: the supernet with its initial weights, on the device that trains it.
        batches: the training split; the last part of it goes to the architecture (`Parts`).
        recipe: its steps are the steps of this search, those of weights and architecture together.
        optimizer: optimizer of the supernet's parameters.
        lr: learning rate of the weights at a step.

    Raises `InvalidInput` if data and steps leave no batch for the architecture, and for float16.
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
                "a supernet is not trained in float16: the gradients of its probabilities would vanish",
                field="recipe.precision",
                value=recipe.precision,
                allowed="bfloat16 or float32",
            )
        self.model, self.recipe, self.seed = model.train(), recipe, seed
        self.settings = settings = model.settings
        self._device = next(model.parameters()).device
        self._parts = Parts(batches, settings.architecture_fraction)
        self._schedule = Schedule(recipe.steps, settings, batches.steps_per_epoch)
        self._optimizer, self._lr = optimizer, lr
        self.mixture = Mixture(settings.layers, settings.choices).to(self._device)
        self._architecture_optimizer = torch.optim.Adam(
            self.mixture.parameters(), lr=settings.architecture_lr, weight_decay=settings.architecture_weight_decay
        )
        self._carries = carries_state(model.architecture, recipe.memory)
        self._objective = Objective(model, recipe.memory if self._carries else 0, recipe.label_smoothing)
        self._states: dict[Kind, State | None] = {"weights": None, "architecture": None}
        self.micro_rows = recipe.micro_rows or recipe.rows
        self.steps = 0
        """Number of steps done."""
        self._letters, self._changed_at = self.mixture.letters(), 0
        self._recent: list[float] = []
        self._records: list[Record] = []
        self._record_every = max(1, math.ceil(recipe.steps / (settings.records - 1)))

    @property
    def converged(self) -> bool:
        """Whether no layer has changed its likeliest block for the patience of the schedule."""
        since = self.steps - max(self._changed_at, self._schedule.weight_steps)
        return self.steps > self._schedule.weight_steps and since >= self._schedule.patience()

    @property
    def finished(self) -> bool:
        return self.steps >= self.recipe.steps or self.converged

    @property
    def pattern(self) -> str:
        """The likeliest block of each layer so far."""
        return contract(self._letters)

    @property
    def tuned(self) -> bool:
        """Whether an architecture step was made at all."""
        return bool(self._recent)

    def step(self) -> Step:
        """The next step. Raises `Diverged` for a loss that is not a number, `Unavailable` where one row is too much."""
        moment = self._schedule.at(self.steps)
        batch = self._parts.batch(moment.kind, moment.number)
        while True:
            try:
                loss = (
                    self._weight_step(batch, moment)
                    if moment.kind == "weights"
                    else self._architecture_step(batch, moment)
                )
                break
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler, whose traceback would keep every activation alive.
            self._halve_micro_rows()
        self.steps += 1
        if moment.kind == "architecture":
            self._recent = [*self._recent, loss][-_RECENT:]
            letters = self.mixture.letters()
            if letters != self._letters:
                self._letters, self._changed_at = letters, self.steps
        if self.steps % self._record_every == 0 or self.finished:
            self._records.append(Record(step=self.steps, temperature=moment.temperature, probabilities=self.rows()))
        return Step(moment, loss, batch.inputs.size)

    def rows(self) -> tuple[tuple[float, ...], ...]:
        """The probabilities, one row for each layer."""
        probabilities = self.mixture.probabilities().detach().cpu().tolist()
        return tuple(tuple(round(number, _DIGITS) for number in row) for row in probabilities)

    def expected_ms(self) -> float | None:
        """Expected latency in ms under the probabilities; None without a latency term."""
        term = self.settings.latency
        return None if term is None else round(self.mixture.expected_ms(term).item(), 6)

    def outcome(self) -> SearchOutcome:
        """The architecture of the likeliest blocks now, and how the search came to it."""
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
            probabilities=self.rows(),
            records=tuple(self._records),
        )

    # Steps ----------------------------------------------------------------------------------------------------------

    def _weight_step(self, batch: Batch, moment: Moment) -> float:
        set_learning_rate(self._optimizer, self._lr(self.steps))
        self._optimizer.zero_grad(set_to_none=True)
        mixture = self._draw(moment).detach()
        loss = self._pass(batch, "weights", mixture, lambda part: part.backward())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip or math.inf)
        self._check(loss, norm.item())
        self._optimizer.step()
        return loss

    def _architecture_step(self, batch: Batch, moment: Moment) -> float:
        """The gradient goes through the mixture to the logits; the weights need none."""
        drawn = self._draw(moment)
        mixture = drawn.detach().requires_grad_()
        total = torch.zeros_like(mixture)

        def take(part: Tensor) -> None:
            total.add_(torch.autograd.grad(part, mixture)[0])

        loss = self._pass(batch, "architecture", mixture, take)
        self._check(loss, total.norm().item())
        self._architecture_optimizer.zero_grad(set_to_none=True)
        drawn.backward(total)
        if self.settings.latency is not None:
            self.mixture.penalty(self.settings.latency).backward()
        self._architecture_optimizer.step()
        return loss

    def _draw(self, moment: Moment) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of(self.seed, self.steps, 0))
        return self.mixture.draw(moment.temperature, generator, hard=self.settings.hard)

    def _pass(self, batch: Batch, kind: Kind, mixture: Tensor, take: Callable[[Tensor], None]) -> float:
        """Mean loss of the batch's targets; `take` is given the graph of each of its parts, some rows at a time."""
        seed_device(self._device, seed_of(self.seed, self.steps, 1))  # of dropout
        rows, targets = batch.inputs.shape[0], max(1, int((batch.targets != IGNORED).sum()))
        before = self._states[kind]
        if self._carries and (before is None or batch.starts):
            before = self.model.start(rows, "memory")
        total, states = torch.zeros((), device=self._device), []
        for start in range(0, rows, self.micro_rows):
            stop = min(rows, start + self.micro_rows)
            with autocast(self._device, self.recipe.precision), self.model.mixed(mixture):
                part = None if before is None else before.rows(start, stop)
                loss, _, state = self._objective(rows_of(batch.rows(start, stop), self._device), part)
            take(loss / targets)
            total += loss.detach()
            if state is not None:
                states.append(state)
        self._states[kind] = State.joined(states) if states else None
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
        """The supernet's parameters under their names, and the logits."""
        return {**self.model.state_dict(), "mixture.logits": self.mixture.logits.detach()}

    def optimizers(self) -> dict[str, Any]:
        return {"weights": self._optimizer.state_dict(), "architecture": self._architecture_optimizer.state_dict()}

    def memory(self) -> dict[str, Tensor]:
        """State carried across segments, for both parts of the data, by part and name."""
        return {f"{kind}/{name}": kept for kind, state in self._states.items() for name, kept in (state or {}).items()}

    def progress(self) -> dict[str, Any]:
        """The counters and records of the search, as JSON."""
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
        """Resumes from the results of the four methods above."""
        own = dict(tensors)
        with torch.no_grad():
            self.mixture.logits.copy_(own.pop("mixture.logits"))
        self.model.load_state_dict(own)
        self._optimizer.load_state_dict(optimizers["weights"])
        self._architecture_optimizer.load_state_dict(optimizers["architecture"])
        kinds: tuple[Kind, ...] = ("weights", "architecture")
        for kind in kinds:
            kept = {name.split("/", 1)[1]: tensor for name, tensor in memory.items() if name.startswith(f"{kind}/")}
            self._states[kind] = None
            if kept:
                state = State(self.model.architecture, "memory")
                state.update({name: tensor.to(self._device) for name, tensor in kept.items()})
                self._states[kind] = state
        self.steps, self.micro_rows = progress["steps"], progress["micro_rows"]
        self._letters, self._changed_at = progress["letters"], progress["changed_at"]
        self._recent = list(progress["recent"])
        self._records = [Record.model_validate(record) for record in progress["records"]]
