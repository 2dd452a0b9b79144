"""Micro-benchmarks of one core and of the GPU. The results limit the speed that a launch (one run of a model) can
plausibly report.

Each benchmark runs in its own process, so that the agent's process loads no linear algebra library. The core is tested
with one thread and NumPy, the GPU with PyTorch if PyTorch is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from edgefront.agents.device.cores import CorePlan, keep_to, numbers
from edgefront.agents.device.environment import child_environment
from edgefront.core.common.processes.child import python
from edgefront.core.common.processes.folders import work_folder
from edgefront.core.measurement.plausible import CORE_GB, CORE_GFLOPS, GPU_GB, GPU_GFLOPS, GPU_HALF_GFLOPS, MAX_MHZ
from edgefront.core.measurement.record import Fact
from edgefront.core.measurement.runtimes import not_installed

if TYPE_CHECKING:
    import torch

_SIZE = 512
_COPIED_BYTES = 32 << 20
_ROUNDS = 20
_GPU_SIZE, _GPU_COPIED_BYTES = 4096, 512 << 20
"""Size of the square matrices, several tiles for every multiprocessor of the largest GPUs; and number of copied bytes,
which exceeds GPU caches.
"""
_GPU_ROUND, _GPU_S = 4, 0.5
"""Calls between two timing events (several, to hide the launch time of one call); and duration of all rounds in seconds
(long, because an idle GPU raises its clock only under load).
"""
_GPU = "cuda"
_TIMEOUT_S = 60.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def kernel_facts(plan: CorePlan, *, gpu: bool = False) -> dict[str, Fact]:
    """Returns the benchmark results of the fastest measuring core, the highest clock of the measuring cores and, with
    `gpu`, the benchmark results of the GPU. Unknown values are left out.
    """
    facts: dict[str, Fact] = {MAX_MHZ: plan.max_mhz} if plan.max_mhz else {}
    # The agent's own core is the last one used for measuring: a slow one if the processor has two kinds.
    facts |= _answer(",".join(str(core) for core in plan.pinned(1)), dict.fromkeys(_ONE_THREAD, "1"))
    if gpu and not_installed("pytorch") is None:
        facts |= _answer(_GPU, {})
    return facts


def _answer(where: str, settings: dict[str, str]) -> dict[str, Fact]:
    """Runs the benchmark in a separate process and returns its results; empty if the benchmark fails."""
    with suppress(OSError, subprocess.SubprocessError, ValueError), work_folder() as temporary:
        answer = subprocess.run(
            python("edgefront.agents.device.kernel", where),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={**child_environment(temporary), **settings},
            check=True,
        )
        facts: dict[str, Fact] = json.loads(answer.stdout)
        return facts
    return {}


def core_reached() -> dict[str, float]:
    """Returns the highest speeds of one core in several rounds: 10⁹ float32 operations/s, and 10⁹ copied bytes/s."""
    import numpy as np

    left, right = (np.random.default_rng(seed).random((_SIZE, _SIZE), dtype=np.float32) for seed in (1, 2))
    source = np.zeros(_COPIED_BYTES // 8)
    target = np.ones_like(source)
    return {
        CORE_GFLOPS: round(2 * _SIZE**3 / _best_s(lambda: left @ right) / 1e9, 2),
        CORE_GB: round(2 * _COPIED_BYTES / _best_s(lambda: np.copyto(target, source)) / 1e9, 2),
    }


def gpu_reached(
    device: torch.device, size: int = _GPU_SIZE, copied_bytes: int = _GPU_COPIED_BYTES, seconds: float = _GPU_S
) -> dict[str, float]:
    """Returns the speeds of a GPU: 10⁹ operations/s in float32 (with TF32 if supported), 10⁹ operations/s in the faster
    of float16 and bfloat16, and 10⁹ bytes/s copied within the GPU. Leaves out a benchmark that fails, for example for
    lack of memory.
    """
    import torch

    def product(dtype: torch.dtype) -> float:
        left, right = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(left)
        return 2 * size**3 / _best_torch_s(lambda: torch.mm(left, right, out=out), device, seconds) / 1e9

    def copy() -> float:
        source = torch.zeros(copied_bytes, dtype=torch.uint8, device=device)
        target = torch.ones_like(source)
        return 2 * copied_bytes / _best_torch_s(lambda: target.copy_(source), device, seconds) / 1e9

    benchmarks: list[tuple[str, Callable[[], float]]] = [
        (GPU_GFLOPS, lambda: product(torch.float32)),
        (GPU_HALF_GFLOPS, lambda: product(torch.float16)),
        (GPU_HALF_GFLOPS, lambda: product(torch.bfloat16)),
        (GPU_GB, copy),
    ]
    reached: dict[str, float] = {}
    for name, measure in benchmarks:
        with suppress(RuntimeError):  # no memory, or no kernel
            reached[name] = max(reached.get(name, 0.0), round(measure(), 2))
    return reached


def _best_s(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def _best_torch_s(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Returns the seconds per call of `work` in the fastest round, timed on a GPU by the GPU's clock."""
    work()  # the first call loads the kernel
    best, end = float("inf"), float("inf")
    while True:
        taken = _cuda_s(work) if device.type == "cuda" else _round_s(work)
        best = min(best, taken / _GPU_ROUND)
        end = min(end, time.perf_counter() + seconds)
        if time.perf_counter() >= end:
            return best


def _cuda_s(work: Callable[[], object]) -> float:
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    _round_s(work)
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3


def _round_s(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    for _ in range(_GPU_ROUND):
        work()
    return time.perf_counter() - begun


def _gpus_reached() -> dict[str, float]:
    """Returns each benchmark's highest result over the visible GPUs, because a launch may run on any of these GPUs."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True  # ONNX Runtime uses TF32 by default
    reached: dict[str, float] = {}
    for number in range(torch.cuda.device_count()):
        with torch.cuda.device(number):
            found = gpu_reached(torch.device("cuda", number))
        reached |= {name: max(value, reached.get(name, 0.0)) for name, value in found.items()}
    return reached


if __name__ == "__main__":
    if sys.argv[1] == _GPU:
        answer = _gpus_reached()
    else:
        keep_to(numbers(sys.argv[1]))
        answer = core_reached()
    sys.stdout.write(json.dumps(answer))
