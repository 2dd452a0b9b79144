"""Functions used by training steps and by steps of supernet searches, and the validation between steps."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgefront.core.data.batches.batch import IGNORED, Batch
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.nn.context import Cache
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.batches import make_batches
from edgefront.core.training.distillation import Teacher, distillation_loss
from edgefront.core.training.evaluation.perplexity import (
    Perplexity,
    evaluating,
    first_token,
    perplexity,
    perplexity_of,
)
from edgefront.core.training.recipes.recipe import Recipe

_RAISES = 2  # torch's debug mode of determinism in which violations raise an error; mode 1 warns
_NO_MEMORY = ("DefaultCPUAllocator", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


def seed_of(seed: int, step: int, rank: int) -> int:
    """Derives the random seed of one step on one rank; neighbouring seeds are unrelated."""
    key = hashlib.sha256(f"edgefront/training/{seed}/{step}/{rank}".encode("ascii")).digest()
    return int.from_bytes(key[:8], "big") >> 1


def seed_device(device: torch.device, seed: int) -> None:
    """Seeds the generators of the CPU and of `device`.

    Unlike `torch.manual_seed`, does not seed other kinds of devices: an unused device would store each call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or the host ran out of memory. CPU allocators and CUDA's libraries raise plain RuntimeErrors."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(text in str(error) for text in _NO_MEMORY)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Context manager that makes a GPU deterministic. By default a GPU adds gradients in random order.

    An operator without a deterministic implementation raises an error (`is_not_deterministic`).
    """
    before = torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # matrix products require this setting
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # on by default for debugging, and slow
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]


def is_not_deterministic(error: BaseException) -> bool:
    """Whether the error comes from an operator without a deterministic implementation."""
    return torch.get_deterministic_debug_mode() == _RAISES and "use_deterministic_algorithms" in str(error)


@dataclass(frozen=True)
class Rows:
    """A `Batch` as tensors on a device."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor | None
    source: Tensor | None
    source_mask: Tensor | None
    segments: Tensor | None


def rows_of(batch: Batch, device: torch.device) -> Rows:
    """Copies a batch's arrays to a device as tensors; copies to a GPU are asynchronous."""

    def tensor(array: object) -> Tensor | None:
        if array is None:
            return None
        cpu = torch.as_tensor(array)
        return cpu.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else cpu

    inputs, targets = tensor(batch.inputs), tensor(batch.targets)
    assert inputs is not None
    assert targets is not None
    extras = (tensor(part) for part in (batch.mask, batch.source, batch.source_mask, batch.segments))
    return Rows(inputs, targets, *extras)


def hidden_of(model: LanguageModel, rows: Rows) -> Tensor:
    """Returns the output layer's input for rows without memory: hidden states [rows, length, d_model]."""
    hidden: Tensor = model(
        rows.inputs,
        "none",
        segments=rows.segments,
        mask=rows.mask,
        source=rows.source,
        source_mask=rows.source_mask,
    )
    return hidden


