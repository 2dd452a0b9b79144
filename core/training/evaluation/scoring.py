"""Computes log-likelihoods of texts, and generates text up to a stop sequence, for evaluation tasks.

`core.training.evaluation.harness` adapts this module to lm-evaluation-harness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import IGNORED
from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.generate import Sampling, TextStream, generate
from edgefront.core.training.evaluation.package import Package
from edgefront.core.training.evaluation.perplexity import evaluating, padded
from edgefront.core.training.recipes.recipe import EvaluationSettings, can_carry_past, predicts_next_token

_POSITIONS = 64
"""Number of positions whose logits over the whole vocabulary are computed together."""

Likelihood = tuple[float, bool]
"""Log-likelihood of a continuation in nats, and whether every token of the continuation is the most likely token."""


class TextScorer:
    """Scores and generates text with a trained model.

    A model with memory across segments uses segment, memory and clamp of the model's recipe. A model with a bounded
    number of positions sees the latest tokens that fit. `begin` is the token before a text without a context: the
    tokenizer's BOS, else its EOS, else a line feed, a space or token 0.

    Raises `InvalidInput` for a model that cannot continue a text.
    """

    def __init__(self, package: Package, *, device: torch.device | str = "cpu", rows: int = 16) -> None:
        if not predicts_next_token(package.architecture):
            raise InvalidInput(
                "texts are scored by models that predict the next token: causal, and without a source",
                field="model",
                value=package.architecture.output.kind,
                allowed="a causal model with output tokens",
            )
        self.model: LanguageModel = package.model(device)
        self.tokenizer: Tokenizer = package.tokenizer
        self.device, self.rows = torch.device(device), rows
        recipe = package.recipe
        self.evaluation = EvaluationSettings(segment=512, memory=1 << 20) if recipe is None else recipe.evaluation
        self.max_length = package.architecture.max_length
        self.begin = _begin(self.tokenizer)

    def encoded(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokenizes context and continuation as one text; spaces at the context's end move to the continuation."""
        spaces = len(context) - len(context.rstrip())
        if spaces and context.strip():
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        if not context:
            return [self.begin], self.tokenizer.encode(continuation)
        before, whole = self.tokenizer.prompt(context), self.tokenizer.prompt(context + continuation)
        return before, whole[len(before) :]

    def score(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], progress: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """Returns the likelihood of each pair's second text, given the first (≥ 1 token); texts are token ids."""
        likelihoods: list[Likelihood] = [(0.0, True)] * len(pairs)
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
        with evaluating(self.model, self.device, "float32", self.evaluation.clamp):
            for start in range(0, len(order), self.rows):
                batch = order[start : start + self.rows]
                for i, likelihood in zip(batch, self._score_batch([pairs[i] for i in batch]), strict=True):
                    likelihoods[i] = likelihood
                if progress is not None:
                    progress(min(start + self.rows, len(order)), len(order))
        return likelihoods

    def whole(self, text: str) -> float:
        """Log-probability of a whole text in nats; every token is predicted once.

        A model with a bounded number of positions reads windows of this number of tokens; the final window starts early
        enough to be full.
        """
        tokens = self.tokenizer.encode(text)
        step = self.max_length or max(1, len(tokens))
        pairs = [([self.begin, *tokens[:start]], tokens[start : start + step]) for start in range(0, len(tokens), step)]
        return sum(nats for nats, _ in self.score(pairs))

    def write(self, context: str, tokens: int, until: Sequence[str], sampling: Sampling) -> str:
        """Generates a continuation up to the first string of `until`, the end token or `tokens` tokens."""
        ids = self.tokenizer.prompt(context) or [self.begin]
        if self.max_length is not None:
            tokens = min(tokens, self.max_length)
            ids = ids[-max(1, self.max_length - tokens + 1) :]
        memory = self.evaluation.memory if can_carry_past(self.model.architecture) else None
        stream, text = TextStream(self.tokenizer, ids), [""]

        def put(token: int) -> None:
            text[0] += stream.add(token)
            if any(end in text[0] for end in until):
                raise _StopReached

        stop, never = self.tokenizer.stops, self.tokenizer.unused(self.model.architecture.embedding.vocab_size)
        with suppress(_StopReached):
            with evaluating(self.model, self.device, "float32", self.evaluation.clamp):
                generate(self.model, ids, tokens, sampling, stop=stop, never=never, memory=memory, on_token=put)
            text[0] += stream.rest()
        cuts = [text[0].find(end) for end in until if end in text[0]]
        return text[0][: min(cuts)] if cuts else text[0]

    def _score_batch(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Likelihood]:
        inputs, targets = [], []
        for context, continuation in pairs:
            whole = np.array([*context, *continuation], np.int64)
            length = len(whole) if self.max_length is None else min(len(whole), self.max_length + 1)
            if len(continuation) > length - 1:
                raise InvalidInput(
                    f"a continuation of {len(continuation)} tokens is longer than the model's {self.max_length} "
                    "positions",
                    field="continuation",
                    value=len(continuation),
                    allowed=f"at most {self.max_length} tokens",
                )
            labels = np.full(length - 1, IGNORED, np.int64)
            if continuation:
                labels[-len(continuation) :] = continuation
            inputs.append(whole[-length:-1])
            targets.append(labels)
        tokens, _ = padded(inputs)
        padded_labels = np.full(tokens.shape, IGNORED, np.int64)
        for row, labels in enumerate(targets):
            padded_labels[row, : len(labels)] = labels
        hidden = self._hidden(torch.from_numpy(tokens).to(self.device))
        batch_labels = torch.from_numpy(padded_labels).to(self.device)
        nats = self.model.token_losses(hidden, batch_labels).double().sum(1).neg().tolist()
        row, position = (batch_labels != IGNORED).nonzero(as_tuple=True)
        greedy = torch.ones(len(batch_labels), dtype=torch.bool, device=self.device)
        for rows, positions in zip(row.split(_POSITIONS), position.split(_POSITIONS), strict=True):
            logits: Any = self.model.output(hidden[rows, positions], self.model.embedding)
            greedy[rows[logits.argmax(-1) != batch_labels[rows, positions]]] = False
        return list(zip(nats, greedy.tolist(), strict=True))

    def _hidden(self, tokens: Tensor) -> Tensor:
        """Hidden states of tokens: [batch, length] → [batch, length, d_model]."""
        if not can_carry_past(self.model.architecture):
            hidden: Tensor = self.model(tokens, "none")
            return hidden
        segment, memory = self.evaluation.segment, self.evaluation.memory
        window = memory + 1 if self.evaluation.same_length else None
        cache, parts = self.model.init_cache(len(tokens), "memory"), []
        for part in tokens.split(segment, 1):
            hidden, cache = self.model(part, "none", cache=cache, window=window)
            cache = cache.keep(memory)
            parts.append(hidden)
        return torch.cat(parts, 1)


def _begin(tokenizer: Tokenizer) -> int:
    for token in (tokenizer.bos, tokenizer.eos):
        if token is not None:
            return token
    for text in ("\n", " "):
        with suppress(InvalidInput):
            return tokenizer.encode(text)[0]
    return 0


class _StopReached(Exception):
    """A stop sequence was generated."""
