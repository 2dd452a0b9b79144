"""`edgefront demo`: a whole search on this machine, in minutes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront import follow
from edgefront.client import Client
from edgefront.commands.base import Session
from edgefront.core.errors import EdgefrontError
from edgefront.core.wire.jobs import CandidateView, FrontierView, JobRequest, JobView
from edgefront.embedded.service import DEVICE, EmbeddedService
from edgefront.requests.jobs import parse_request
from edgefront.resources.models import ModelFormat
from edgefront.show import progress
from edgefront.show.output import duration, print_json
from edgefront.show.tables import frontier_table
from edgefront.workflows import up
from edgefront.workflows.agreement import Agreement, compare
from edgefront.workflows.demo_folder import DemoFolder

if TYPE_CHECKING:
    from rich.console import Console

# Small enough that a launch takes about a second on a slow core, wide enough that shapes differ.
NARROW: dict[str, Any] = {
    "n_layer": {"min": 2, "max": 8},
    "d_model": {"min": 128, "max": 512, "step": 64},
    "d_inner": {"min": 256, "max": 2048, "step": 64},
}
BASELINES = (1, 2, 4, 6, 8)
# With the output of every token, as the paper measures; its 192 tokens would take PyTorch too long here.
PROTOCOL: dict[str, Any] = {"sequence_length": 64, "logits": "all", "threads": 1}
POPULATION = {"parents": 2, "mutants": 4, "crossovers": 4}
# Submission and the last reports take part of the minutes.
_RESERVE = 0.9
_ONLINE_S = 90.0


def run(session: Session, output: Path, *, once: bool, minutes: float, candidates: int, port: int | None) -> None:
    """Searches, shows, downloads and runs. With a terminal it stays up until Ctrl-C, unless `once`."""
    folder = DemoFolder(output)
    folder.prepare()
    stay = not once and sys.stdin.isatty() and sys.stdout.isatty()
    with (
        up.log_to(folder.service / "service.log", verbose=False),
        up.told_to_end() as ending,
        EmbeddedService(folder.service, port=port, isolated=True) as service,
    ):
        out = session.err if session.json else session.out
        up.announce(session, service, out)
        with Client(service.url, service.key) as client:
            result = Demo(client, service, folder, out, ending).show(minutes=minutes, candidates=candidates)
        out.print(f"The live page: {up.login_link(service)}", markup=False, soft_wrap=True)
        if session.json:
            print_json(result)
        if stay:
            out.print("It stays up until Ctrl-C.")
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
        """Runs the demonstration, printing to `out`; returns the same results for scripts."""
        self._say("Waiting for this machine's agent")
        self._wait_for_agent()
        request = job_request(minutes=minutes, candidates=candidates)
        self._say(
            f"Searching {request.space.name} narrowed to small sizes for this CPU with ONNX Runtime and with PyTorch: "
            f"{candidates} candidates each beside the baseline, in at most {minutes:g} minutes"
        )
        self.out.print(
            f"  measured: one forward pass of {PROTOCOL['sequence_length']} tokens with the logits of all of them, "
            f"{PROTOCOL['threads']} thread",
            soft_wrap=True,
        )
        began = time.monotonic()
        job = self._search(request)
        self._say(f"Searched in {duration(time.monotonic() - began)}")
        self._say_what_is_missing(job, candidates, minutes)
        frontiers = [self.client.frontier(job.id, target=target.id) for target in job.targets]
        for frontier in frontiers:
            self.out.print(frontier_table(frontier))
        self._draw(job, frontiers)
        models, agreement = self._download_and_run(frontiers)
        self._say("Results of the search")
        for frontier in frontiers:
            self.out.print(f"  {frontier.target}: {frontier.summary}", markup=False, soft_wrap=True)
        self.out.print(
            "  Decoder parameters are the proxy for quality, as in the paper: they rank the whole space well, its best "
            "tenth less so. Nothing was trained.",
            style="dim",
            soft_wrap=True,
        )
        return {
            "job": self.client.jobs.get(job.id),
            "frontiers": frontiers,
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
        if ended.state != "finished":
            why = "; ".join(f"{target.name}: {target.note}" for target in ended.targets if target.note)
            raise EdgefrontError(f"the search is {ended.state}: {ended.reason or why or 'see the log'}")
        return ended

    def _say_what_is_missing(self, job: JobView, candidates: int, minutes: float) -> None:
        for target in job.targets:
            found = sum(
                1 for _ in self.client.candidates.list(job.id, target=target.id, role="search", state="measured")
            )
            if found < candidates:
                self.out.print(
                    f"  {target.name}: {found} of {candidates} candidates were measured in these {minutes:g} minutes: "
                    "this machine is slow or busy; give --minutes more",
                    style="yellow",
                    markup=False,
                    soft_wrap=True,
                )

    def _draw(self, job: JobView, frontiers: list[FrontierView]) -> None:
        from edgefront.show.picture import draw

        others = {target.id: list(self.client.candidates.list(job.id, target=target.id)) for target in job.targets}
        title = "Models for this CPU: the frontier beside the stock model"
        draw(frontiers, self.folder.picture, others=others, title=title)
        self._say(f"Drew {self.folder.picture}")

    def _download_and_run(self, frontiers: list[FrontierView]) -> tuple[list[Path], Agreement]:
        chosen = best_point(frontiers)
        if chosen is None:
            raise EdgefrontError("no candidate was measured, so there is no model to download; give --minutes more")
        self._say(f"Downloading {chosen.id} (untrained weights, from its seed)")
        paths = {}
        kinds: tuple[ModelFormat, ...] = ("onnx", "safetensors")
        for kind in kinds:
            paths[kind] = self.client.models.download(chosen.id, kind, self.folder.models)
            self.out.print(f"  {paths[kind]}", markup=False, soft_wrap=True)
        found = compare(paths["onnx"], paths["safetensors"])
        self.out.print(
            f"  ONNX Runtime and PyTorch on the same {found.tokens} tokens: the largest difference of "
            f"{found.values:,} log-probabilities is {found.largest_difference:.1e}"
        )
        if not found.holds:
            raise EdgefrontError(f"the outputs of the two files differ by {found.largest_difference:.3g}")
        return list(paths.values()), found

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


def job_request(*, minutes: float, candidates: int) -> JobRequest:
    """The demo's search: small sizes, two targets on this device, evolution in small generations."""
    return parse_request(
        {
            "name": "demo",
            "space": {"name": "lts-gpt2", "narrow": NARROW},
            "targets": [
                {"name": title, "device": DEVICE, "protocol": {**PROTOCOL, "runtime": runtime}}
                for title, runtime in (("this CPU, ONNX Runtime", "onnxruntime"), ("this CPU, PyTorch", "pytorch"))
            ],
            "algorithm": {"name": "lts", "settings": {"population": sum(POPULATION.values()), **POPULATION}},
            "budget": {"candidates": candidates, "minutes": minutes * _RESERVE, "refinement": 1.0},
            "baseline_layers": BASELINES,
        }
    )


def best_point(frontiers: list[FrontierView]) -> CandidateView | None:
    """The frontier model to download: better than the baseline in both latency and memory, then the largest."""

    def worth(point: CandidateView) -> tuple[float, int]:
        versus = point.versus_baseline
        ahead = 0.0 if versus is None or versus.extrapolated else min(versus.speedup, versus.memory_ratio)
        return ahead, point.decoder_parameters

    points = [point for frontier in frontiers for point in frontier.points]
    return max(points, key=worth, default=None)
