"""`edgefront demo`: a whole search on this machine, in minutes."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront import follow
from edgefront.client import Client
from edgefront.commands.base import Session
from edgefront.core.errors import EdgefrontError
from edgefront.core.states import JobState
from edgefront.core.units import MB
from edgefront.core.wire.candidates import FrontierView
from edgefront.core.wire.jobs import JobRequest, JobView
from edgefront.core.wire.recommendations import RecommendationView
from edgefront.embedded.service import DEVICE, BrokenOff, EmbeddedService
from edgefront.requests.find import find_request
from edgefront.requests.jobs import parse_request
from edgefront.resources.models import ModelFormat
from edgefront.show import progress
from edgefront.show.output import duration, print_json
from edgefront.show.recommendation import show as show_recommendation
from edgefront.show.tables import frontier_label, frontier_table
from edgefront.workflows import up
from edgefront.workflows.agreement import Agreement, compare

if TYPE_CHECKING:
    from rich.console import Console
import shutil

from edgefront.core.errors import Conflict
from edgefront.embedded.lock import own_home

SPACE = "lts-gpt2"
# Small enough that a launch takes about a second on a slow core, wide enough that shapes differ. The embedding is free.
NARROW: dict[str, Any] = {
    "n_layer": {"min": 2, "max": 8},
    "d_model": {"min": 128, "max": 512, "step": 64},
    "d_inner": {"min": 256, "max": 2048, "step": 64},
}
BASELINES = (1, 2, 4, 6, 8)
LIMITED_BY = 4
"""Layers of the stock model whose own latency and memory are the limits."""
# With the output of every token, as the paper measures; its 192 tokens would take PyTorch too long here.
PROTOCOL: dict[str, Any] = {"sequence_length": 64, "logits": "all", "threads": 1}
TARGETS = (("this CPU, ONNX Runtime", "onnxruntime"), ("this CPU, PyTorch", "pytorch"))
# A few launches teach this CPU, and predictions of some thousand models are enough in so small a space.
SEARCH = {"initial": 8, "batch": 4, "population": 1000, "steps": 20}
# Above what the limiting model took, so that its next launches stay within; as much as its interval, within bounds.
_ROOM_MS, _ROOM_MB = (1.03, 1.1), 1.01
# Submission and the last reports take part of the minutes; the stock model may take up to half of the rest.
_RESERVE, _STOCK = 0.8, 0.5
_ONLINE_S = 90.0


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
        self._wait_for_agent()
        began = time.monotonic()
        self._say(
            "Measuring the stock model, a GPT-2 with the same width in every layer, with ONNX Runtime and with PyTorch"
        )
        self.out.print(
            f"  measured: one forward pass of {PROTOCOL['sequence_length']} tokens with the logits of all of them, "
            f"{PROTOCOL['threads']} thread",
            soft_wrap=True,
        )
        stock = self._search(stock_request(minutes=minutes * _STOCK))
        limits = [limits_of(self.client.frontier(stock.id, target=target.id)) for target in stock.targets]
        self._say(
            f"Searching {SPACE}, narrowed to small sizes, for the best model within what {LIMITED_BY} layers take"
        )
        for (title, _), limit in zip(TARGETS, limits, strict=True):
            self.out.print(
                f"  {title}: at most {limit['latency_ms']:g} ms and {limit['memory_mb']:g} MB", soft_wrap=True
            )
        left = minutes - (time.monotonic() - began) / 60
        job = self._search(job_request(limits, minutes=max(left, minutes / 4), candidates=candidates))
        self._say(f"Searched in {duration(time.monotonic() - began)}")
        for target in job.targets:
            if target.note:
                self.out.print(f"  {target.name}: {target.note}", markup=False, soft_wrap=True, style="dim")
        frontiers = [self.client.frontier(job.id, target=target.id) for target in job.targets]
        for frontier in frontiers:
            self.out.print(frontier_table(frontier))
            if label := frontier_label(frontier):
                self.out.print(label, markup=False, soft_wrap=True)
        views = [self.client.jobs.recommendation(job.id, target=target.id) for target in job.targets]
        self._draw(job)
        models, agreement = self._download_and_run(views)
        self._say("Results of the search")
        self.out.print("Nothing was trained: perplexities are predicted.", style="dim")
        for view in views:
            show_recommendation(view, self.out)
        return {
            "job": self.client.jobs.get(job.id),
            "frontiers": frontiers,
            "recommendations": views,
            "picture": str(self.folder.picture),
            "models": [str(path) for path in models],
            "largest_difference": agreement.largest_difference,
        }

    def _wait_for_agent(self) -> None:
        end = time.monotonic() + _ONLINE_S
        while not up.agent_is_ready(self.client, self.service):
            if time.monotonic() > end:
                raise EdgefrontError(f"the agent did not start within {_ONLINE_S:g} s: see {self.service.agent_log}")
            self._pause(0.25)

    def _search(self, request: JobRequest) -> JobView:
        job = self.client.jobs.create(request)
        self.out.print(f"  {self.service.url}/jobs/{job.id}", markup=False, soft_wrap=True)
        ended = progress.show(self._until_told(follow.views(self.client, job.id)), self.out) or job
        if ended.state != JobState.FINISHED:
            why = "; ".join(f"{target.name}: {target.note}" for target in ended.targets if target.note)
            raise EdgefrontError(f"the search is {ended.state}: {ended.reason or why or 'see the log'}")
        return ended

    def _draw(self, job: JobView) -> None:
        from edgefront.show.picture import save

        save(self.client.jobs.get(job.id).plot(), self.folder.picture)
        self._say(f"Drew {self.folder.picture}")

    def _download_and_run(self, views: list[RecommendationView]) -> tuple[list[Path], Agreement]:
        chosen = next(
            (candidate for view in views for candidate in (view.recommended, view.nearest) if candidate is not None),
            None,
        )
        if chosen is None:
            raise EdgefrontError("no candidate was measured, so there is no model to download; give --minutes more")
        self._say(f"Downloading {chosen.id} (untrained weights, from its seed)")
        paths = {}
        kinds: tuple[ModelFormat, ...] = ("onnx", "safetensors")
        for kind in kinds:
            paths[kind] = self.client.models.download(chosen.id, kind, self.folder.models)
            self.out.print(f"  {paths[kind]}", markup=False, soft_wrap=True)
        agreement = compare(paths["onnx"], paths["safetensors"])
        self.out.print(
            f"  ONNX Runtime and PyTorch on the same {agreement.tokens} tokens: the largest difference of "
            f"{agreement.values:,} log-probabilities is {agreement.largest_difference:.1e}"
        )
        if not agreement.holds:
            raise EdgefrontError(f"the outputs of the two files differ by {agreement.largest_difference:.3g}")
        return list(paths.values()), agreement

    def _until_told(self, jobs: Iterator[JobView]) -> Iterator[JobView]:
        for job in jobs:
            if self.ending.is_set():
                raise KeyboardInterrupt
            yield job

    def _pause(self, seconds: float) -> None:
        if self.ending.wait(seconds):
            raise KeyboardInterrupt

    def _say(self, text: str) -> None:
        self.out.print(text, style="bold", markup=False, soft_wrap=True)


def stock_request(*, minutes: float) -> JobRequest:
    """Measures the stock model alone, several launches of each depth: what the limits are taken from."""
    return parse_request(
        {
            "name": "demo: the stock model",
            "space": {"name": SPACE, "narrow": NARROW},
            "targets": _targets(),
            "algorithm": {"name": "random", "settings": {"population": 1}},
            "budget": {"candidates": 1, "minutes": round(minutes * _RESERVE, 2), "refinement": 1.0},
            "baseline_layers": BASELINES,
        }
    )


def limits_of(frontier: FrontierView) -> dict[str, float]:
    """What the stock model of `LIMITED_BY` layers takes, or the deepest that was measured below it, with some room."""
    depths = sorted(
        (point for point in frontier.baseline if point.latency_ms), key=lambda point: point.decoder_parameters
    )
    fitting = [depth for depth in depths if len(depth.architecture["blocks"]) <= 2 * LIMITED_BY]
    if not fitting:
        raise EdgefrontError(f"{frontier.target}: the stock model could not be measured; give --minutes more")
    latency, half = fitting[-1].latency_ms or 0.0, fitting[-1].latency_half_width_ms or 0.0
    memory = (fitting[-1].memory_bytes or 0) / MB
    return {
        "latency_ms": round(latency * min(max(1 + half / latency, _ROOM_MS[0]), _ROOM_MS[1]), 1),
        "memory_mb": float(math.ceil(memory * _ROOM_MB)),
    }


def job_request(limits: Sequence[dict[str, float]], *, minutes: float, candidates: int) -> JobRequest:
    """The best model within these limits of each target: small sizes, the embedding free."""
    return find_request(
        [{**target, "limits": one} for target, one in zip(_targets(), limits, strict=True)],
        space=SPACE,
        narrow=NARROW,
        budget={"candidates": candidates, "minutes": round(minutes * _RESERVE, 2)},
        others={"name": "demo", "algorithm": {"settings": SEARCH}, "baseline_layers": BASELINES},
    )


def _targets() -> list[dict[str, Any]]:
    return [
        {"name": title, "device": DEVICE, "protocol": {**PROTOCOL, "runtime": runtime}} for title, runtime in TARGETS
    ]


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
