"""Fine-tunes encoders with a new head, like BERT (Devlin et al. 2019, §4), and computes metrics of GLUE and SQuAD.

`core.training.finetune.tasks` makes the rows of each task.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import Diverged, InvalidInput
from edgefront.core.common.validation import invalid_input
from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.model_files.random_values import values
from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.training.evaluation.perplexity import autocast, check_scores, evaluating, padded
from edgefront.core.training.optimizers import learning_rate, make_optimizer, set_learning_rate
from edgefront.core.training.recipes.recipe import Optimizer, Precision, Schedule
from edgefront.core.training.step import seed_device

Scores = NDArray[np.float32]
Progress = Callable[[int, int, float], None]
"""Callback that receives the number of finished steps, the total number and the latest loss."""


class FineTuning(BaseModel):
    """Settings of fine-tuning. Defaults are in the middle of the paper's ranges (Devlin et al. 2019, Appendix A.3)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    rows: Annotated[int, Field(ge=1, le=1 << 16)] = 32
    lr: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 3e-5
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the steps that are warm-up."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    max_length: Annotated[int, Field(ge=8, le=1 << 20)] = 128
    """Maximum length of a row including special tokens; the model's positions are also a limit."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    precision: Literal["float32", "bfloat16"] = "float32"

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> FineTuning:
        """Reads the settings from JSON. Raises `InvalidInput`, which names the wrong field."""
        try:
            return cls.model_validate(dict(value))
        except ValidationError as error:
            raise invalid_input(error, InvalidInput, model=cls).under("finetuning") from None


@dataclass(frozen=True)
class Row:
    """One example: tokens, their segment ids, and the target (a class, a number, or first and last position)."""

    tokens: Sequence[int]
    segments: Sequence[int]
    target: Any = None


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens before, between and after the texts of a row."""

    cls: int
    sep: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SpecialTokens:
        """Returns the special tokens of a tokenizer. Raises `InvalidInput` if the tokenizer lacks <cls> or <sep>."""
        tokens = {name: tokenizer.special.get(f"<{name}>") for name in ("cls", "sep")}
        missing = [f"<{name}>" for name, token in tokens.items() if token is None]
        if missing:
            raise InvalidInput(
                f"the model's tokenizer has no {' and no '.join(missing)}: its level is {tokenizer.level}",
                field="tokenizer",
                value=tokenizer.level,
                allowed="a bpe or WordPiece tokenizer with them, as for masked training",
            )
        return cls(**{name: int(token) for name, token in tokens.items() if token is not None})


@dataclass(frozen=True)
class Tuned:
    """Fine-tuned model; scores by name, per cent; predictions by row, or answers by question id; losses by step."""

    scores: dict[str, float]
    predictions: Any
    losses: list[float]
    model: LanguageModel = field(repr=False)


def with_head(
    model: LanguageModel, kind: Literal["classes", "spans"], classes: int | None = None, seed: int = 0
) -> LanguageModel:
    """Copies the model, including its pooler, and adds an untrained head. Raises `InvalidInput` for a decoder."""
    old = model.architecture
    if old.causal:
        raise InvalidInput(
            "fine-tuning requires an encoder, but each token of this model sees only earlier tokens",
            field="model",
            value="causal",
            allowed="causal false, as BERT",
        )
    output: dict[str, Any] = {"kind": kind} | ({} if classes is None else {"classes": classes})
    architecture = Architecture.parse({**old.canonical, "output": output})
    trained = dict(model.named_parameters())
    tensors = {}
    for spec in parameters(architecture):
        tensor = trained.get(spec.name)
        if tensor is None or tuple(tensor.shape) != spec.shape or spec.name.startswith("output.classes"):
            tensor = torch.from_numpy(values(spec, seed))
        tensors[spec.name] = tensor.detach().clone()
    copy: LanguageModel = load(LanguageModel(architecture), tensors).to(next(model.parameters()).device)
    return copy


