"""Distillation: the loss of a student with a teacher (Hinton et al. 2015, arXiv 1503.02531 §2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.output import IGNORED
from edgefront.core.training.recipes.recipe import Distil

MAX_SCORES = 1 << 25
"""Maximum number of logits of each model in memory: 128 MiB of float32."""


@dataclass(frozen=True)
class Teacher:
    """Teacher model in evaluation mode. The class is not a module, so that DDP and checkpoints exclude the teacher."""

    model: LanguageModel
    settings: Distil
    sha256: str = ""
    """SHA-256 of the teacher's weights file."""

    def states(self, tokens: Tensor) -> Tensor:
        """Hidden states, without memory or gradients: [batch, sequence] → [batch, sequence, d_model of the teacher]."""
        with torch.no_grad():
            hidden: Tensor = self.model(tokens, "none")
        return hidden


def distillation_loss(
    student: LanguageModel,
    hidden: Tensor,
    targets: Tensor,
    teacher: Teacher,
    teacher_hidden: Tensor,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Returns a pair: the loss, and the tensor [2] of cross-entropy and divergence, without gradients.

    Each value is a sum over the targets that are not `IGNORED`, in nats, at least float32. The loss is
    share·T²·KL(teacher || student) + (1 - share)·cross-entropy, where the divergence compares the softmax of logits/T.
    If the teacher's embedding is padded, logits beyond the student's vocabulary are left out.

    Args:
        hidden: hidden states of the student, [batch, sequence, d_model of the student].
        teacher_hidden: hidden states of the teacher, [batch, sequence, d_model of the teacher].
        targets: int64 [batch, sequence].

    To save memory, logits are computed for some positions at a time, and recomputed for the gradients.
    """
    flat = hidden.flatten(0, -2), teacher_hidden.flatten(0, -2), targets.flatten()
    size = max(1, MAX_SCORES // student.architecture.embedding.vocab_size)
    pieces = zip(*(tensor.split(size) for tensor in flat), strict=True)
    if len(flat[2]) <= size:
        (piece,) = pieces
        return _loss_of_positions(student, teacher, label_smoothing, *piece)
    has_dropout = student.training and student.dropout.narrow > 0
    results = [
        checkpoint(
            _loss_of_positions,
            student,
            teacher,
            label_smoothing,
            *piece,
            use_reentrant=False,
            preserve_rng_state=has_dropout,
        )
        for piece in pieces
    ]
    losses, parts = zip(*results, strict=True)
    return torch.stack(losses).sum(), torch.stack(parts).sum(0)


def _loss_of_positions(
    student: LanguageModel,
    teacher: Teacher,
    label_smoothing: float,
    hidden: Tensor,
    teacher_hidden: Tensor,
    targets: Tensor,
) -> tuple[Tensor, Tensor]:
    """Returns `distillation_loss` of n positions: hidden states [n, d_model] of both models, targets [n]."""
    logits, settings = _at_least_float32(student.token_scores(hidden)), teacher.settings
    with torch.no_grad():
        teacher_logits = _at_least_float32(teacher.model.token_scores(teacher_hidden)[:, : logits.shape[-1]])
        expected = F.log_softmax(teacher_logits / settings.temperature, -1)
    predicted = F.log_softmax(logits / settings.temperature, -1)
    divergences = F.kl_div(predicted, expected, reduction="none", log_target=True).sum(-1)
    divergence = torch.where(targets == IGNORED, 0.0, divergences).sum()
    with torch.set_grad_enabled(torch.is_grad_enabled() and settings.share < 1):
        entropy = F.cross_entropy(
            logits, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing
        )
    loss = settings.share * settings.temperature**2 * divergence
    if settings.share < 1:
        loss = loss + (1 - settings.share) * entropy
    return loss, torch.stack((entropy.detach(), divergence.detach()))


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
