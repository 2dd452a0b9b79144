"""`edgefront demo`: runs a whole search on this machine in a few minutes."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.cli.session import Session
from edgefront.cli.workflows import up
from edgefront.client.client import Client
from edgefront.client.requests import find_request
from edgefront.client.show import progress
from edgefront.client.show.output import duration, print_json
from edgefront.client.show.recommendation import show as show_recommendation
from edgefront.core.common.errors import Conflict, EdgefrontError
from edgefront.core.common.files import whole_file
from edgefront.core.common.states import JobState
from edgefront.core.common.units import MB
from edgefront.core.common.validation import checked
from edgefront.core.schemas.candidates import FrontierView
from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.schemas.recommendations import RecommendationView
from edgefront.embedded.service import DEVICE, EmbeddedService, locked_home

if TYPE_CHECKING:
    from rich.console import Console

SPACE = "llama"
# Small enough for launches of about a second on a slow core, wide enough for different shapes.
NARROW: dict[str, Any] = {
    "vocab_size": [8192],
    "n_layer": {"min": 2, "max": 8},
    "d_model": {"min": 128, "max": 512, "step": 64},
    "d_inner": {"min": 256, "max": 2048, "step": 128},
}
STOCK_LAYERS = 4
"""Number of layers of the stock (default) model whose latency and memory become the limits."""
TRAIN_TOKENS = 10_000_000_000
"""Training budget, in tokens, for which the demo predicts perplexity."""
PROTOCOL: dict[str, Any] = {"sequence_length": 64, "threads": 1}
TARGETS: Mapping[str, dict[str, Any]] = {
    "this CPU, ONNX Runtime": {"runtime": "onnxruntime"},
    "this CPU, llama.cpp": {"runtime": "llamacpp", "weights": "q8_0"},
}
# In this small space few launches are enough to fit the predictor, and a few thousand predictions suffice.
SEARCH = {"initial": 8, "batch": 4, "population": 1000, "steps": 20}
_MIN_MARGIN, _MAX_MARGIN, _MEMORY_MARGIN = 1.03, 1.1, 1.01
"""Factors from the stock model's figures to the limits, so that its next launches stay within the limits."""
_SEARCH_SHARE, _STOCK_SHARE = 0.8, 0.5
"""Share of a job's minutes for its search (the rest is for submission and final reports), and share of the demo's
minutes for the job with the stock model.
"""
_ONLINE_S = 90.0
MAX_DIFFERENCE = 1e-3
"""Maximum difference of log-probabilities that float32 rounding explains."""


def run(session: Session, output: Path, *, once: bool, minutes: float, candidates: int, port: int | None) -> None:
    """Runs the demo. On a terminal the service stays up until Ctrl-C, unless `once`."""
    folder = DemoFolder(output)
    folder.prepare()
    stay = not once and sys.stdin.isatty() and sys.stdout.isatty()
    with (
        up.log_to(folder.service / "service.log", verbose=False),
        up.end_signal() as ending,
        EmbeddedService(folder.service, port=port, isolated=True) as service,
    ):
        out = session.err if session.json else session.out
        up.announce(session, service, out)
        with Client(service.url, service.key) as client:
            result = Demo(client, service, folder, out, ending).show(minutes=minutes, candidates=candidates)
        if session.json:
            print_json(result)
        if stay:
            out.print(f"The live page, until Ctrl-C: {up.login_link(service)}", markup=False, soft_wrap=True)
            ending.wait()


@dataclass(frozen=True)
class Demo:
    """One demonstration on a running service."""

    client: Client
    service: EmbeddedService
    folder: DemoFolder
    out: Console
    ending: threading.Event

    def show(self, *, minutes: float, candidates: int) -> dict[str, Any]:
        """Runs the demonstration. Prints the steps on `out` for people, and returns the results for scripts."""
        self._say("Waiting for this machine's agent")
        end = time.monotonic() + _ONLINE_S
        while not up.agent_is_ready(self.client, self.service):
            if time.monotonic() > end:
                raise EdgefrontError(f"the agent did not start within {_ONLINE_S:g} s: see {self.service.agent_log}")
            if self.ending.wait(0.25):
                raise KeyboardInterrupt
        began = time.monotonic()
        self._say(f"Measuring {STOCK_LAYERS} layers of the baseline, SmolLM2: its figures are the limits")
        stock = self._search(stock_request(minutes=minutes * _STOCK_SHARE))
        limits = [limits_of(self.client.frontier(stock.id, target=target.id)) for target in stock.targets]
        budget = f"{TRAIN_TOKENS / 1e9:g} billion tokens"
        self._say(f"Searching {SPACE}, small sizes, for the best model to train on {budget}")
        for title, limit in zip(TARGETS, limits, strict=True):
            words = f"  {title}: at most {limit['latency_ms']:g} ms and {limit['memory_mb']:g} MB"
            self.out.print(words, markup=False, soft_wrap=True)
        left = minutes - (time.monotonic() - began) / 60
        job = self._search(job_request(limits, minutes=max(left, minutes / 4), candidates=candidates))
        self._say(f"Searched in {duration(time.monotonic() - began)}: {self.service.url}/jobs/{job.id}")
        frontiers = [self.client.frontier(job.id, target=target.id) for target in job.targets]
        views = [self.client.jobs.recommendation(job.id, target=target.id) for target in job.targets]
        with whole_file(self.folder.picture) as file:
            self.client.jobs.get(job.id).plot().savefig(file, format="png", dpi=160, facecolor="white")
        self.out.print(f"  picture: {self.folder.picture}", markup=False, soft_wrap=True)
        models, difference = self._download_and_run(views)
        for view in views:
            show_recommendation(view, self.out)
        return {
            "job": self.client.jobs.get(job.id),
            "frontiers": frontiers,
            "recommendations": views,
            "picture": str(self.folder.picture),
            "models": [str(path) for path in models],
            "largest_difference": difference,
        }

    def _search(self, request: JobRequest) -> JobView:
        job = self.client.jobs.create(request)
        views = progress.views(lambda: self.client.jobs.get(job.id))
        ended = progress.show(self._until_interrupted(views), self.out) or job
        if ended.state != JobState.FINISHED:
            notes = "; ".join(f"{target.name}: {target.note}" for target in ended.targets if target.note)
            raise EdgefrontError(f"the search is {ended.state}: {ended.reason or notes or 'see the log'}")
        return ended

    def _download_and_run(self, views: list[RecommendationView]) -> tuple[list[Path], float]:
        candidates = [candidate for view in views for candidate in (view.recommended, view.nearest) if candidate]
        if not candidates:
            raise EdgefrontError("no candidate was measured, so there is no model to download; give --minutes more")
        paths = []
        for kind in ("onnx", "safetensors"):
            paths.append(self.client.models.download(candidates[0].id, kind, self.folder.models))
            self.out.print(f"  untrained model: {paths[-1]}", markup=False, soft_wrap=True)
        values, difference = compare(*paths)
        self.out.print(
            f"  ONNX Runtime and PyTorch agree on {values:,} log-probabilities within {difference:.1e}", soft_wrap=True
        )
        if difference >= MAX_DIFFERENCE:
            raise EdgefrontError(f"the outputs of the two files differ by {difference:.3g}")
        return paths, difference

    def _until_interrupted(self, jobs: Iterator[JobView]) -> Iterator[JobView]:
        for job in jobs:
            if self.ending.is_set():
                raise KeyboardInterrupt
            yield job

    def _say(self, text: str) -> None:
        self.out.print(text, style="bold", markup=False, soft_wrap=True)


