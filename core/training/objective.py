"""A model and what its training minimises, as one module: what is compiled, and shared by ranks."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.evaluation.rows import Rows
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.state import State
from edgefront.core.training.distillation import Teacher, distilled


class Objective(nn.Module):
    """Tokens to what is minimised, to what is reported of it, and to the state for the next segment.

    The first is the sum of their negative log likelihoods, float32 in nats; with a teacher it is as in
    `core.training.distillation`. Reported, without gradients, is that sum, [1], and with a teacher cross-entropy and
    divergence, [2].
    """

    def __init__(
        self, model: LanguageModel, memory: int, label_smoothing: float = 0.0, teacher: Teacher | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.memory = memory
        self.label_smoothing = label_smoothing
        self._teacher = teacher

    def forward(self, rows: Rows, state: State | None) -> tuple[Tensor, Tensor, State | None]:
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
        if self._teacher is not None:
            theirs = self._teacher.states(rows.inputs)
            loss, parts = distilled(self.model, hidden, rows.targets, self._teacher, theirs, self.label_smoothing)
            return loss, parts, state
        loss = self.model.token_losses(hidden, rows.targets, self.label_smoothing).sum()
        return loss, loss.detach().view(1), state