class Objective(nn.Module):
    """A model and its loss as one module, for the compiler and DDP.

    A call returns: the loss, float32 in nats; figures for reports, without gradients; the cache for the next segment.
    The loss is the sum of the targets' negative log likelihoods, and the figures are [loss]. With a teacher the loss is
    the loss of `core.training.distillation`, and the figures are [cross-entropy, divergence].
    """

    def __init__(
        self, model: LanguageModel, memory: int, label_smoothing: float = 0.0, teacher: Teacher | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.memory = memory
        self.label_smoothing = label_smoothing
        self._teacher = teacher

    def forward(self, rows: Rows, state: Cache | None) -> tuple[Tensor, Tensor, Cache | None]:
        """Computes the loss of rows. `state` is the cache of the previous segment; None for rows without memory."""
        if state is None:
            hidden = hidden_of(self.model, rows)
        else:
            hidden, state = self.model(rows.inputs, "none", cache=state)
            state = state.keep(self.memory).detach()
        if self._teacher is not None:
            teacher_hidden = self._teacher.states(rows.inputs)
            loss, parts = distillation_loss(
                self.model, hidden, rows.targets, self._teacher, teacher_hidden, self.label_smoothing
            )
            return loss, parts, state
        loss = self.model.token_losses(hidden, rows.targets, self.label_smoothing).sum()
        return loss, loss.detach().view(1), state


class Validation:
    """Callable that computes a model's perplexity on a split, with the evaluation settings of the recipe."""

    def __init__(self, data: Prepared, recipe: Recipe, device: torch.device) -> None:
        self._data, self._recipe, self._device = data, recipe, device
        self._pace: float | None = None  # seconds per predicted token of the latest evaluation

    def __call__(
        self,
        model: LanguageModel,
        split: str = "valid",
        *,
        whole: bool = False,
        left: Callable[[float | None], None] = lambda _: None,
    ) -> Perplexity:
        """Evaluates the whole split, or the part that the recipe evaluates during training.

        After each batch `left` receives the seconds until all whole splits are evaluated, or None for the part; its
        errors end the evaluation. Raises `Diverged` if the loss is not finite.
        """
        recipe, began = self._recipe, time.monotonic()
        limit = None if whole else recipe.evaluation.tokens

        def progress(done: int, count: int) -> None:
            self._pace = (time.monotonic() - began) / max(1, done)
            later = self._tokens("test") if split == "valid" else 0
            left((count - done + later) * self._pace if whole else None)

        if recipe.task == "masked":
            return self._masked(model, split, limit, progress)
        validated: Perplexity = perplexity(
            model,
            self._data.split(split),
            recipe.evaluation,
            device=self._device,
            precision=recipe.precision,
            max_tokens=limit,
            sentences=recipe.task == "sentences",
            begin=first_token(self._data.tokenizer(), recipe.task),
            progress=progress,
        )
        return validated

    def seconds_left(self, step: int, seconds_per_step: float) -> float:
        """Estimates the seconds of all evaluations from a step on: those during the training, and the whole splits at
        its end. Before the first evaluation, a token takes a third of a trained one: the forward pass.
        """
        recipe, pace = self._recipe, self._pace
        if pace is None:
            pace = seconds_per_step / (recipe.rows * recipe.segment) / 3
        every, valid = recipe.evaluation.every, self._tokens("valid")
        evaluations = -(-recipe.steps // every) - (step - 1) // every
        during = min(valid, recipe.evaluation.tokens or valid)
        return (evaluations * during + valid + self._tokens("test")) * pace

    def _tokens(self, split: str) -> int:
        """Number of predicted tokens of a whole split; 0 if the data has no such split."""
        share = self._recipe.masked_fraction if self._recipe.task == "masked" else 1.0
        return int(share * len(self._data.splits[split].tokens)) if split in self._data.splits else 0

    def _masked(
        self, model: LanguageModel, split: str, limit: int | None, progress: Callable[[int, int], None]
    ) -> Perplexity:
        """Returns the perplexity of the masked tokens; every evaluation masks the same tokens."""
        recipe = self._recipe
        batches, at_once = make_batches(self._data, recipe, split=split, seed=0), recipe.evaluation.rows
        total, count = 0.0, 0
        with evaluating(model, self._device, recipe.precision):
            for step in range(batches.steps_per_epoch):
                batch = batches(step)
                for start in range(0, len(batch.inputs), at_once):
                    part = batch.rows(start, start + at_once)
                    counted = int((part.targets != IGNORED).sum())
                    if not counted:
                        continue
                    rows = rows_of(part, self._device)
                    losses = model.token_losses(hidden_of(model, rows), rows.targets)
                    total += float(losses.sum(dtype=torch.float64))
                    count += counted
                    progress(count, max(count, self._tokens(split)))
                    if limit is not None and count >= limit:
                        return perplexity_of(total, count, None)
        return perplexity_of(total, count, None)