def compare(onnx_file: Path, safetensors_file: Path) -> tuple[int, float]:
    """Runs a language model from its ONNX file with ONNX Runtime, and from its safetensors file with PyTorch, on the
    same 64 random tokens. Returns the number of output values, those of the last token, and the largest difference.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # set before the import, which starts the uploading thread
    import numpy as np
    import onnxruntime
    import torch

    from edgefront.core.nn.weights import load_safetensors

    model = load_safetensors(safetensors_file)
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(0).integers(0, model.architecture.embedding.vocab_size, (1, 64), dtype=np.int64)
    (from_onnx,) = session.run(None, {"tokens": tokens})
    with torch.inference_mode():
        from_torch = model(torch.from_numpy(tokens), logits="last").numpy()
    assert from_onnx.shape == from_torch.shape
    return from_onnx.size, float(np.abs(from_onnx - from_torch).max())


def stock_request(*, minutes: float) -> JobRequest:
    """Returns the request for a job that measures the stock model; `limits_of` derives the demo's limits from it."""
    return checked(
        JobRequest,
        {
            "name": "demo: the baseline",
            "space": {"name": SPACE, "narrow": NARROW},
            "targets": _targets(),
            "algorithm": {"name": "random", "settings": {"population": 1}},
            "budget": {"candidates": 1, "minutes": round(minutes * _SEARCH_SHARE, 2), "refinement": 1.0},
            "baseline_layers": [STOCK_LAYERS],
        },
    )


def limits_of(frontier: FrontierView) -> dict[str, float]:
    """Returns limits: latency and memory of the frontier's stock (default) model, plus a margin."""
    if not frontier.baseline or not frontier.baseline[0].latency_ms:
        raise EdgefrontError(f"{frontier.target}: the baseline could not be measured; give --minutes more")
    stock = frontier.baseline[0]
    latency, half = stock.latency_ms or 0.0, stock.latency_half_width_ms or 0.0
    memory = (stock.memory_bytes or 0) / MB
    return {
        "latency_ms": round(latency * min(max(1 + half / latency, _MIN_MARGIN), _MAX_MARGIN), 1),
        "memory_mb": float(math.ceil(memory * _MEMORY_MARGIN)),
    }


def job_request(limits: Sequence[dict[str, float]], *, minutes: float, candidates: int) -> JobRequest:
    """Returns the request for a job that searches the best small model within the limits for each target."""
    return find_request(
        [{**target, "limits": limit} for target, limit in zip(_targets(), limits, strict=True)],
        space=SPACE,
        narrow=NARROW,
        budget={"candidates": candidates, "minutes": round(minutes * _SEARCH_SHARE, 2)},
        name="demo",
        algorithm={"settings": SEARCH},
        train_tokens=TRAIN_TOKENS,
    )


def _targets() -> list[dict[str, Any]]:
    return [{"name": title, "device": DEVICE, "protocol": {**PROTOCOL, **own}} for title, own in TARGETS.items()]


_MARKER = ".edgefront-demo"


class DemoFolder:
    """The demo's output folder: `service/` (data of the embedded service), `models/`, and the frontier's picture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.service = path / "service"
        self.models = path / "models"
        self.picture = path / "frontier.png"

    def prepare(self) -> None:
        """Removes the files of an earlier demo. Raises `Conflict` if the folder has other files or is in use."""
        if self.path.exists() and not self.path.is_dir():
            raise Conflict(f"{self.path} is a file: give another folder with --output")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not (self.path / _MARKER).exists():
                raise Conflict(
                    f"{self.path} contains other files, and the demo empties its folder: choose another one (--output)"
                )
            if self.service.is_dir():
                with locked_home(self.service):  # another running demo must not lose its files
                    shutil.rmtree(self.service)
            shutil.rmtree(self.models, ignore_errors=True)
            self.picture.unlink(missing_ok=True)
        self.models.mkdir(parents=True, exist_ok=True)
        (self.path / _MARKER).touch()
