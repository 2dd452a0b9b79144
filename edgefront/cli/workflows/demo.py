"""`edgefront demo`: a whole search on this machine, in minutes."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.cli.commands.base import Session
from edgefront.cli.show import progress
from edgefront.cli.show.output import duration, print_json
from edgefront.cli.show.recommendation import show as show_recommendation
from edgefront.cli.workflows import up
from edgefront.client.client import Client
from edgefront.client.requests import find_request
from edgefront.core.common.errors import Conflict, EdgefrontError
from edgefront.core.common.files import whole_file
from edgefront.core.common.states import JobState
from edgefront.core.common.units import MB
from edgefront.core.common.validation import checked
from edgefront.core.schemas.candidates import FrontierView
from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.schemas.recommendations import RecommendationView
from edgefront.embedded.service import DEVICE, BrokenOff, EmbeddedService, own_home

if TYPE_CHECKING:
    from rich.console import Console

SPACE = "llama"
# Small enough that a launch takes about a second on a slow core, wide enough that shapes differ.
NARROW: dict[str, Any] = {
    "vocab_size": [8192],
    "n_layer": {"min": 2, "max": 8},
    "d_model": {"min": 128, "max": 512, "step": 64},
    "d_inner": {"min": 256, "max": 2048, "step": 128},
}
LIMITED_BY = 4
"""Layers of the stock model whose own latency and memory are the limits."""
TOKENS = 10_000_000_000
"""Of the training that predicted perplexities are for."""
PROTOCOL: dict[str, Any] = {"sequence_length": 64, "threads": 1}
TARGETS: Mapping[str, dict[str, Any]] = {
    "this CPU, ONNX Runtime": {"runtime": "onnxruntime"},
    "this CPU, llama.cpp": {"runtime": "llamacpp", "weights": "q8_0"},
}
# A few launches teach this CPU, and predictions of some thousand models are enough in so small a space.
SEARCH = {"initial": 8, "batch": 4, "population": 1000, "steps": 20}
# Above what the limiting model took, so that its next launches stay within; as much as its interval, within bounds.
_ROOM_MS, _ROOM_MB = (1.03, 1.1), 1.01
# Submission and the last reports take part of the minutes; the stock model may take up to half of the rest.
_RESERVE, _STOCK = 0.8, 0.5
_ONLINE_S = 90.0
MAX_DIFFERENCE = 1e-3
"""Log-probabilities that differ by less do so by rounding errors of float32."""


def run(session: Session, output: Path, *, once: bool, minutes: float, candidates: int, port: int | None) -> None:
    """Searches, shows, downloads and runs. With a terminal it stays up until Ctrl-C, unless `once`."""
    folder = DemoFolder(output)
    folder.prepare()
    stay = not once and sys.stdin.isatty() and sys.stdout.isatty()
    with (
        up.log_to(folder.service / "service.log", verbose=False),
        up.told_to_end() as ending,
        suppress(BrokenOff),
        EmbeddedService(folder.service, port=port, isolated=True, ending=ending) as service,
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
        """All of it, for people on `out`; the return value is the same for scripts."""
        self._say("Waiting for this machine's agent")
        end = time.monotonic() + _ONLINE_S
        while not up.agent_is_ready(self.client, self.service):
            if time.monotonic() > end:
                raise EdgefrontError(f"the agent did not start within {_ONLINE_S:g} s: see {self.service.agent_log}")
            if self.ending.wait(0.25):
                raise KeyboardInterrupt
        began = time.monotonic()
        self._say(f"Measuring {LIMITED_BY} layers of the stock model, SmolLM2's: what they take are the limits")
        stock = self._search(stock_request(minutes=minutes * _STOCK))
        limits = [limits_of(self.client.frontier(stock.id, target=target.id)) for target in stock.targets]
        self._say(f"Searching {SPACE}, small sizes, for the best model to train on {TOKENS / 1e9:g} billion tokens")
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
        ended = progress.show(self._until_told(progress.views(self.client, job.id)), self.out) or job
        if ended.state != JobState.FINISHED:
            why = "; ".join(f"{target.name}: {target.note}" for target in ended.targets if target.note)
            raise EdgefrontError(f"the search is {ended.state}: {ended.reason or why or 'see the log'}")
        return ended

    def _download_and_run(self, views: list[RecommendationView]) -> tuple[list[Path], float]:
        chosen = next(
            (candidate for view in views for candidate in (view.recommended, view.nearest) if candidate is not None),
            None,
        )
        if chosen is None:
            raise EdgefrontError("no candidate was measured, so there is no model to download; give --minutes more")
        paths = []
        for kind in ("onnx", "safetensors"):
            paths.append(self.client.models.download(chosen.id, kind, self.folder.models))
            self.out.print(f"  untrained model: {paths[-1]}", markup=False, soft_wrap=True)
        values, difference = compare(*paths)
        self.out.print(
            f"  ONNX Runtime and PyTorch agree on {values:,} log-probabilities within {difference:.1e}", soft_wrap=True
        )
        if difference >= MAX_DIFFERENCE:
            raise EdgefrontError(f"the outputs of the two files differ by {difference:.3g}")
        return paths, difference

    def _until_told(self, jobs: Iterator[JobView]) -> Iterator[JobView]:
        for job in jobs:
            if self.ending.is_set():
                raise KeyboardInterrupt
            yield job

    def _say(self, text: str) -> None:
        self.out.print(text, style="bold", markup=False, soft_wrap=True)


def compare(onnx_file: Path, safetensors_file: Path) -> tuple[int, float]:
    """Runs a language model from both files, by ONNX Runtime and by PyTorch, over the same 64 random tokens. Number of
    output values, and their largest difference.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # telemetry would upload from a thread that starts on import
    import numpy as np
    import onnxruntime
    import torch

    from edgefront.core.nn.weights import load_safetensors

    model = load_safetensors(safetensors_file)
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(0).integers(0, model.architecture.embedding.vocab_size, (1, 64), dtype=np.int64)
    (from_onnx,) = session.run(None, {"tokens": tokens})
    with torch.inference_mode():
        from_torch = model(torch.from_numpy(tokens), logits="all").numpy()
    return from_onnx.size, float(np.abs(from_onnx - from_torch).max())


