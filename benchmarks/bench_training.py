"""Training steps: GPT-2 against the same model in transformers, and SRU++ against Transformer-XL, in turns in one run.

A step is that of `core.training.loop`: forward, loss, backward, clipping, AdamW. Rounds take turns, every second one in
reverse order; figures are medians over rounds, `relative` of the ratios within a round.

    python benchmarks/bench_training.py [--device cuda] [--rounds 7] [--steps 10] [--rows 16]
        [--only gpt2|srupp] [--quick]

On a GPU: GPT-2 124M, 1,024 tokens, bfloat16; SRU++ Base and a Transformer-XL with as many parameters (WikiText-103, 192
tokens after 192; enwik8, 512 after 512). On a CPU the same in small, in float32. The compiled models of transformers
need a C++ compiler on a CPU. `--quick` takes one step of models that are not compiled, as a test that everything runs:
its figures mean nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from record import append, table
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.embeddings_and_head import Embedding, LearnedPositions
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.models.srupp import every, srupp_layers, stack
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.perplexity import autocast
from edgefront.core.training.optimizers import make_optimizer
from edgefront.core.training.parametrisation import initialise
from edgefront.core.training.recipes.recipe import Optimizer, Precision
from edgefront.core.training.step import Objective, Rows

if TYPE_CHECKING:
    from transformers import GPT2Config

Step = Callable[[], Tensor]
OPTIMIZER = Optimizer(name="adamw", lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)


@dataclass(frozen=True)
class Shape:
    """Shape of a batch, and the number format of the computation."""

    rows: int
    segment: int
    memory: int
    device: torch.device
    precision: Precision


@dataclass(frozen=True)
class Gpt2:
    """Sizes of a GPT-2; the defaults are those of the 124 M model."""

    n_layer: int = 12
    d_model: int = 768
    n_head: int = 12
    vocab_size: int = 50257
    positions: int = 1024

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            d_model=self.d_model,
            positions=LearnedPositions(length=self.positions),
            embedding=Embedding(vocab_size=self.vocab_size),
            blocks=(Attention(n_head=self.n_head), FeedForward(d_inner=4 * self.d_model)) * self.n_layer,
        )

    @property
    def config(self) -> GPT2Config:
        """Returns the same sizes as a config of transformers, without dropout."""
        from transformers import GPT2Config

        return GPT2Config(
            vocab_size=self.vocab_size,
            n_positions=self.positions,
            n_embd=self.d_model,
            n_layer=self.n_layer,
            n_head=self.n_head,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
        )


def ours(architecture: Architecture, shape: Shape, compiled: bool) -> Step:
    """Returns a training step of our model; after the first step, the model's memory is full."""
    model = LanguageModel(architecture)
    initialise(model, "gpt2", 0)
    model.to(shape.device).train()
    objective = Objective(model, shape.memory)
    call = torch.compile(objective) if compiled else objective
    optimizer = make_optimizer(model, OPTIMIZER)
    tokens = _tokens(architecture.embedding.vocab_size, shape)
    rows = Rows(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), None, None, None, None)
    state = model.init_cache(shape.rows, "memory") if shape.memory else None

    def step() -> Tensor:
        nonlocal state
        optimizer.zero_grad(set_to_none=True)
        with autocast(shape.device, shape.precision):
            loss, _, state = call(rows, state)
        loss = loss / rows.targets.numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def theirs(size: Gpt2, shape: Shape, compiled: bool) -> Step:
    """Returns a training step of the same GPT-2 in transformers, with the same optimiser and number format."""
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel(size.config).to(shape.device).train()
    assert sum(parameter.numel() for parameter in model.parameters()) == costs(size.architecture).total_parameters
    call = torch.compile(model) if compiled else model
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": OPTIMIZER.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=OPTIMIZER.lr,
        betas=OPTIMIZER.betas,
        fused=True,
    )
    tokens = _tokens(size.vocab_size, shape)[:, :-1].contiguous()

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with autocast(shape.device, shape.precision):
            loss: Tensor = call(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def measured(steps: Mapping[str, Step], rounds: int, count: int, device: torch.device) -> dict[str, list[float]]:
    """Returns the seconds per step of each model in each round."""
    for step in steps.values():
        for _ in range(3):  # compiles the model, and fills its memory
            assert step().isfinite()
    found: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps)[:: 1 if number % 2 == 0 else -1]:
            _wait(device)
            begun = time.perf_counter()
            for _ in range(count):
                steps[name]()
            _wait(device)
            found[name].append((time.perf_counter() - begun) / count)
    return found


