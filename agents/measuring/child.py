"""The measuring process: builds one model, runs it, and reports the result. Run as `python -m
edgefront.agents.measuring.child`.

Steps of a launch:

1. Build the model under the strict allocator, so that no freed memory is counted.
2. Run warm-up passes, still under the strict allocator: the high-water mark of two passes is the peak memory.
3. Time passes under the ordinary allocator with a heap as large as a pass needs, as in a long-running program, because
   the strict allocator causes page faults at every allocation.
"""

from __future__ import annotations

import gc
import os
import platform
import re
import resource
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from edgefront.agents.device import linux
from edgefront.agents.device.cores import SYSTEM, keep_to
from edgefront.agents.device.nvml import Gpu
from edgefront.agents.measuring import runtimes
from edgefront.agents.measuring.energy import EnergyMeter
from edgefront.agents.measuring.failures import failure, message_of, reason_of
from edgefront.agents.measuring.inputs import external_files
from edgefront.agents.measuring.memory_probes import PeakMemoryMeter, meter_for
from edgefront.agents.measuring.runtimes import GenerationTimes, Generator, LaunchRequest
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.processes.child import end_with_input, first_for_the_oom_killer
from edgefront.core.common.processes.limits import throttled_s
from edgefront.core.common.states import LaunchOutcome
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import (
    Fact,
    FailureReason,
    GenerationSamples,
    LatencySamples,
    LaunchResult,
)


def host_environment(cores: tuple[int, ...]) -> dict[str, Fact]:
    """Reads clock rates, temperature and other current values of the system; unavailable values are left out."""
    huge_pages = re.search(r"\[(\w+)\]", _text(Path("/sys/kernel/mm/transparent_hugepage/enabled")) or "")
    facts: dict[str, Fact | None] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": ",".join(str(core) for core in cores) or None,
        "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "clock_mhz": _clock_mhz(cores),
        "governor": _text(SYSTEM / f"cpu{cores[0] if cores else 0}" / "cpufreq" / "scaling_governor"),
        "temperature_c": _temperature_c(),
        "huge_pages": huge_pages[1] if huge_pages else None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def gpu_environment(provider: str) -> dict[str, Fact]:
    """Reads the current state of the GPU if the provider runs on an NVIDIA GPU; returns an empty result for other
    providers.

    Read right after the timed passes: clock rates rise under load, and fall soon after.
    """
    if not Provider(provider).on_nvidia:
        return {}
    try:
        return Gpu.visible(Provider(provider).number).facts()
    except MeasurementError:
        return {}


def _clock_mhz(cores: tuple[int, ...]) -> float | None:
    clocks = [_text(SYSTEM / f"cpu{core}" / "cpufreq" / "scaling_cur_freq") for core in cores]
    readable = [int(clock) for clock in clocks if clock and clock.isdigit()]
    return round(sum(readable) / len(readable) / 1000, 1) if readable else None


def _temperature_c() -> float | None:
    readings = [_text(zone / "temp") for zone in Path("/sys/class/thermal").glob("thermal_zone*")]
    readable = [int(reading) for reading in readings if reading and reading.lstrip("-").isdigit()]
    return round(max(readable) / 1000, 1) if readable else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


_ON_LINUX = sys.platform.startswith("linux")


class Generations:
    """Adapts a `Generator` to `Model`: a pass is one generation, timed by the latency that the protocol selects."""

    def __init__(self, generator: Generator, protocol: MeasurementProtocol) -> None:
        self._generator, self._protocol = generator, protocol
        self._made: list[GenerationTimes] = []
        self._meter: EnergyMeter | None = None
        self.versions, self.starts = generator.versions, generator.starts

    def begin(self, meter: EnergyMeter) -> None:
        """Discards the previous generations: `samples` and `meter` then cover later generations only."""
        self._made.clear()
        self._meter = meter

    def forward_ms(self) -> float:
        self._generator.prepare()
        with self._meter or nullcontext():
            made = self._generator.generate()
        self._made.append(made)
        times = {"total": sum(made), "first_token": made.first_ms, "token": self._each(made)}
        return times[self._protocol.latency]

    def finite(self) -> bool:
        return self._generator.finite()

    def samples(self) -> GenerationSamples:
        """Returns the times and the energy per token of the generations since `begin`."""
        assert self._meter is not None
        made, (joules, source) = self._made, self._meter.read()
        tokens = len(made) * self._protocol.new_tokens * self._protocol.batch
        return GenerationSamples(
            first_token_ms=tuple(generated.first_ms for generated in made),
            token_ms=tuple(self._each(generated) for generated in made),
            total_ms=tuple(sum(generated) for generated in made),
            energy_token_mj=None if joules is None else 1e3 * joules / tokens,
            energy=source,
        )

    def _each(self, made: GenerationTimes) -> float:
        return made.further_ms / (self._protocol.new_tokens - 1)


