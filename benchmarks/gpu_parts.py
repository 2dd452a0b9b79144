"""The parts that `gpu.py` runs, the most important first: each with its command, time, requirements, goal and figures.

Only the standard library is imported here: a part that needs a missing package is skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "-c", "/dev/null", "-o", "markers=gpu")
MEASURES = ("torch", "numpy", "pydantic", "psutil", "onnx", "filelock")
TRAINS = (*MEASURES, "safetensors", "tokenizers", "jinja2", "scipy")
SERVES = (
    *TRAINS,
    "typer",
    "rich",
    "httpx",
    "sqlalchemy",
    "celery",
    "fastapi",
    "uvicorn",
    "moocore",
    "sklearn",
)
MINUTES = "{minutes}"
"""Placeholder for a part's minutes in a command, which `Part.lasting` fills in."""


class Figure(NamedTuple):
    """A figure of a part; `met` states whether the figure reaches its goal, if there is one."""

    what: str
    value: str
    met: bool | None = None


Reader = Callable[[Path, str], list[Figure]]
"""Functions that compute figures from the folder of results (`record.append`) and the part's output."""


@dataclass(frozen=True)
class Part:
    """One child process of `gpu.py`."""

    name: str
    command: tuple[str, ...]
    """Arguments after the interpreter, run from the checkout's root; MINUTES is filled in."""
    seconds: float
    """Time limit in seconds of a nine-minute run; more if other parts need less or the run is longer."""
    needs: tuple[str, ...]
    goal: str
    read: Reader
    around: float = 0.0
    """Seconds of the part before and after the work that MINUTES limits."""

    def lasting(self, limit_s: float) -> Part:
        """Returns the part with the MINUTES that this limit leaves, at least a quarter of the limit."""
        minutes = f"{max(limit_s - self.around, limit_s / 4) / 60:.2f}"
        return replace(self, command=tuple(minutes if word == MINUTES else word for word in self.command))


def parts(pretend: bool) -> list[Part]:
    """Returns all parts; with `pretend` small versions on the CPU."""
    device = ("--device", "cpu" if pretend else "cuda")
    quick = ("--quick",) if pretend else ()
    training = ("benchmarks/bench_training.py", *device, *quick, "--rounds", "3", "--only")
    launches = "16" if pretend else "26"
    few = ("--launches", launches, "--minutes", MINUTES, "--splits", "2" if pretend else "20")
    predict = ("--here", "--runtimes", "pytorch", "--modes", "forward", "--spaces", "lts-gpt2", *few)
    return [
        _tests("recurrence", 40, ("torch", "triton")),
        _tests("measuring", 85, MEASURES),
        _tests("training", 45, TRAINS),
        Part(
            "find",
            ("benchmarks/gpu_find.py", *device, *quick, "--minutes", MINUTES),
            75,
            SERVES,
            "an answer; an anchor there; the kernels of the ceiling",
            _find,
            around=45,
        ),
        Part(
            "recurrence",
            ("benchmarks/bench_recurrence.py", *device, *quick, "--threads", "1"),
            20,
            ("torch", "numba") if pretend else ("torch", "triton"),
            "at least 60 % of the bandwidth",
            _recurrence,
        ),
        Part(
            "training",
            (*training, "gpt2"),
            55,
            (*MEASURES, "safetensors", "transformers"),
            "at least 1.2 times as fast as transformers, both with torch.compile",
            _training,
        ),
        Part(
            "training SRU++",
            (*training, "srupp"),
            25,
            (*MEASURES, "safetensors"),
            "4 to 5 times as fast as Transformer-XL",
            _training,
        ),
        Part(
            "prediction",
            ("benchmarks/bench_predict.py", *predict, *device, *quick),
            115,
            (*MEASURES, "scipy", "sklearn"),
            "20 launches: 1 to 3.5 % error",
            _prediction,
            around=20,
        ),
    ]


