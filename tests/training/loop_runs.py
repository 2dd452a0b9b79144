"""Runs of the training loop."""

from __future__ import annotations

import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.training.checkpoint import read_model, read_progress
from edgefront.core.training.recipes.recipe import Recipe
from edgefront.core.training.run_folder import CHECKPOINTS, LOG, METRICS, SPEC, RunSpec, read_metrics

DROPOUT = {"embedding": 0.1, "hidden": 0.1, "attention": 0.1, "highway": 0.1, "output": 0.1}
EMBEDDING = {"vocab_size": 5000}
LAYER = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 32}]
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "d_model": 16,
        "embedding": EMBEDDING,
        "blocks": LAYER * 2,
        "positions": {"kind": "learned", "length": 64},
    },
    "transformer-xl": {
        "d_model": 16,
        "embedding": {"vocab_size": 5000, "cutoffs": [40, 1000], "div": 2},
        "blocks": LAYER * 2,
        "positions": {"kind": "relative"},
        "norm": "post",
    },
    "srupp": {
        "d_model": 16,
        "embedding": EMBEDDING,
        "blocks": [{"kind": "srupp", "d_attn": 8}] * 2,
        "positions": {"kind": "none"},
    },
    "decoder": {
        "d_model": 16,
        "embedding": EMBEDDING,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "activation": "silu",
        "blocks": [
            {"kind": "short_conv"},
            {"kind": "feed_forward", "d_inner": 32, "gated": True, "bias": False},
            {"kind": "attention", "n_head": 4, "n_kv_head": 2, "qk_norm": True, "bias": "none", "window": 8},
        ],
    },
}
BERT = {
    **MODELS["gpt2"],
    "causal": False,
    "output": {"kind": "masked_tokens"},
}
RECIPE: dict[str, Any] = {
    "name": "test",
    "steps": 8,
    "rows": 4,
    "segment": 16,
    "memory": 16,
    "optimizer": {"name": "radam", "lr": 0.01, "weight_decay": 0.1},
    "schedule": {"warmup": 2},
    "clip": 1.0,
    "dropout": DROPOUT,
    "checkpoint_every": 3,
    "evaluation": {"segment": 16, "memory": 16, "rows": 4, "tokens": 200, "every": 5},
}
MODERN: dict[str, Any] = {
    "order": "shuffled",
    "memory": 0,
    "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "initialisation": "completep",
    "parametrisation": {"base_width": 8, "base_blocks": 2},
}


def spec_of(data: Path, model: str = "transformer-xl", **recipe: Any) -> RunSpec:
    whole = Recipe.parse(RECIPE).overridden(recipe)
    architecture = Architecture.parse((MODELS | {"bert": BERT})[model]).canonical
    return RunSpec(architecture=dict(architecture), data=str(data), recipe=whole.model_dump(mode="json"), threads=1)


def losses(folder: Path) -> list[tuple[int, str, float]]:
    """Each line's step, kind and loss."""
    return [
        (metric.step, "train", metric.loss) if metric.loss is not None else (metric.step, "valid", metric.valid_loss)
        for metric in read_metrics(folder / METRICS)
    ]


def assert_nearly_the_same(one: Path, other: Path) -> None:
    """But for the order in which floats were added."""
    for (*which, loss), (*same, close) in zip(losses(one), losses(other), strict=True):
        assert which == same
        assert loss == pytest.approx(close, rel=2e-4)


def assert_same_end(one: Path, other: Path) -> None:
    assert losses(one) == losses(other)
    ends = [max((folder / CHECKPOINTS).iterdir()) for folder in (one, other)]
    weights = [read_model(end) for end in ends]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    progress = [read_progress(end).model_dump(exclude={"seconds"}) for end in ends]
    assert progress[0] == progress[1]


def folder_with(spec: RunSpec, folder: Path) -> Path:
    folder.mkdir()
    (folder / SPEC).write_text(spec.model_dump_json())
    return folder


def wait_for_step(folder: Path, step: int, process: ForkServerProcess) -> None:
    while process.is_alive():
        found = read_metrics(folder / METRICS)
        if found and found[-1].step >= step:
            return
        time.sleep(0.01)
    raise AssertionError((folder / LOG).read_text())


def ended(process: ForkServerProcess) -> int | None:
    process.join()
    return process.exitcode