def launch(request: LaunchRequest) -> LaunchResult:
    """Runs a launch in this process, which should be fresh. Returns failures as results; raises no `Exception`."""
    gc.disable()
    started = time.perf_counter()
    stage: FailureReason = "build_error"
    try:
        _apply_limits(request)
        strict = _ON_LINUX and linux.strict_malloc()
        weight_places: tuple[Path, ...] = (request.cache,)
        if request.gguf_file is not None:
            weight_places = request.gguf_file.paths
        elif request.onnx_file is not None:
            weight_places = external_files(request.onnx_file)
        meter = meter_for(request.protocol, weight_places)
        runtimes.warm_up_device(request)
        meter.start()
        library = runtimes.library(request.protocol.runtime)
        model: runtimes.Model
        if request.protocol.mode == "generate":
            model = Generations(library.generator(request), request.protocol)
        else:
            model = library.build(request)
        meter.built()
        build_s = time.perf_counter() - started
        stage = "run_error"
        return _run(request, model, meter, build_s, strict)
    except Exception as error:
        environment = host_environment(request.cores) | {"exception": type(error).__name__}
        return failure(reason_of(error, stage), message_of(error), environment=environment)


def _run(
    request: LaunchRequest, model: runtimes.Model, meter: PeakMemoryMeter, build_s: float, strict: bool
) -> LaunchResult:
    protocol = request.protocol
    environment = host_environment(request.cores)
    environment["allocator"] = "glibc" if strict else "of the system"
    measuring = time.perf_counter()
    warmup_ms = [model.forward_ms() for _ in range(protocol.warmup)]
    memory = meter.read(model.starts)
    if strict:  # switch to the ordinary allocator, with a heap as large as a pass needs
        now = linux.resident()
        linux.ordinary_malloc()
        linux.grow_heap(max(0, now.high_water - now.total))
    if isinstance(model, Generations):
        model.begin(EnergyMeter(protocol.provider))
    disturbance = Disturbance(protocol)
    samples_ms = [model.forward_ms() for _ in range(protocol.repeats)]
    environment |= disturbance.facts()
    generation = model.samples() if isinstance(model, Generations) else None
    environment |= gpu_environment(protocol.provider) | model.versions
    measuring_s = time.perf_counter() - measuring
    if _ON_LINUX:
        environment["swapped_bytes"] = linux.resident().swapped
    fields: dict[str, Any] = {"environment": environment, "build_s": build_s, "measuring_s": measuring_s}
    if not model.finite():
        return failure("not_finite", "the model's output contains NaN or infinities", **fields)
    limit = request.memory_limit_bytes
    if limit is not None and memory.peak_bytes > limit:
        message = f"the model needs {memory.peak_bytes} bytes of memory, but the limit is {limit}"
        return failure("out_of_memory", message, **fields)
    latency = LatencySamples(warmup_ms=tuple(warmup_ms), samples_ms=tuple(samples_ms))
    return LaunchResult.model_validate(
        {"outcome": LaunchOutcome.DONE, "latency": latency, "memory": memory, "generation": generation, **fields}
    )


def _apply_limits(request: LaunchRequest) -> None:
    """Pins this process to the cores of the request and limits this process's memory."""
    keep_to(request.cores)
    # A GPU's driver reserves far more address space than a model needs; on GPUs only the measured peak is compared
    # with the limit.
    on_processor = Provider(request.protocol.provider).on_processor
    if _ON_LINUX and request.memory_limit_bytes is not None and on_processor:
        import resource

        bound = linux.private_data_bytes() + request.memory_limit_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