def fine_tune(
    model: LanguageModel,
    rows: Sequence[Row],
    settings: FineTuning,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> list[float]:
    """Trains the whole model on rows with targets. Returns the loss of each step; leaves the model in evaluation mode.

    Uses AdamW, linear warm-up and decay to 0, and clips gradient norms at 1. The loss is the mean squared error for
    float targets, otherwise cross-entropy. Equal seeds give equal models. Raises `Diverged` if a loss is not finite.
    """
    device = torch.device(device)
    steps = settings.epochs * math.ceil(len(rows) / settings.rows)
    rate = Optimizer(name="adamw", lr=settings.lr, eps=1e-6, weight_decay=settings.weight_decay)
    warmup = math.ceil(round(settings.warmup * steps, 6))  # 0.1 · 30 is above 3 in floats
    schedule = Schedule(decay="power", warmup=warmup, power=1.0)
    p = settings.dropout
    # BERT has no dropout inside its feed-forward blocks, nor before SQuAD's head.
    output = 0.0 if model.architecture.output.kind == "spans" else p
    before, model.dropout = model.dropout, Dropout(embedding=p, hidden=p, inner=0.0, attention=p, output=output)
    optimizer = make_optimizer(model, rate)
    losses: list[float] = []
    model.to(device).train()
    try:
        for epoch in range(settings.epochs):
            order = np.random.default_rng([settings.seed, epoch]).permutation(len(rows))
            for start in range(0, len(rows), settings.rows):
                batch = [rows[i] for i in order[start : start + settings.rows]]
                seed_device(device, settings.seed * 1_000_003 + len(losses))
                set_learning_rate(optimizer, learning_rate(schedule, settings.lr, len(losses), steps))
                optimizer.zero_grad(set_to_none=True)
                with autocast(device, settings.precision):
                    loss = _loss(model, batch, device)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(float(loss.detach()))
                if not math.isfinite(losses[-1]):
                    raise Diverged(f"the loss is {losses[-1]} at step {len(losses)}: take a lower learning rate")
                if progress is not None:
                    progress(len(losses), steps, losses[-1])
    finally:
        model.dropout = before
        model.eval()
    return losses


def scores_of(
    model: LanguageModel,
    rows: Sequence[Row],
    *,
    device: torch.device | str = "cpu",
    batch: int = 32,
    precision: Precision = "float32",
) -> list[Scores]:
    """Returns the head's output for each row, float32: [classes], or [length, 2] for first and last positions.

    Rows of similar length share a batch.
    """
    by_row: list[Any] = [None] * len(rows)
    order = np.argsort([len(row.tokens) for row in rows], kind="stable")
    with evaluating(model, torch.device(device), precision):
        for start in range(0, len(rows), batch):
            indices = order[start : start + batch]
            tokens, mask, segments = _inputs(model, [rows[i] for i in indices], torch.device(device))
            scores = model(tokens, segments=segments, mask=mask).float().cpu().numpy()
            check_scores(bool(np.isfinite(scores).all()))
            for i, row_scores in zip(indices, scores, strict=True):
                by_row[i] = row_scores[: len(rows[i].tokens)] if row_scores.ndim == 2 else row_scores
    return by_row


def _loss(model: LanguageModel, rows: Sequence[Row], device: torch.device) -> Tensor:
    tokens, mask, segments = _inputs(model, rows, device)
    if isinstance(rows[0].target, float):
        targets = torch.tensor([row.target for row in rows], device=device)
        return torch.nn.functional.mse_loss(model(tokens, segments=segments, mask=mask)[:, 0].float(), targets)
    hidden = model(tokens, "none", segments=segments, mask=mask)
    return model.token_losses(hidden, torch.tensor([row.target for row in rows], device=device)).mean()


def _inputs(model: LanguageModel, rows: Sequence[Row], device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    tokens, mask = padded([np.asarray(row.tokens) for row in rows])
    segments = None
    if model.architecture.embedding.segments:
        segments = torch.from_numpy(padded([np.asarray(row.segments) for row in rows])[0]).to(device)
    return torch.from_numpy(tokens).to(device), torch.from_numpy(mask).to(device), segments


Numbers = NDArray[np.float64]


def accuracy(predicted: NDArray[Any], actual: NDArray[Any]) -> float:
    """Share of rows whose prediction is correct."""
    return 100 * float(np.mean(predicted == actual))


def f1(predicted: NDArray[Any], actual: NDArray[Any]) -> float:
    """F1 of class 1 for two classes (GLUE's MRPC and QQP); otherwise the mean F1 of all classes that occur."""
    classes = np.union1d(predicted, actual)
    labels = [1] if classes.max(initial=0) <= 1 else classes.tolist()
    hits = [int(((predicted == label) & (actual == label)).sum()) for label in labels]
    totals = [int((predicted == label).sum() + (actual == label).sum()) for label in labels]
    return 100 * float(np.mean([2 * n / total if n else 0.0 for n, total in zip(hits, totals, strict=True)]))


def matthews(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """Matthews' correlation (CoLA) for any number of classes (Gorodkin 2004, eq. 8); 0 if either input is constant."""
    classes = np.union1d(predictions, labels)
    predicted, actual = (
        np.array([(rows == cls).sum() for cls in classes], np.float64) for rows in (predictions, labels)
    )
    n = float(len(labels))
    covariance = n * float((predictions == labels).sum()) - float(predicted @ actual)
    spread = (n * n - float(predicted @ predicted)) * (n * n - float(actual @ actual))
    return 100 * covariance / spread**0.5 if spread > 0 else 0.0


def pearson(predicted: Numbers, actual: Numbers) -> float:
    """Pearson's linear correlation (STS-B); 0 if either input is constant."""
    x, y = predicted - predicted.mean(), actual - actual.mean()
    spread = float(np.sqrt((x @ x) * (y @ y)))
    return 100 * float(x @ y) / spread if spread > 0 else 0.0


def spearman(predicted: Numbers, actual: Numbers) -> float:
    """Spearman's rank correlation; ties share their mean rank."""
    from scipy.stats import rankdata  # imported here because scipy takes a second to load, and only this task needs it

    return pearson(rankdata(predicted), rankdata(actual))


CLASS_METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
}
NUMBER_METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {"pearson": pearson, "spearman": spearman}

# Answers ------------------------------------------------------------------------------------------------------------

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


def normalised_answer(text: str) -> str:
    """Normalises a text like SQuAD's official script: lower case, no punctuation, no articles, single spaces."""
    text = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Returns 1 if the prediction is one of the answers, else 0. If `answers` is empty (SQuAD 2.0), "" is correct."""
    return float(any(normalised_answer(prediction) == normalised_answer(answer) for answer in answers or [""]))


def answer_f1(prediction: str, answers: Sequence[str]) -> float:
    """Best F1 of the prediction's words with any answer (Rajpurkar et al. 2016, §6.1), from 0 to 1."""
    words, scores = normalised_answer(prediction).split(), [0.0]
    for expected in (normalised_answer(answer).split() for answer in answers or [""]):
        common = (Counter(words) & Counter(expected)).total()
        scores.append(2 * common / (len(words) + len(expected)) if words and expected else float(words == expected))
    return max(scores)


def squad_scores(predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns exact match and F1, means over all questions, at least one."""
    pairs = list(zip(predictions, answers, strict=True))
    return {
        "exact_match": 100 * float(np.mean([exact_match(*pair) for pair in pairs])),
        "f1": 100 * float(np.mean([answer_f1(*pair) for pair in pairs])),
    }
