"""A student's loss beside a teacher: the divergence of their next tokens (Hinton et al. 2015, arXiv 1503.02531 §2)."""

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
"""Scores over the vocabulary of each model that are in memory at once: 128 MiB of float32."""


@dataclass(frozen=True)
class Teacher:
    """A model in evaluation mode, and how its scores are learnt. No module: a training neither shares nor keeps it."""

    model: LanguageModel
    settings: Distil
    sha256: str = ""
    """SHA-256 of the file of its weights."""

    def states(self, tokens: Tensor) -> Tensor:
        """States of rows that follow nothing: [batch, sequence] → [batch, sequence, its d_model], without gradients."""
        with torch.no_grad():
            hidden: Tensor = self.model(tokens, "none")
        return hidden


def distilled(
    student: LanguageModel,
    hidden: Tensor,
    targets: Tensor,
    teacher: Teacher,
    teacher_hidden: Tensor,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and what it is made of: cross-entropy and divergence, [2], without gradients.

    All are sums over the targets that are not `IGNORED`, in nats, at least float32. The loss is
    share·T²·KL(teacher || student) + (1 - share)·cross-entropy, the divergence that of the softmax of scores/T. Where
    the teacher has more tokens, as padded embeddings have, it is asked for those of the student.

    Args:
        hidden: the student's states [batch, sequence, d_model], as "none" gives; `teacher_hidden` is the teacher's.
        targets: int64 [batch, sequence].

    Scores are computed some positions at a time, and once more for the gradients: neither model's are ever all there.
    """
    flat = hidden.flatten(0, -2), teacher_hidden.flatten(0, -2), targets.flatten()
    size = max(1, MAX_SCORES // student.architecture.embedding.vocab_size)
    pieces = zip(*(tensor.split(size) for tensor in flat), strict=True)
    if len(flat[2]) <= size:
        (piece,) = pieces
        return _piece(student, teacher, label_smoothing, *piece)
    keeps_random = student.training and student.dropout.narrow > 0
    found = [
        checkpoint(
            _piece,
            student,
            teacher,
            label_smoothing,
            *piece,
            use_reentrant=False,
            preserve_rng_state=keeps_random,
        )
        for piece in pieces
    ]
    losses, parts = zip(*found, strict=True)
    return torch.stack(losses).sum(), torch.stack(parts).sum(0)


def _piece(
    student: LanguageModel,
    teacher: Teacher,
    label_smoothing: float,
    hidden: Tensor,
    teacher_hidden: Tensor,
    targets: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same of some positions: states [n, d_model] of both and targets [n]."""
    scores, settings = _wide(student.token_scores(hidden)), teacher.settings
    with torch.no_grad():
        theirs = _wide(teacher.model.token_scores(teacher_hidden)[:, : scores.shape[-1]])
        wanted = F.log_softmax(theirs / settings.temperature, -1)
    own = F.log_softmax(scores / settings.temperature, -1)
    divergences = F.kl_div(own, wanted, reduction="none", log_target=True).sum(-1)
    divergence = torch.where(targets == IGNORED, 0.0, divergences).sum()
    with torch.set_grad_enabled(torch.is_grad_enabled() and settings.share < 1):
        entropy = F.cross_entropy(
            scores, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing
        )
    loss = settings.share * settings.temperature**2 * divergence
    if settings.share < 1:
        loss = loss + (1 - settings.share) * entropy
    return loss, torch.stack((entropy.detach(), divergence.detach()))


def _wide(scores: Tensor) -> Tensor:
    return scores if scores.dtype == torch.float64 else scores.float()
