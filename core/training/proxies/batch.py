"""The one batch that a model is scored on: random tokens, or the first batch of a prepared data set. Without torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import IGNORED, Batch, Tokens
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.training.batches import make_batches
from edgefront.core.training.proxies.registry import ProxySettings
from edgefront.core.training.recipes.recipe import Recipe, Task

MASKED_FRACTION = 0.15
"""Share of an encoder's tokens that are predicted (Devlin et al. 2019, §3.1)."""


def batch_of(architecture: Architecture, settings: ProxySettings, seed: int, data: Path | None = None) -> Batch:
    """The batch for a model whose output is over its vocabulary: [rows, length] of inputs and targets.

    A decoder predicts each next token, an encoder 15 % of them. `data` is the folder of a prepared data set, whose
    first batch in the order of the seed is taken (of the model's kind: text, masked text or translations).

    Raises `InvalidInput` where the sequence is longer than the model's positions, and for data without such a batch.
    """
    for model in (architecture, architecture.source):
        if model is not None and model.max_length is not None and settings.length > model.max_length:
            raise InvalidInput(
                f"sequences of {settings.length} tokens are longer than the model's {model.max_length} positions",
                field="length",
                value=settings.length,
                allowed=f"at most {model.max_length}",
            )
    if data is not None:
        task: Task = "pairs" if architecture.source is not None else "streams" if architecture.causal else "masked"
        recipe = Recipe(name="scoring", task=task, rows=settings.rows, segment=settings.length)
        return make_batches(open_prepared(data), recipe, seed=seed)(0)
    draw = generator(seed)
    tokens = _tokens(draw, architecture.embedding.vocab_size, settings.rows, settings.length + 1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    if not architecture.causal:
        hidden = draw.random(inputs.shape).argsort(1) < max(1, round(MASKED_FRACTION * settings.length))
        targets = np.where(hidden, inputs, IGNORED)
    source = None
    if architecture.source is not None:
        source = _tokens(draw, architecture.source.embedding.vocab_size, settings.rows, settings.length)
    return Batch(inputs, targets, starts=True, source=source)


def generator(seed: int) -> np.random.Generator:
    """Random numbers of a score: PCG64 keyed by the SHA-256 of the seed, so that neighbouring seeds are unrelated."""
    key = hashlib.sha256(f"edgefront/proxy/{seed}".encode("ascii")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


def _tokens(draw: np.random.Generator, vocab_size: int, rows: int, length: int) -> Tokens:
    """Uniform tokens [rows, length]; rows begin with different ones as far as there are so many.

    What stands first has no past, so two rows that began alike would have a state in common.
    """
    tokens: Tokens = draw.integers(0, vocab_size, (rows, length))
    tokens[:, 0] = np.resize(draw.permutation(vocab_size), rows) if vocab_size <= 1 << 20 else tokens[:, 0]
    return tokens
