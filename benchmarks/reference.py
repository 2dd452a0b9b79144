"""The recipe `modern` beside a plain loop (`plain_loop.py`): the same shape, data, tokens a step, steps; in turns.

One run trains both, some steps of each at a time, every other turn in reverse order; what is compared is perplexity on
the validation split by one function, and the median over turns of the ratio of tokens a second. The grid runs families ×
widths × learning rates, as many processes at once as asked for with one thread each, and leaves a JSON line of each run
in `FOLDER/runs.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from plain_loop import D_HEAD, Decoder, train
from torch import Tensor

from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import Split, open_prepared
from edgefront.core.recipes.papers import recipe
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward, ShortConv
from edgefront.core.spaces.embeddings_and_head import Embedding, LearnedPositions, RotaryPositions
from edgefront.core.training.distributed import Ranks
from edgefront.core.training.journal import Journal
from edgefront.core.training.loop import Trainer
from edgefront.core.training.run_folder import RunSpec

FAMILIES = ("gpt2", "llama", "lfm")
WIDTHS = (64, 128, 256)
RATES = (0.0025, 0.005, 0.01, 0.02, 0.04)
ROWS, SEGMENT = 4, 128


def architecture(family: str, width: int, layers: int, vocabulary: int) -> Architecture:
    """What `Decoder` is, as a description."""
    heads, blocks = width // D_HEAD, list[Block]()
    for layer in range(layers):
        if family == "gpt2":
            blocks += [Attention(n_head=heads), FeedForward(d_inner=4 * width)]
            continue
        attention = Attention(n_head=heads, n_kv_head=heads // 2, qk_norm=family == "lfm", bias="none")
        blocks += [
            ShortConv() if family == "lfm" and layer % 2 == 0 else attention,
            FeedForward(d_inner=3 * width, gated=True, bias=False),
        ]
    return Architecture(
        d_model=width,
        positions=LearnedPositions(length=SEGMENT) if family == "gpt2" else RotaryPositions(),
        embedding=Embedding(vocab_size=vocabulary),
        activation="gelu" if family == "gpt2" else "silu",
        norm_kind="layer" if family == "gpt2" else "rms",
        blocks=tuple(blocks),
    )


class Product:
    """A training of the pool's own loop, some steps at a time."""

    def __init__(self, described: Architecture, data: Path, how: Recipe, seed: int, folder: Path) -> None:
        self._left, self._begun = 0, 0.0
        self.seconds = 0.0
        spec = RunSpec(
            architecture=dict(described.canonical),
            data=str(data),
            recipe=how.model_dump(mode="json"),
            seed=seed,
            threads=1,
        )
        ranks = Ranks(0, 1, torch.device("cpu"))
        self._trainer = Trainer(spec, folder, ranks, Journal(folder, writes=True), self._stops)

    def _stops(self) -> bool:
        """Asked once before each step."""
        if self._left:
            self._left -= 1
            return False
        self.seconds = time.perf_counter() - self._begun
        return True

    def take(self, steps: int) -> float:
        """Seconds of so many steps, without the checkpoint that follows."""
        self._left, self._begun, self.seconds = steps, time.perf_counter(), 0.0
        self._trainer.train()
        return self.seconds or time.perf_counter() - self._begun

    @property
    def model(self) -> Callable[[Tensor], Tensor]:
        return self._trainer.model


@torch.no_grad()
def perplexity(model: Any, split: Split) -> float:
    """Of every whole segment of the split, each read by itself."""
    tokens = torch.from_numpy(split.tokens.astype("int64"))
    rows = (len(tokens) - 1) // SEGMENT
    inputs, targets = (tokens[at : at + rows * SEGMENT].view(rows, SEGMENT) for at in (0, 1))
    model.eval()
    losses = [
        torch.nn.functional.cross_entropy(model(some).flatten(0, 1), wanted.flatten(), reduction="sum")
        for some, wanted in zip(inputs.split(32), targets.split(32), strict=True)
    ]
    model.train()
    return math.exp(float(torch.stack(losses).sum()) / targets.numel())


def compare(options: argparse.Namespace, family: str, width: int, lr: float, seed: int) -> dict[str, Any]:
    """One run of both."""
    torch.set_num_threads(1)
    data = open_prepared(Path(options.data))
    steps, turn = options.steps, options.turn
    how = recipe(options.recipe).overridden(
        {
            "steps": steps,
            "rows": ROWS,
            "segment": SEGMENT,
            "optimizer": {"lr": lr},
            "schedule": {"warmup": max(1, steps // 10)},
            "checkpoint_every": steps,
            "evaluation": {"every": steps, "tokens": SEGMENT},
        }
        | json.loads(options.overrides)
    )
    with tempfile.TemporaryDirectory() as folder:
        described = architecture(family, width, options.layers, data.vocab_size)
        product = Product(described, Path(options.data), how, seed, Path(folder))
        torch.manual_seed(seed)
        plain = Decoder(family, width, options.layers, data.vocab_size, SEGMENT)
        plain_lr = options.plain_lr or lr
        loop = train(plain, data.split("train").tokens, plain_lr, steps, ROWS, SEGMENT, seed)
        ratios, speeds = [], []
        for number, count in enumerate(turns(steps, turn)):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            seconds = [0.0, 0.0]
            for which in order:
                seconds[which] = product.take(count) if which == 0 else taken(loop, count)
            if number:  # the first turn warms up
                ratios.append(seconds[1] / seconds[0])
                speeds.append(count * ROWS * SEGMENT / seconds[0])
        valid = data.split("valid")
        return {
            "family": family,
            "width": width,
            "lr": lr,
            "seed": seed,
            "steps": steps,
            "perplexity": perplexity(product.model, valid),
            "plain": perplexity(plain, valid),
            "plain_lr": plain_lr,
            "speed": statistics.median(ratios) if ratios else None,
            "tokens_per_s": statistics.median(speeds) if speeds else None,
            "overrides": options.overrides,
            "recipe": options.recipe,
            "layers": options.layers,
        }


def turns(steps: int, turn: int) -> Iterator[int]:
    for begun in range(0, steps, turn):
        yield min(turn, steps - begun)


def taken(loop: Iterator[None], count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        next(loop)
    return time.perf_counter() - begun
