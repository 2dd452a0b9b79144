"""How the compiled recurrence comes to run: its cache, forks of a fork server, and what is told without Numba."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numba import cfunc

from edgefront.core.nn.recurrence import cpu

ROOT = Path(__file__).parents[2]
STEP = """
import torch
from edgefront.core.nn.recurrence import prepare, sru_recurrence
def step():
    u, x, row = torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 8), torch.zeros(2, 8)
    u[:, :, 0] = 1  # half of it, then three quarters, are in the cell
    return sru_recurrence(u, x, row, row, row[:1])[1]
"""


def python(code: str, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs this in a process of its own, and expects it to end well."""
    settings = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=settings)
    assert done.returncode == 0, done.stderr
    return done


def stored(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.nb*")}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that a process has filled."""
    folder = tmp_path_factory.mktemp("numba")
    python(f"{STEP}\nprepare()", NUMBA_CACHE_DIR=folder)
    assert len(stored(folder)) == 2  # the index and the code of one entry
    return folder


@pytest.mark.parametrize("trouble", ["no folder can be made", "nothing can be written"])
def test_no_place_for_a_cache_is_no_trouble(tmp_path: Path, trouble: str) -> None:
    place, limit = tmp_path / "cache", ""
    if trouble == "no folder can be made":
        place.write_text("a file")
    else:
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    done = python(f"{limit}\n{STEP}\nassert step()[0, 0] == 0.75\nassert prepare() is None", NUMBA_CACHE_DIR=place)
    assert done.stderr == ""
    assert not stored(place)


def test_forks_of_a_prepared_parent_run_on_threads_and_its_code_is_the_kept_one(compiled: Path) -> None:
    """As the measuring agent's: the parent has one thread and has run no operator (`agents.measuring.forkserver`)."""
    code = """
import os, torch, traceback
from edgefront.core.nn.recurrence import cpu, plain, prepare
prepare()
assert len(os.listdir("/proc/self/task")) == 1
for _ in range(3):
    child = os.fork()
    if child == 0:
        try:
            torch.manual_seed(0)
            torch.set_num_threads(2)
            u, x = torch.randn(2, 64, 3, 1024), torch.randn(2, 64, 1024)
            v, b, cell = torch.randn(2, 1024) / 4, torch.randn(2, 1024), torch.randn(2, 1024)
            torch.testing.assert_close(
                cpu.forward(u, x, v, b, cell, None, True),
                plain.forward(u, x, v, b, cell, None, True),
                rtol=1e-4,
                atol=1e-4,
            )
            assert len(os.listdir("/proc/self/task")) >= 2
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""
    before = stored(compiled)
    python(code, OPENBLAS_NUM_THREADS="1", NUMBA_CACHE_DIR=compiled)
    assert stored(compiled) == before


def test_it_loads_neither_library_and_says_once_which_is_missing() -> None:
    code = f"""
import sys, edgefront.core.nn.recurrence
assert not {{"numba", "triton"}} & set(sys.modules)
sys.modules["numba"] = sys.modules["triton"] = None
{STEP}
from edgefront.core.nn.recurrence import backend, plain
for _ in range(2):
    prepare()
    assert step()[0, 0] == 0.75
    assert backend("cuda") is plain
"""
    without_numba, without_triton = python(code).stderr.splitlines()
    for words in ("which is slow", "Numba", "pip install 'edgefront-lm[cpu-fast]'"):
        assert words in without_numba
    assert re.search(r"on cuda, which is slow: .*triton", without_triton)


@pytest.mark.parametrize("entry", [cpu.forward_job, cpu.backward_job])
def test_features_are_worked_on_in_vectors(entry: object) -> None:
    """LLVM has made vectors of the loop over features, and needs no look at addresses before each run."""
    code = cfunc(cpu.JOB_ONLY, **cpu.OPTIONS)(entry).inspect_llvm()
    assert re.search(r"fdiv [a-z ]*<\d+ x float>", code)
    assert "memcheck" not in code