def rows_of(
    found: Mapping[str, list[float]], models: Mapping[str, Architecture], shape: Shape, first: str
) -> list[dict[str, Any]]:
    """Returns one table row per model, relative to `first`."""
    rows = []
    for name, seconds in found.items():
        step_s = statistics.median(seconds)
        ratios = [own / other for own, other in zip(seconds, found[first], strict=True)]
        rows.append(
            {
                "model": name,
                "parameters (M)": round(costs(models[name]).total_parameters / 1e6, 1),
                "ms a step": step_s * 1e3,
                "tokens/s": round(shape.rows * shape.segment / step_s),
                "relative": statistics.median(ratios),
            }
        )
    return rows


def _tokens(vocabulary: int, shape: Shape) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (shape.rows, shape.segment + 1), generator=rng).to(shape.device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="in a row, each round")
    parser.add_argument("--rows", type=int, help="a step: 16 on a GPU, 4 on a CPU")
    parser.add_argument("--only", choices=["gpt2", "srupp"], help="GPT-2 beside transformers, or SRU++ alone")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    rows = options.rows or (16 if on_gpu else 4)
    precision: Precision = "bfloat16" if on_gpu else "float32"
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(device) if on_gpu else "cpu", "rows": rows}

    def run(title: str, steps: Mapping[str, Step], models: Mapping[str, Architecture], shape: Shape) -> None:
        first = next(iter(steps))
        result = rows_of(measured(steps, options.rounds, options.steps, device), models, shape, first)
        table(f"{title}: {rows} rows of {shape.segment} after {shape.memory}, {precision}", result)
        found[title] = result
        if on_gpu:
            torch.cuda.empty_cache()

    if options.quick:
        options.rounds = options.steps = 1
    size = Gpt2() if on_gpu else Gpt2(n_layer=4, d_model=256, n_head=4, vocab_size=8192, positions=256)
    shape = Shape(rows, 1024 if on_gpu else 128, 0, device, precision)
    if options.only != "srupp":
        compiled = not options.quick
        steps = {
            "transformers, compiled": theirs(size, shape, compiled),
            "ours, compiled": ours(size.architecture, shape, compiled),
            "transformers": theirs(size, shape, False),
            "ours": ours(size.architecture, shape, False),
        }
        run("GPT-2", steps, dict.fromkeys(steps, size.architecture), shape)
    for title, segment, pair in [] if options.only == "gpt2" else pairs(on_gpu):
        shape = Shape(rows, segment, segment, device, precision)
        run(title, {name: ours(architecture, shape, False) for name, architecture in pair.items()}, pair, shape)
    append("training", found, quick=options.quick)


def pairs(on_gpu: bool) -> list[tuple[str, int, dict[str, Architecture]]]:
    """Returns Transformer-XL and SRU++ with equal numbers of parameters, and the segment's length."""
    if on_gpu:
        named = [
            ("WikiText-103", 192, ("transformer-xl-wt103", "srupp-base-wt103")),
            ("enwik8", 512, ("transformer-xl-24b-enwik8", "srupp-small")),
        ]
        return [(title, length, {name: named_model(name).architecture for name in two}) for title, length, two in named]
    srupp = stack(256, srupp_layers(64, every(1)))
    wanted = costs(srupp).decoder_parameters
    near = min(map(transformer_xl, range(64, 256, 4)), key=lambda model: abs(costs(model).decoder_parameters - wanted))
    return [("SRU++ in small", 128, {"Transformer-XL": near, "SRU++ k = 1": srupp})]


def transformer_xl(d_model: int) -> Architecture:
    """Returns a Transformer-XL with four layers of attention and feed-forward, relative positions and two heads."""
    layer: list[dict[str, Any]] = [
        {"kind": "attention", "n_head": 2},
        {"kind": "feed_forward", "d_inner": 4 * d_model},
    ]
    return Architecture.parse(
        {
            "d_model": d_model,
            "embedding": {"vocab_size": 256},
            "blocks": layer * 4,
            "positions": {"kind": "relative"},
            "norm": "post",
        }
    )


if __name__ == "__main__":
    main()