def _tests(name: str, seconds: float, needs: Sequence[str]) -> Part:
    file = f"tests/gpu/test_gpu_{name}.py"
    command = (*TESTS, "--rootdir", "tests/gpu", "--confcutdir", "tests/gpu", "-m", "gpu", file)
    return Part(f"tests: {name}", command, seconds, ("pytest", *needs), "all pass", _passed)


# What a part's figures are ------------------------------------------------------------------------------------------

_VERDICT = re.compile(r"^\S*?::(\S+(?: \S+)*?) (PASSED|FAILED|ERROR|SKIPPED)(?: \((.*)\))?\s*(?:\[ *\d+%\])?$", re.M)


def _passed(_: Path, output: str) -> list[Figure]:
    """Returns the number of passed tests, and the names of the other tests. An aborted run keeps its finished tests."""
    ended = [match.groups() for match in _VERDICT.finditer(output)]
    passed = sum(verdict == "PASSED" for _, verdict, _ in ended)
    counts: dict[tuple[str, str, str], int] = {}
    for test, verdict, why in ended:
        if verdict != "PASSED":  # the skipped cases of one test share one line
            key = (verdict.lower(), test.partition("[")[0] if verdict == "SKIPPED" else test, why or "")
            counts[key] = counts.get(key, 0) + 1
    figures = [Figure("passed", f"{passed} of {len(ended)}", passed > 0 or None)]
    for (verdict, test, why), count in counts.items():
        times = f" ({count} cases)" if count > 1 else ""
        figures.append(Figure(f"{verdict}: {test}{times}", why, None if verdict == "skipped" else False))
    return figures


def _find(results: Path, _: str) -> list[Figure]:
    found = last(results, "gpu_find")
    answer, anchors, reached = found["recommended"], found["anchors"], found["reached"]
    ceilings = ", ".join(f"{name} {value:g}" for name, value in reached.items())
    return [
        Figure("recommended", answer or "nothing within the limits", answer is not None),
        Figure("launches", str(found["launches"])),
        Figure("anchors on the device", str(len(anchors)), len(anchors) > 0),
        Figure("reached by the kernels of the ceiling", ceilings, {"gpu_gflops", "gpu_gb_per_s"} <= set(reached)),
    ]


def _recurrence(results: Path, _: str) -> list[Figure]:
    figures = []
    for row in lines(results, "bench_recurrence"):
        if "of the bandwidth" in row:
            share = row["of the bandwidth"]
            figures.append(Figure(f"{row['pass']} in {row['type']}, of the bandwidth", f"{share:.0%}", share >= 0.6))
        else:  # on a CPU: the speed-up over the plain operators
            name = f"{row['shape']}, {row['pass']}: plain / ours"
            figures.append(Figure(name, f"{row['plain / ours']:.3g}"))
    return figures


def _training(results: Path, _: str) -> list[Figure]:
    """Returns the speed-up of the last model over the first, to which `relative` refers."""
    figures = []
    for title, rows in last(results, "training").items():
        if not isinstance(rows, list):
            continue
        names = ["ours, compiled"] if title == "GPT-2" else [row["model"] for row in rows[1:]]
        goal = 1.2 if title == "GPT-2" else 4.0
        for row in rows:
            if row["model"] in names:
                times = 1 / row["relative"]
                figures.append(
                    Figure(f"{title}: {row['model']} over {rows[0]['model']}", f"{times:.2f} times", times >= goal)
                )
    return figures


def _prediction(results: Path, _: str) -> list[Figure]:
    figures = []
    for setting in last(results, "predict")["settings"]:
        for row in setting["rows"]:
            if row["error"] is not None:  # None: too few launches for this number
                text = f"{row['error']:.2%}, {row['held']:.0%} of the intervals hold"
                met = row["error"] <= 0.035 if row["launches"] == 20 else None
                figures.append(Figure(f"error from {row['launches']} launches", text, met))
    return figures or [Figure("error", "too few launches in its time")]


def lines(results: Path, name: str) -> list[dict[str, Any]]:
    """Returns the records of the benchmark of this name."""
    return [json.loads(line) for line in (results / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def last(results: Path, name: str) -> dict[str, Any]:
    """Returns the benchmark's latest record."""
    return lines(results, name)[-1]
