"""A model and what its training minimises, as one module: what is compiled, and shared by ranks."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.evaluation.rows import Rows
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.state import State


class Objective(nn.Module):
    """Tokens to the sum of their negative log likelihoods, float32 in nats, and the state for the next segment."""

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