MAX_WAITED_SHARE = 0.1
"""Forward passes count as disturbed if they waited for a core for more than this share of their time."""
MIN_WAITED_S = 0.001
"""Maximum wait in seconds that is ignored: only other computing processes take a core for milliseconds."""
_TASKS = Path("/proc/self/task")


class Disturbance:
    """Measures how other processes on the same cores, and CPU quotas, disturb this process between the creation of this
    object and the call of `facts`.

    Linux counts for each thread how long it was ready to run without a core (`schedstat`). Waiting for an accelerator,
    a lock or a disk is not included, so the figure is comparable across runtimes, providers and numbers of threads. On
    other systems the CPU time of one thread is compared with the clock, for launches with one thread.

    Args:
        protocol: protocol of the forward passes that run in this period.
        tasks: the folder in which the system describes this process's threads.
    """

    def __init__(self, protocol: MeasurementProtocol, tasks: Path = _TASKS) -> None:
        self._protocol, self._tasks = protocol, tasks
        self._counts = _counts()
        self._throttled_s = throttled_s()
        self._waited_s = self._waited()
        self._began = time.perf_counter()

    def facts(self) -> dict[str, Fact]:
        """Returns the number of involuntary context switches and page faults, the mean share of time for which a thread
        waited for a core (if known), and a description of bad conditions (if any).
        """
        wall_s = time.perf_counter() - self._began
        waited_s = self._waited()
        if waited_s is not None and self._waited_s is not None:
            waited_s = max(0.0, waited_s - self._waited_s) / self._protocol.threads
        facts: dict[str, Fact] = {name: value - self._counts[name] for name, value in _counts().items()}
        if waited_s is not None:
            facts["waited_share"] = round(waited_s / wall_s, 4)
        if said := conditions(wall_s, waited_s or 0.0, throttled_s() - self._throttled_s):
            facts["conditions"] = said
        return facts

    def _waited(self) -> float | None:
        """Seconds for which this process's threads together have waited for a core; None if unknown."""
        waited = _run_queue_s(self._tasks)
        if waited is None and self._protocol.threads == 1 and Provider(self._protocol.provider).on_processor:
            waited = time.perf_counter() - time.process_time()
        return waited


def conditions(wall_s: float, waited_s: float, throttled_s: float) -> str:
    """Returns a description of the bad conditions of forward passes that took `wall_s`. The threads of the passes
    waited `waited_s` for a core; a CPU quota caused `throttled_s` of this waiting time.
    """
    said = [
        f"{what} {100 * seconds / wall_s:.0f} % of their time)"
        for what, seconds in (
            ("CPU quota (it stopped the passes for", throttled_s),
            ("other load (the passes waited for a core for", waited_s - throttled_s),
        )
        if seconds > max(MAX_WAITED_SHARE * wall_s, MIN_WAITED_S)
    ]
    return "; ".join(said)


def _run_queue_s(tasks: Path) -> float | None:
    """Seconds that all threads of this process together waited for a core; None if the kernel lacks the counters."""
    ran_ns = waited_ns = 0
    for thread in tasks.glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            ran, waited, _ = thread.read_text().split()
            ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
    return waited_ns / 1e9 if ran_ns else None


def _counts() -> dict[str, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"involuntary_switches": usage.ru_nivcsw, "minor_faults": usage.ru_minflt, "major_faults": usage.ru_majflt}


def main() -> None:
    """Reads a request from standard input, writes the launch's result to standard output, and exits without closing the
    runtime.
    """
    request = LaunchRequest.model_validate_json(sys.stdin.buffer.readline())
    answer = os.dup(1)
    os.dup2(2, 1)  # libraries must not print to the result's stream
    end_with_input()
    if _ON_LINUX:
        first_for_the_oom_killer()
    runtimes.library(request.protocol.runtime)
    said = launch(request).model_dump_json().encode()
    while said:
        said = said[os.write(answer, said) :]
    os._exit(0)


if __name__ == "__main__":
    main()
