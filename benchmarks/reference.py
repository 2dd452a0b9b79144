"""The recipe `modern` beside a plain loop (`plain_loop.py`): the same shape, data, tokens a step, steps; in turns.

One run trains both, some steps of each at a time, every other turn in reverse order. Compared are perplexities on the
validation split, by one function, and tokens a second: the median over turns of the ratio. The grid runs families,
widths and learning rates, as many processes at once as asked for with one thread each, and leaves a JSON line of each
run in `FOLDER/runs.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from plain_loop import D_HEAD, Decoder, train
from record import table
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
LR = 0.01
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


class PoolTraining:
    """A training of the pool's own loop, some steps at a time."""

    def __init__(self, described: Architecture, data: Path, how: Recipe, seed: int, folder: Path) -> None:
        self._left, self._seconds = 0, 0.0
        self._begun: float | None = None
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
        if self._begun is None:
            self._begun = time.process_time()
        if self._left:
            self._left -= 1
            return False
        self._seconds = time.process_time() - self._begun
        return True

    def take(self, steps: int) -> float:
        """Seconds of so many steps, without the files of a start and of an end; 0.0 for those to the end of all."""
        self._left, self._begun, self._seconds = steps, None, 0.0
        self._trainer.train()
        return self._seconds

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
        torch.nn.functional.cross_entropy(model(some).flatten(0, 1), expected.flatten(), reduction="sum")
        for some, expected in zip(inputs.split(32), targets.split(32), strict=True)
    ]
    model.train()
    return math.exp(float(torch.stack(losses).sum()) / targets.numel())


