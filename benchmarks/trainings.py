"""Trainings for benchmarks: each in a process of its own, some at a time, gone on with where a run before stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.training.journal import read_metrics
from edgefront.core.training.run_folder import EXIT_DONE, LOG, METRICS, RESULT, SPEC, RunSpec


def spec(
    architecture: Architecture,
    data: Path,
    recipe: Recipe,
    seed: int,
    threads: int = 1,
    device: Literal["cpu", "cuda"] = "cpu",
) -> RunSpec:
    """A training on this machine."""
    return RunSpec(
        architecture=dict(architecture.canonical),
        data=str(data),
        recipe=recipe.model_dump(mode="json"),
        seed=seed,
        threads=threads,
        device=device,
    )


def run_all(specs: Mapping[str, RunSpec], folder: Path, at_once: int = 1) -> dict[str, dict[str, Any]]:
    """Trains all of them, `at_once` together; what each left as `result.json`, with its seconds of training.

    A name's folder below `folder` keeps its run, so that what was done is not done again. Ends with what the log says
    where a training fails.
    """
    waiting = [name for name in specs if not (folder / name / RESULT / "result.json").exists()]
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name = waiting.pop(0)
                running[name] = _start(specs[name], folder / name)
            time.sleep(0.2)
            for name, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                if process.returncode != EXIT_DONE:
                    sys.exit(f"{name}: {(folder / name / LOG).read_text()[-2000:]}")
                left = len(waiting) + len(running)
                print(f"  {name} done, {left} left", file=sys.stderr, flush=True)
    finally:
        for process in running.values():
            process.kill()
    return {name: _result(folder / name) for name in specs}


def _start(spec: RunSpec, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SPEC).write_text(spec.model_dump_json(indent=1))
    with (folder / LOG).open("ab") as log:
        command = [sys.executable, "-m", "edgefront.core.run", str(folder)]
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / RESULT / "result.json").read_bytes())
    return {**found, "seconds": read_metrics(folder / METRICS)[-1].seconds}
