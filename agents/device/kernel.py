"""A micro-benchmark of one core of this device, which says what it reaches: a ceiling for what its launches can claim.

It runs in a process of its own with one thread, so that the agent's process loads no library of matrix products.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from edgefront.agents.device.cores import CorePlan, keep_to, numbers
from edgefront.core.measurement.ceiling import CORE_GB, CORE_GFLOPS, MAX_MHZ
from edgefront.core.measurement.record import Fact

_SIZE = 512
_COPIED_BYTES = 32 << 20
_ROUNDS = 20
_TIMEOUT_S = 60.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def kernel_facts(plan: CorePlan) -> dict[str, Fact]:
    """What the benchmark reached on the fastest of the measuring cores, and their highest clock that the system
    reports; empty where neither is known.
    """
    facts: dict[str, Fact] = {MAX_MHZ: plan.max_mhz} if plan.max_mhz else {}
    # The agent itself is on a core that measures last: on a processor with two kinds, a slow one.
    fastest = ",".join(str(core) for core in plan.pinned(1))
    command = [sys.executable, "-m", "edgefront.agents.device.kernel", fastest]
    environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
    # Without an answer the processor's own bound holds.
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment, check=True
        )
        facts |= json.loads(answer.stdout)
    return facts


def reached() -> dict[str, float]:
    """10⁹ operations of float32, and 10⁹ bytes copied, a second, each the best of some rounds."""
    import numpy as np

    left, right = (np.random.default_rng(seed).random((_SIZE, _SIZE), dtype=np.float32) for seed in (1, 2))
    source = np.zeros(_COPIED_BYTES // 8)
    target = np.ones_like(source)
    return {
        CORE_GFLOPS: round(2 * _SIZE**3 / _best_s(lambda: left @ right) / 1e9, 2),
        CORE_GB: round(2 * _COPIED_BYTES / _best_s(lambda: np.copyto(target, source)) / 1e9, 2),
    }


def _best_s(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


if __name__ == "__main__":
    keep_to(numbers(sys.argv[1]))
    sys.stdout.write(json.dumps(reached()))