@dataclass(frozen=True)
class Settings:
    """What all runs of a grid have in common."""

    data: Path
    steps: int
    layers: int = 2
    turn: int = 25
    recipe: str = "modern"
    overrides: str = "{}"

    def of(self, lr: float) -> Recipe:
        """The recipe with the plain loop's tokens a step, and nothing between its steps."""
        fixed = {
            "steps": self.steps,
            "rows": ROWS,
            "segment": SEGMENT,
            "optimizer": {"lr": lr},
            "schedule": {"warmup": max(1, self.steps // 10)},
            "checkpoint_every": self.steps,
            "evaluation": {"every": self.steps, "tokens": SEGMENT},
        }
        return recipe(self.recipe).overridden(fixed).overridden(json.loads(self.overrides))


@dataclass(frozen=True)
class Run:
    """One of a grid."""

    family: str
    width: int
    lr: float
    seed: int


def compare(settings: Settings, run: Run) -> dict[str, Any]:
    """Both trainings of a run, in turns."""
    torch.set_num_threads(1)
    data = open_prepared(settings.data)
    with tempfile.TemporaryDirectory() as folder:
        described = architecture(run.family, run.width, settings.layers, data.vocab_size)
        pool = PoolTraining(described, settings.data, settings.of(run.lr), run.seed, Path(folder))
        torch.manual_seed(run.seed)
        plain = Decoder(run.family, run.width, settings.layers, data.vocab_size, SEGMENT)
        loop = train(plain, data.split("train").tokens, run.lr, settings.steps, ROWS, SEGMENT, run.seed)
        seconds = []
        for number, count in enumerate(turns(settings.steps, settings.turn)):
            if number % 2 == 0:
                seconds.append((pool.take(count) / count, taken(loop, count) / count))
            else:
                seconds.append((taken(loop, count) / count, pool.take(count) / count)[::-1])
        later = seconds[1:-1]  # the first turn warms up, the last ends with an evaluation
        valid = data.split("valid")
        return {
            **asdict(run),
            "steps": settings.steps,
            "layers": settings.layers,
            "overrides": settings.overrides,
            "perplexity": perplexity(pool.model, valid),
            "plain": perplexity(plain, valid),
            "speed": statistics.median(theirs / ours for ours, theirs in later) if later else None,
            "tokens_per_s": ROWS * SEGMENT / statistics.median(ours for ours, _ in later) if later else None,
        }


def turns(steps: int, turn: int) -> Iterator[int]:
    for begun in range(0, steps, turn):
        yield min(turn, steps - begun)


def taken(loop: Iterator[None], count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        next(loop)
    return time.process_time() - begun


def optimum(perplexities: Mapping[float, float]) -> float:
    """The learning rate of the lowest perplexity: of the parabola in log lr through the best and its neighbours."""
    rates = sorted(perplexities)
    best = min(range(len(rates)), key=lambda index: perplexities[rates[index]])
    if not 0 < best < len(rates) - 1:
        return rates[best]
    x = [math.log(rate) for rate in rates[best - 1 : best + 2]]
    y = [math.log(perplexities[rate]) for rate in rates[best - 1 : best + 2]]
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    bend = (right - left) / (x[2] - x[0])
    return math.exp((x[0] + x[1]) / 2 - left / (2 * bend))


def summary(runs: Sequence[Mapping[str, Any]], lr: float) -> list[dict[str, Any]]:
    """A row for each family and width: both at one rate, and where the optimum of each is. Seeds are averaged."""
    rows = []
    shapes = sorted({(run["family"], run["width"]) for run in runs})
    for family, width in shapes:
        own = [run for run in runs if (run["family"], run["width"]) == (family, width)]
        means = {
            which: {
                rate: statistics.geometric_mean(run[which] for run in own if run["lr"] == rate)
                for rate in {run["lr"] for run in own}
            }
            for which in ("perplexity", "plain")
        }
        if lr not in means["plain"]:
            continue
        ours, theirs = means["perplexity"][lr], means["plain"][lr]
        rows.append(
            {
                "family": family,
                "width": width,
                "modern": round(ours, 2),
                "plain": round(theirs, 2),
                "plain at its best rate": round(min(means["plain"].values()), 2),
                "relative": round(ours / theirs, 3),
                "optimum": round(optimum(means["perplexity"]), 4),
                "plain's optimum": round(optimum(means["plain"]), 4),
                "speed": _median([run["speed"] for run in own], 3),
                "tokens/s": _median([run["tokens_per_s"] for run in own], 0),
            }
        )
    return rows


def _median(values: Sequence[float | None], digits: int) -> float | None:
    """None where a training was too short for a turn of its own."""
    there = [value for value in values if value is not None]
    return round(statistics.median(there), digits) if there else None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `--reference`."""
    group = parser.add_argument_group("--reference")
    group.add_argument("--grid", action="store_true", help="families x widths x rates, not one width and rate")
    group.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    group.add_argument("--widths", nargs="+", type=int, help=f"default 64, with --grid {WIDTHS}")
    group.add_argument("--rates", nargs="+", type=float, help=f"default {LR}, with --grid {RATES}")
    group.add_argument("--seeds", type=int, default=1)
    group.add_argument("--length", type=int, default=1000, help=f"steps of a training, {ROWS} x {SEGMENT} tokens each")
    group.add_argument("--layers", type=int, default=2)
    group.add_argument("--processes", type=int, default=1, help="at once, each on one thread")
    group.add_argument("--text", nargs="+", type=Path, help="files to train on, as 512 pieces; default: python")
    group.add_argument("--data", type=Path, help="a prepared data set in place of --text")
    group.add_argument("--overrides", default="{}", help="fields of the recipe that differ, as JSON")
    group.add_argument("--out", type=Path, help="folder for a JSON line of each run")


def main(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs the grid, the longest first; prints and returns its table."""
    widths = options.widths or (WIDTHS if options.grid else WIDTHS[:1])
    rates = options.rates or (RATES if options.grid else (LR,))
    grid = product(sorted(widths, reverse=True), options.families, rates, range(options.seeds))
    runs = [Run(family, width, rate, seed) for width, family, rate, seed in grid]
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or prepared(options.text, Path(folder))
        settings = Settings(data, options.length, options.layers, overrides=options.overrides)
        done = []
        # Processes that are started anew: a fork would inherit torch's threads.
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            for finished in as_completed([pool.submit(compare, settings, run) for run in runs]):
                done.append(finished.result())
                print(json.dumps(done[-1]), file=sys.stderr, flush=True)
                if options.out is not None:
                    options.out.mkdir(parents=True, exist_ok=True)
                    with (options.out / "runs.jsonl").open("a") as lines:
                        lines.write(json.dumps(done[-1]) + "\n")
    found = summary(done, LR if LR in rates else rates[0])
    table(f"modern beside a plain loop: {options.length} steps of {ROWS} x {SEGMENT} tokens", found)
    return found


def prepared(texts: Sequence[Path] | None, folder: Path) -> Path:
    """The texts, or Python's standard library, as 512 byte pairs."""
    whole = "python"
    if texts:
        (folder / "text.txt").write_text("".join(text.read_text() for text in texts))
        whole = str(folder / "text.txt")
    return prepare(whole, folder / "prepared", settings=Preparation(level="bpe", vocab_size=512)).folder
