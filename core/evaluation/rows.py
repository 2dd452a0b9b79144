"""A batch on the device that computes with it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgefront.core.data.batches.batch import Batch


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