def stock_request(*, minutes: float) -> JobRequest:
    """Measures the stock model at one depth, several launches: what the limits are taken from."""
    return checked(
        JobRequest,
        {
            "name": "demo: the stock model",
            "space": {"name": SPACE, "narrow": NARROW},
            "targets": _targets(),
            "algorithm": {"name": "random", "settings": {"population": 1}},
            "budget": {"candidates": 1, "minutes": round(minutes * _RESERVE, 2), "refinement": 1.0},
            "baseline_layers": [LIMITED_BY],
        },
    )


def limits_of(frontier: FrontierView) -> dict[str, float]:
    """What the stock model of `LIMITED_BY` layers takes, with some room."""
    if not frontier.baseline or not frontier.baseline[0].latency_ms:
        raise EdgefrontError(f"{frontier.target}: the stock model could not be measured; give --minutes more")
    stock = frontier.baseline[0]
    latency, half = stock.latency_ms or 0.0, stock.latency_half_width_ms or 0.0
    memory = (stock.memory_bytes or 0) / MB
    return {
        "latency_ms": round(latency * min(max(1 + half / latency, _ROOM_MS[0]), _ROOM_MS[1]), 1),
        "memory_mb": float(math.ceil(memory * _ROOM_MB)),
    }


def job_request(limits: Sequence[dict[str, float]], *, minutes: float, candidates: int) -> JobRequest:
    """The best model within these limits of each target, of small sizes."""
    return find_request(
        [{**target, "limits": one} for target, one in zip(_targets(), limits, strict=True)],
        space=SPACE,
        narrow=NARROW,
        budget={"candidates": candidates, "minutes": round(minutes * _RESERVE, 2)},
        name="demo",
        algorithm={"settings": SEARCH},
        train_tokens=TOKENS,
    )


def _targets() -> list[dict[str, Any]]:
    return [{"name": title, "device": DEVICE, "protocol": {**PROTOCOL, **own}} for title, own in TARGETS.items()]


_MARKER = ".edgefront-demo"


class DemoFolder:
    """`service/` (data of the embedded service), `models/`, and the picture.

    Files of an earlier demo are removed, so that all shown results are new. `Conflict` if the folder has any other
    files, or if a demo runs in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.service = path / "service"
        self.models = path / "models"
        self.picture = path / "frontier.png"

    def prepare(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise Conflict(f"{self.path} is a file: give another folder with --output")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not (self.path / _MARKER).exists():
                raise Conflict(
                    f"{self.path} contains other files, and the demo empties its folder: choose another one (--output)"
                )
            if self.service.is_dir():
                with own_home(self.service):  # another running demo must not lose its files
                    shutil.rmtree(self.service)
            shutil.rmtree(self.models, ignore_errors=True)
            self.picture.unlink(missing_ok=True)
        self.models.mkdir(parents=True, exist_ok=True)
        (self.path / _MARKER).touch()
