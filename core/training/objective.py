"""A model and what its training minimises, as one module: what is compiled, and shared by ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgefront.core.data.batches.batch import Batch
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.state import State


@dataclass(frozen=True)
class Rows:
    """A `Batch` on a device."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor | None
    source: Tensor | None
    source_mask: Tensor | None
    segments: Tensor | None


def rows_of(batch: Batch, device: torch.device) -> Rows:
    """The batch's arrays as tensors; to a GPU they go while it computes."""

    def tensor(array: object) -> Tensor | None:
        if array is None:
            return None
        made = torch.as_tensor(array)
        return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made

    inputs, targets = tensor(batch.inputs), tensor(batch.targets)
    assert inputs is not None
    assert targets is not None
    extras = (tensor(part) for part in (batch.mask, batch.source, batch.source_mask, batch.segments))
    return Rows(inputs, targets, *extras)


class Objective(nn.Module):
    """Tokens to the sum of their negative log likelihoods, float32 in nats, and the state to go on with."""

    def __init__(self, model: LanguageModel, memory: int, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.memory = memory
        self.label_smoothing = label_smoothing

    def forward(self, rows: Rows, state: State | None) -> tuple[Tensor, State | None]:
        """`state` as `LanguageModel.step` takes it, None for rows that follow nothing."""
        if state is None:
            hidden = self.model(
                rows.inputs,
                "none",
                segments=rows.segments,
                mask=rows.mask,
                source=rows.source,
                source_mask=rows.source_mask,
            )
        else:
            hidden, state = self.model.step(rows.inputs, state, "none")
            state = state.keep(self.memory).detach()
        return self.model.token_losses(hidden, rows.targets, self.label_smoothing).sum(), state
