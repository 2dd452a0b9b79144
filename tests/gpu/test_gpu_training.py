"""Trainings on NVIDIA GPUs: they learn, in bfloat16 too, resume bit for bit, and two GPUs learn what one learns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from prepared_text import after, prepared_text

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.training.checkpoint import read_model
from edgefront.core.training.distributed import joined
from edgefront.core.training.loop import Trainer
from edgefront.core.training.recipes.recipe import Recipe
from edgefront.core.training.run_folder import (
    CHECKPOINTS,
    EXIT_DONE,
    LOG,
    METRICS,
    RESULT,
    SPEC,
    Journal,
    RunSpec,
    read_metrics,
)

LAYER = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}]
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"blocks": LAYER * 2, "positions": {"kind": "learned", "length": 64}},
    "transformer-xl": {"blocks": LAYER * 2, "positions": {"kind": "relative"}, "norm": "post"},
    "srupp": {"blocks": [{"kind": "srupp", "d_attn": 16}] * 2, "positions": {"kind": "none"}},
}
RECIPE: dict[str, Any] = {
    "name": "test",
    "steps": 30,
    "rows": 8,
    "segment": 16,
    "memory": 16,
    "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "schedule": {"warmup": 2},
    "clip": 1.0,
    "checkpoint_every": 10,
    "evaluation": {"segment": 16, "memory": 16, "rows": 8, "tokens": 200, "every": 30},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_text(tmp_path_factory.mktemp("data"))


def spec_of(data: Path, model: str, **recipe: Any) -> RunSpec:
    described = Architecture.parse({"d_model": 32, "embedding": {"vocab_size": 5000}, **MODELS[model]})
    whole = Recipe.parse(RECIPE).overridden(recipe)
    values = {"architecture": described.canonical, "data": str(data), "recipe": whole.model_dump(mode="json")}
    return RunSpec.model_validate({**values, "device": "cuda"})


def trained(spec: RunSpec, folder: Path, stop: Callable[[], bool] = lambda: False) -> str:
    folder.mkdir(exist_ok=True)
    with joined("cuda") as ranks:
        return str(Trainer(spec, folder, ranks, Journal(folder, writes=True), stop).train())


def losses(folder: Path) -> list[float]:
    return [metric.loss for metric in read_metrics(folder / METRICS) if metric.loss is not None]


def run(spec: RunSpec, folder: Path, *launcher: str) -> dict[str, Any]:
    """The command that trains, in a process of its own; what it leaves as its result."""
    folder.mkdir()
    (folder / SPEC).write_text(spec.model_dump_json())
    command = [sys.executable, *launcher, "-m", "edgefront.core.training.run", str(folder)]
    with (folder / LOG).open("ab") as log:
        code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode
    assert code == EXIT_DONE, (folder / LOG).read_text()[-2000:]
    result: dict[str, Any] = json.loads((folder / RESULT / "result.json").read_text())
    return result


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_one_gpu_learns(model: str, precision: str, data: Path, tmp_path: Path) -> None:
    assert trained(spec_of(data, model, precision=precision), tmp_path / "run") == "done"
    seen = losses(tmp_path / "run")
    assert seen[-1] < 0.7 * seen[0]


def test_the_command_trains_on_a_gpu(data: Path, tmp_path: Path) -> None:
    assert run(spec_of(data, "gpt2"), tmp_path / "run")["test"]["perplexity"] < 200  # of 5,000 tokens


@pytest.mark.parametrize("model", MODELS)
def test_a_training_that_was_stopped_resumes_bit_for_bit(model: str, data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, model)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert trained(spec, whole) == "done"
    assert trained(spec, parts, after(4)) == "stopped"
    assert trained(spec, parts, after(11)) == "stopped"
    assert trained(spec, parts) == "done"
    assert losses(whole) == losses(parts)
    ends = [read_model(max((folder / CHECKPOINTS).iterdir())) for folder in (whole, parts)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_two_gpus_learn_what_one_learns(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, "transformer-xl", steps=10)
    one = run(spec, tmp_path / "one")
    two = run(spec, tmp_path / "two", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert two["test"]["loss"] == pytest.approx(one["test"]["loss"], rel=2e-3)
