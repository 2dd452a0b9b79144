"""`benchmarks/gpu.py` without a GPU: it says so, pretends on the CPU, and keeps what it has when a part is cut off."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
WAITS = ("-c", "import time; print('begun', flush=True); time.sleep(600)")
OWN_SESSION = f"subprocess.Popen([sys.executable, '-c', {WAITS[1]!r}], start_new_session=True)"


@pytest.fixture(scope="module")
def gpu() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("gpu")


@pytest.fixture(scope="module")
def gpu_parts(gpu: Any) -> Any:
    return sys.modules["gpu_parts"]


def command(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """From a checkout that is not on Python's path, and without a GPU on any machine."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), "--out", str(out), *options],
        env={**environment, "CUDA_VISIBLE_DEVICES": ""},
        cwd=out.parent,
        capture_output=True,
        text=True,
    )


def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    done = command(tmp_path / "out")
    assert done.returncode == 2
    assert re.fullmatch(r"gpu.py: torch \S+ sees no NVIDIA GPU here; --pretend runs .*\n", done.stderr)
    assert done.stdout == ""


@pytest.mark.slow
def test_pretending_runs_tests_and_benchmarks_and_says_what_is_skipped(tmp_path: Path) -> None:
    out = tmp_path / "out"
    only = ("tests: recurrence", "recurrence")
    done = command(out, "--pretend", "--only", *only)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "gpu.json").read_text())
    rows = {row["part"]: row for row in report["parts"]}
    assert set(rows) == set(only)
    assert rows["tests: recurrence"]["state"] == "done", (out / "tests-recurrence.log").read_text()
    named = [figure["what"] for figure in rows["tests: recurrence"]["figures"]]
    assert named == [
        "passed",
        "skipped: test_a_gpu_has_the_triton_kernels",
        "skipped: test_values_and_gradients_follow_the_equations (32 cases)",
    ]
    assert rows["recurrence"]["state"] == "done", (out / "recurrence.log").read_text()
    assert len(rows["recurrence"]["figures"]) == 5
    table = (out / "gpu.md").read_text()
    assert table.strip().startswith("PRETENDED")
    assert "needs an NVIDIA GPU that torch sees" in table


def part(gpu_parts: Any, name: str, *command: str, **fields: Any) -> Any:
    given = {"seconds": 60.0, "needs": (), "goal": "ends", "read": lambda folder, output: [], **fields}
    return gpu_parts.Part(name, command, **given)


def test_a_part_over_its_limit_is_killed_and_the_report_goes_on(gpu: Any, gpu_parts: Any, tmp_path: Path) -> None:
    given = [
        part(gpu_parts, "waits", *WAITS),
        part(gpu_parts, "fails", "-c", "raise SystemExit('no such kernel | here')"),
        part(gpu_parts, "lacks", "-c", "", needs=("nothing_like_it",)),
        part(gpu_parts, "lacks another's", "-c", "import pytest, nothing_like_it.below"),
        part(gpu_parts, "lacks ours", "-c", "import edgefront.nothing_like_it"),
        part(gpu_parts, "ends", "-c", "print('done')"),
    ]
    rows = [
        gpu.outcome(each, (), 600.0, tmp_path, limit)
        for each, limit in zip(given, (0.5, 60, 0, *[60] * 3), strict=True)
    ]
    late = gpu.outcome(given[5], (), -1.0, tmp_path, 0.0)
    assert [row["state"] for row in [*rows, late]] == [
        "cut off after 0 s",
        "failed: exit code 1: no such kernel | here",
        "skipped: needs nothing_like_it, not here",
        "skipped: needs nothing_like_it, not here",
        "failed: exit code 1: ModuleNotFoundError: No module named 'edgefront.nothing_like_it'",
        "done",
        "not run: 0 s left, and it takes 60 s",
    ]
    gpu.write(tmp_path, {"gpus": [], "torch": "2", "python": "3", "pretended": False}, rows)
    table = [line for line in (tmp_path / "gpu.md").read_text().splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(given)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {8}
    assert len(json.loads((tmp_path / "gpu.json").read_text())["parts"]) == len(given)


def test_nothing_is_left_of_a_part_that_hangs(gpu: Any, gpu_parts: Any, tmp_path: Path) -> None:
    """Nor of one that ignores the request to end, whose child is in a session of its own, as a fork server is."""
    hangs = f"import signal, subprocess, sys, time; {OWN_SESSION}; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    row = gpu.outcome(part(gpu_parts, "hangs", "-c", f"{hangs}; {WAITS[1]}"), (), 60.0, tmp_path, 4.0)
    assert row["state"] == "cut off after 4 s"
    assert gpu.processes(tmp_path) == []
    assert "begun" in (tmp_path / "hangs.log").read_text()


def test_parts_that_hang_leave_time_to_those_after_them(gpu: Any, gpu_parts: Any, tmp_path: Path) -> None:
    """Each part is cut off at its share, and the last is not begun only where there is no time for it."""
    out = tmp_path / "out"
    made = [part(gpu_parts, name, *WAITS, seconds=seconds) for name, seconds in (("a", 3.0), ("b", 1.0), ("c", 100.0))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "parts", lambda _pretend: made)
        patch.setattr(
            gpu, "machine", lambda _out, _chosen, _seconds: {"torch": "2", "python": "3", "gpus": [], "here": []}
        )
        patch.setattr(sys, "argv", ["gpu.py", "--out", str(out), "--minutes", "0.1", "--pretend"])
        assert gpu.main() == 0
    states = {row["part"]: row["state"] for row in json.loads((out / "gpu.json").read_text())["parts"]}
    assert re.fullmatch(r"cut off after \d s", states["a"])
    assert re.fullmatch(r"cut off after \d s", states["b"])
    assert re.fullmatch(r"not run: \d s left, and it takes 100 s", states["c"])
    assert "and it takes 100 s" in (out / "gpu.md").read_text()


def test_all_parts_have_their_time_in_nine_minutes(gpu_parts: Any) -> None:
    made = gpu_parts.parts(False)
    assert sum(each.seconds for each in made) <= 9 * 60 - 15  # to see what is here
    loops = [each for each in made if gpu_parts.MINUTES in each.command]
    assert [each.name for each in loops] == ["find", "prediction"]
    find, prediction = loops
    assert " ".join(find.lasting(75.0).command).endswith("--minutes 0.50")
    assert "--minutes 0.10 " in " ".join(prediction.lasting(24.0).command)  # what is around it would take it all


@pytest.mark.parametrize("pretend", [False, True])
def test_every_option_of_a_part_is_one_of_its_program(gpu_parts: Any, pretend: bool) -> None:
    made = gpu_parts.parts(pretend)
    assert len({each.name for each in made}) == len(made)
    for each in made:
        files = [word for word in each.command if word.endswith(".py")]
        assert all((ROOT / file).is_file() for file in files), each.name
        if each.command[0] in files:
            program = (ROOT / files[0]).read_text()
            options = [word for word in each.command if word.startswith("--")]
            assert all(f'"{option}"' in program for option in options), (each.name, options)
            assert each.command[each.command.index("--device") + 1] == ("cpu" if pretend else "cuda")
