"""Checkpoints: folders that are written atomically. The last few and the best are kept.

    step-000001000/model.safetensors    float32 parameters under the model's names, all ranks' shards together
                   optimizer.pt         the optimiser's state dict
                   rank-0.pt            the rank's memory (core.nn.context) and unreported losses
                   trainer.json         step, tokens, seconds, micro rows, loss scale, the best evaluation so far

Randomness is a function of seed and step, so no generator's state is stored.
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
from edgefront.core.common.files import sync
from edgefront.core.training.distributed import Ranks

MODEL, OPTIMIZER, TRAINER = "model.safetensors", "optimizer.pt", "trainer.json"
_PREFIX, _PART = "step-", ".part-"


class Progress(BaseModel):
    """Progress of a training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = 0
    """Number of finished optimiser steps."""
    tokens: int = 0
    seconds: float = 0.0
    micro_rows: int | None = None
    ranks: int = 1
    evaluated_step: int | None = None
    """The last evaluated step."""
    best_loss: float | None = None
    """Validation loss, nats a token."""
    best_step: int | None = None
    spec: str = ""
    """Digest of architecture, data, recipe and seed; a checkpoint of another training is refused."""
    start: str | None = None
    """SHA-256 of the initial weights, if another training's."""
    cut: dict[str, Any] | None = None
    """What was cut out of that one (`core.training.pruning.submodel`), where it is a part of it."""
    scaler: dict[str, int | float] = {}
    """State of the loss scaler in float16, the same on all ranks."""


class Checkpoints:
    """The checkpoints in `folder`, which all ranks share."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def latest(self) -> Path | None:
        """The last checkpoint, if any."""
        complete = self._complete()
        return complete[-1] if complete else None

    def at(self, step: int) -> Path:
        """The folder of this step's checkpoint."""
        return self.folder / f"{_PREFIX}{step:09d}"

    def save(
        self,
        progress: Progress,
        model: Mapping[str, Tensor],
        optimizer: Mapping[str, Any],
        memory: Mapping[str, Tensor],
        ranks: Ranks,
    ) -> None:
        """Writes a checkpoint atomically; removes older ones but the best and the last few. All ranks call it.

        `model` and `optimizer` are the first rank's, `memory` each rank's. Raises `Unavailable` for a full disk;
        earlier checkpoints stay.
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
                for partial in self.folder.glob(f"{_PART}*"):  # of a run that was killed
                    shutil.rmtree(partial, ignore_errors=True)
                for path in self._complete()[: -self._keep]:
                    if int(path.name.removeprefix(_PREFIX)) != progress.best_step:
                        self._remove(path)
        except (OSError, SafetensorError, RuntimeError) as error:
            if ranks.is_first:
                shutil.rmtree(part, ignore_errors=True)
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            cause = "the disk is full" if full or "No space left" in str(error) else str(error)
            raise Unavailable(f"the checkpoint {final.name} cannot be written: {cause}") from error

    def _complete(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if path.name.startswith(_PREFIX) and path.is_dir())

    def _remove(self, checkpoint: Path) -> None:
        """Removes a checkpoint atomically: no reader sees part of it."""
        gone = self.folder / f"{_PART}{checkpoint.name}.gone"
        shutil.rmtree(gone, ignore_errors=True)  # of a run that was killed
        with suppress(OSError):
            checkpoint.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def read_progress(checkpoint: Path) -> Progress:
    """Raises `InvalidInput` for an unreadable checkpoint, as the functions below."""
    with _reading(checkpoint):
        return Progress.model_validate_json((checkpoint / TRAINER).read_bytes())


def read_model(checkpoint: Path) -> dict[str, Tensor]:
    """The parameters by name, on the CPU."""
    with _reading(checkpoint):
        parameters: dict[str, Tensor] = load_file(checkpoint / MODEL)
        return parameters


def read_optimizer(checkpoint: Path) -> dict[str, Any]:
    """The `optimizer` of `save`."""
    with _reading(checkpoint):
        state: dict[str, Any] = torch.load(checkpoint / OPTIMIZER, map_location="cpu", weights_only=True)
        return state


def read_memory(checkpoint: Path, rank: int) -> dict[str, Tensor]:
    """The `memory` of `save` on this rank."""
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
