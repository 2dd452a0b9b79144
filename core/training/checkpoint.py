"""Checkpoints: folders that are written atomically; the last few and the best are kept.

    step-000001000/model.safetensors    float32 parameters under the model's names, all ranks' shards together
                   optimizer.pt         the optimiser's state dict
                   rank-0.pt            the rank's memory (see core.nn.context), and losses that are not reported yet
                   trainer.json         step, tokens, seconds, micro rows, loss scale, the best evaluation so far

What is random in a training is a function of seed and step, so no generator's state is kept.
"""

from __future__ import annotations

import errno
import pickle
import shutil
from collections.abc import Mapping
from contextlib import suppress
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
    """How far a training has come."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = 0
    """Optimiser steps done."""
    tokens: int = 0
    seconds: float = 0.0
    micro_rows: int | None = None
    ranks: int = 1
    evaluated_step: int | None = None
    """The last step that was evaluated."""
    best_loss: float | None = None
    """On the validation split, nats a token."""
    best_step: int | None = None
    spec: str = ""
    """Digest of what is trained on what and how; a checkpoint of another one is refused."""
    start: str | None = None
    """SHA-256 of the weights that it began with, where it began with another training's."""
    cut: dict[str, Any] | None = None
    """What was cut out of that one (`core.training.pruning.submodel`), where it is a part of it."""
    scaler: dict[str, int | float] = {}
    """The loss scale and how it moves, in float16: all ranks need the same."""


class Checkpoints:
    """The checkpoints below `folder`, which all ranks see."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def latest(self) -> Path | None:
        """The checkpoint of the last step; None before the first."""
        found = self._complete()
        return found[-1] if found else None

    def at(self, step: int) -> Path:
        """Where the checkpoint of this step stands, or would."""
        return self.folder / f"{_PREFIX}{step:09d}"

    def save(
        self,
        progress: Progress,
        model: Mapping[str, Tensor],
        optimizer: Mapping[str, Any],
        memory: Mapping[str, Tensor],
        ranks: Ranks,
    ) -> None:
        """Writes a checkpoint, or nothing; older ones go, but for the best and the last few. All ranks call it.

        `model` and `optimizer` are the first rank's, `memory` each one's own. Raises `Unavailable` where the disk is
        full: the checkpoints before stay.
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
                self._prune(progress)
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

    def _prune(self, progress: Progress) -> None:
        for left in self.folder.glob(f"{_PART}*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        for path in self._complete()[: -self._keep]:
            if int(path.name.removeprefix(_PREFIX)) != progress.best_step:
                self._remove(path)

    def _remove(self, checkpoint: Path) -> None:
        """At once for all who look: no checkpoint is ever there by halves."""
        gone = self.folder / f"{_PART}{checkpoint.name}.gone"
        shutil.rmtree(gone, ignore_errors=True)  # left by a run that was killed
        with suppress(OSError):
            checkpoint.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def read_progress(checkpoint: Path) -> Progress:
    """Raises `InvalidInput` where the checkpoint cannot be read."""
    try:
        return Progress.model_validate_json((checkpoint / TRAINER).read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(checkpoint, error) from error


def read_model(checkpoint: Path) -> dict[str, Tensor]:
    """The parameters by name, on the CPU. Raises `InvalidInput` where the checkpoint cannot be read."""
    try:
        found: dict[str, Tensor] = load_file(checkpoint / MODEL)
    except (OSError, SafetensorError) as error:
        raise _unreadable(checkpoint, error) from error
    return found


def read_optimizer(checkpoint: Path) -> dict[str, Any]:
    """What `save` was given. Raises `InvalidInput` where the checkpoint cannot be read."""
    found: dict[str, Any] = _load(checkpoint, OPTIMIZER)
    return found


def read_memory(checkpoint: Path, rank: int) -> dict[str, Tensor]:
    """What this rank gave to `save`. Raises `InvalidInput` where the checkpoint cannot be read."""
    found: dict[str, Tensor] = _load(checkpoint, f"rank-{rank}.pt")
    return found


def _load(checkpoint: Path, name: str) -> Any:
    try:
        return torch.load(checkpoint / name, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        # torch's own message is pages long and explains how to run the code.
        raise _unreadable(
            checkpoint, ValueError(f"{name} contains more than tensors, which is unsafe to load")
        ) from None
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        raise _unreadable(checkpoint, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput(
        f"the checkpoint {path} cannot be read: {error}",
        field="checkpoint",
        value=str(path),
        allowed="a complete checkpoint, or none: remove this folder to resume from the previous one",
    )
