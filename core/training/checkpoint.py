"""Checkpoints: folders that are written atomically. Only the best and the latest few checkpoints are kept.

    step-000001000/model.safetensors    float32 parameters under the model's names, merged from all ranks' shards
                   optimizer.pt         the optimiser's state dict
                   rank-0.pt            the rank's memory (core.nn.context) and unreported losses
                   trainer.json         step, tokens, seconds, micro rows, loss scale, the best evaluation so far

Random numbers are a function of seed and step, so checkpoints contain no state of a random generator.
"""

from __future__ import annotations

import errno
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgefront.core.common.errors import InvalidInput, Unavailable
from edgefront.core.common.files import disk_is_full, sync
from edgefront.core.training.distributed import Ranks

MODEL, OPTIMIZER, TRAINER = "model.safetensors", "optimizer.pt", "trainer.json"
_PREFIX, _PART = "step-", ".part-"


class Progress(BaseModel):
    """Progress of a training, stored as trainer.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = 0
    """Number of finished optimiser steps."""
    tokens: int = 0
    seconds: float = 0.0
    micro_rows: int | None = None
    ranks: int = 1
    evaluated_step: int | None = None
    """Latest evaluated step."""
    best_loss: float | None = None
    """Validation loss in nats per token."""
    best_step: int | None = None
    spec: str = ""
    """Digest of architecture, data, recipe and seed; a checkpoint of another training is refused."""
    start: str | None = None
    """SHA-256 of the initial weights, if another training produced them."""
    cut: dict[str, Any] | None = None
    """Description of the submodel (`core.training.pruning.submodel`), if the initial weights are a pruned model's."""
    scaler: dict[str, int | float] = {}
    """State of the loss scaler in float16, the same on all ranks."""


class Checkpoints:
    """Checkpoints of one training in the folder `folder`, shared by all ranks."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def latest(self) -> Path | None:
        """Path of the latest checkpoint; None if there is none."""
        complete = self._complete()
        return complete[-1] if complete else None

    def at(self, step: int) -> Path:
        """Path of the checkpoint of this step."""
        return self.folder / f"{_PREFIX}{step:09d}"

    def save(
        self,
        progress: Progress,
        model: Mapping[str, Tensor],
        optimizer: Mapping[str, Any],
        memory: Mapping[str, Tensor],
        ranks: Ranks,
    ) -> None:
        """Writes a checkpoint atomically, and removes older checkpoints except the best and the latest few.

        Every rank must call this method. `model` and `optimizer` are only written from the first rank.
        Raises `Unavailable` if the disk is full; earlier checkpoints stay.
        """
        final = self.at(progress.step)
        part = self.folder / f"{_PART}{final.name}"
        try:
            if ranks.is_first:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                save_file({name: tensor.contiguous().cpu() for name, tensor in model.items()}, part / MODEL)
                torch.save(dict(optimizer), part / OPTIMIZER)
                (part / TRAINER).write_text(progress.model_dump_json(indent=1), encoding="utf-8")
            ranks.wait()
            torch.save(dict(memory), part / f"rank-{ranks.rank}.pt")
            ranks.wait()
            if ranks.is_first:
                for path in (*part.iterdir(), part):
                    sync(path)
                self._remove(final)
                part.rename(final)
                sync(self.folder)
                for partial in self.folder.glob(f"{_PART}*"):  # left over from a run that was killed
                    shutil.rmtree(partial, ignore_errors=True)
                for path in self._complete()[: -self._keep]:
                    if int(path.name.removeprefix(_PREFIX)) != progress.best_step:
                        self._remove(path)
        except (OSError, SafetensorError, RuntimeError) as error:
            is_full = disk_is_full(self.folder)  # as torch does not say why; asked before what was written makes room
            if ranks.is_first:
                shutil.rmtree(part, ignore_errors=True)
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            full = full or is_full or "No space left" in str(error)
            cause = f"no space left in {self.folder}" if full else str(error)
            raise Unavailable(f"the checkpoint {final.name} cannot be written: {cause}") from error

    def _complete(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if path.name.startswith(_PREFIX) and path.is_dir())

    def _remove(self, checkpoint: Path) -> None:
        """Removes a checkpoint atomically, so that no reader sees an incomplete checkpoint."""
        gone = self.folder / f"{_PART}{checkpoint.name}.gone"
        shutil.rmtree(gone, ignore_errors=True)  # left over from a run that was killed
        with suppress(OSError):
            checkpoint.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def read_progress(checkpoint: Path) -> Progress:
    """Reads the progress in a checkpoint. Raises `InvalidInput` for an unreadable checkpoint."""
    with _reading(checkpoint):
        return Progress.model_validate_json((checkpoint / TRAINER).read_bytes())


def read_model(checkpoint: Path) -> dict[str, Tensor]:
    """Reads the parameters of a checkpoint by name, on the CPU. Raises `InvalidInput` if they are unreadable."""
    with _reading(checkpoint):
        parameters: dict[str, Tensor] = load_file(checkpoint / MODEL)
        return parameters


def read_optimizer(checkpoint: Path) -> dict[str, Any]:
    """Reads the state dict of the optimiser in a checkpoint. Raises `InvalidInput` if it is unreadable."""
    with _reading(checkpoint):
        state: dict[str, Any] = torch.load(checkpoint / OPTIMIZER, map_location="cpu", weights_only=True)
        return state


def read_memory(checkpoint: Path, rank: int) -> dict[str, Tensor]:
    """Reads the tensors of `memory` that this rank saved. Raises `InvalidInput` if they are unreadable."""
    with _reading(checkpoint):
        memory: dict[str, Tensor] = torch.load(checkpoint / f"rank-{rank}.pt", map_location="cpu", weights_only=True)
        return memory


@contextmanager
def _reading(checkpoint: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        # torch's own message about unpickling is pages long and explains how to run the code.
        unsafe = isinstance(error, pickle.UnpicklingError)
        reason = "it contains more than tensors, which is unsafe to load" if unsafe else error
        raise InvalidInput(
            f"the checkpoint {checkpoint} cannot be read: {reason}",
            field="checkpoint",
            value=str(checkpoint),
            allowed="a complete checkpoint, or none: remove this folder to resume from the previous one",
        ) from None if unsafe else error
