"""`Measurer`: runs launches (runs of a model) on this device, each launch in a fresh process.

On Linux CPUs the process is a fork of the runtime's fork server (`agents.measuring.forkserver`). On other systems, and
on GPUs, whose libraries do not survive a fork, a new process is started (`run_spawned`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

from edgefront.agents.device import linux
from edgefront.agents.device.cores import CorePlan
from edgefront.agents.device.environment import child_environment
from edgefront.agents.device.probe import try_runtime
from edgefront.agents.measuring.failures import MAX_TAIL_BYTES, failure, of_child
from edgefront.agents.measuring.forkserver import ForkServer, lock_path, only_measurement
from edgefront.agents.measuring.runtimes import GgufModel, LaunchRequest
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import EdgefrontError, InvalidInput
from edgefront.core.common.number_formats import GGUF_MAGIC
from edgefront.core.common.processes.child import python
from edgefront.core.common.processes.folders import CHILD, work_folder
from edgefront.core.common.processes.limits import available_memory_bytes
from edgefront.core.common.states import LaunchOutcome
from edgefront.core.measurement.generation import last_length
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.runtimes import Runtime, not_installed
from edgefront.core.model_files.formats import WeightCache, stored
from edgefront.core.model_files.gguf import cached_gguf
from edgefront.core.model_files.gguf_header import GgufHeader
from edgefront.core.schemas.agent import RuntimeFacts


def run_spawned(
    request: LaunchRequest, begun: Callable[[subprocess.Popen[bytes]], None], temporary: Path
) -> LaunchResult:
    """Starts a child process, waits for the child, and returns the launch's result. `begun` receives the child process,
    so that the caller can kill it early; `temporary` is the folder of the child's temporary files.

    The child reads the request from its standard input, which stays open while the child works. When this process ends,
    that standard input closes and the child exits.
    """
    with tempfile.TemporaryFile() as output_file:
        started, oom_kills_before = time.perf_counter(), _oom_kills()
        process = subprocess.Popen(
            python("edgefront.agents.measuring.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output_file,
            env=child_environment(temporary),
        )
        with process:
            begun(process)
            answer = _converse(process, request)
            status = process.wait()
        wall_s = time.perf_counter() - started
        size = output_file.seek(0, 2)
        output_file.seek(max(0, size - MAX_TAIL_BYTES))
        output_tail = output_file.read().decode(errors="replace").strip()
    result = of_child(answer, status, output_tail, _oom_kills() - oom_kills_before, request.protocol.time_limit_s)
    return result.model_copy(update={"wall_s": wall_s})


def _oom_kills() -> int:
    return linux.oom_kills() if sys.platform.startswith("linux") else 0


def _converse(process: subprocess.Popen[bytes], request: LaunchRequest) -> bytes | None:
    """Sends the request to the child and returns the child's standard output; None if the time limit passes first."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def kill_late() -> None:
        late.set()
        process.kill()

    limit = threading.Timer(request.protocol.time_limit_s, kill_late)
    limit.daemon = True
    limit.start()
    try:
        process.stdin.write(request.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.read()
    except BrokenPipeError:  # the child died at once; its exit status shows why
        answer = b""
    finally:
        limit.cancel()
        limit.join()
    return None if late.is_set() else answer


WAIT_S = 2.0


class Aborted(EdgefrontError):
    """Raised instead of returning a result if `Measurer.abort` aborted the launch."""

    kind = "aborted"


class Measurer:
    """Runs launches one at a time; a lock ensures that only one launch runs on this host at any time.

    Args:
        cache: folder of the weight cache, which grows to the largest measured size of each parameter.
        plan: the cores that measure; by default all that this process may use.
        memory_limit_bytes: memory limit of one launch; by default the system's available memory.
        lock: the host's lock file; by default the file that all agents of this host share.
        runtimes: runtimes whose number formats are known; another runtime is tested when a launch needs its number
        formats.
        waits: called in another thread when a launch has waited `WAIT_S` for another measurement on this host.
    """

    def __init__(
        self,
        cache: Path,
        plan: CorePlan | None = None,
        *,
        memory_limit_bytes: int | None = None,
        lock: Path | None = None,
        runtimes: Iterable[RuntimeFacts] = (),
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan or CorePlan.of_device()
        self._cache = WeightCache(cache)
        self._limit = memory_limit_bytes
        self._waits = waits
        self._lock = lock or lock_path()
        self._servers: dict[Runtime, ForkServer] = {}
        self._facts: dict[Runtime, RuntimeFacts | None] = {facts.runtime: facts for facts in runtimes}
        self._held = ExitStack()
        self._temporary: Path | None = None
        self._kill: Callable[[], None] | None = None
        self._aborted = threading.Event()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def measure(self, subject: Architecture | Path, protocol: MeasurementProtocol, seed: int) -> LaunchResult:
        """Runs one launch of an architecture, or of an unchanged ONNX or GGUF file.

        Failures of the model are returned as results, never raised: `infeasible` if this device has too little memory
        or is too slow, otherwise `failed` with a reason.

        Raises `Unavailable` if the disk of the weight cache is full, and `Aborted` after a call of `abort`.
        """
        refusal = self._refuse(subject, protocol)
        if refusal is not None:
            return refusal
        if isinstance(subject, Path):
            return self._measure_file(subject, protocol, seed)
        # Not in the child, because generating weights for the first time is not part of a launch.
        request = self._request(protocol, seed, architecture=subject.canonical)
        if protocol.runtime == "llamacpp":
            cached_gguf(self._cache, subject, seed, protocol.gguf_format)
            return self._launch(request)
        for spec in parameters(subject):
            for part, kind in stored(spec, protocol.dtype, protocol.weights, protocol.block_size):
                self._cache.file(part, seed, kind)
        return self._launch(request)

    def _measure_file(self, path: Path, protocol: MeasurementProtocol, seed: int) -> LaunchResult:
        try:
            header = read_file(path, protocol)
            if header is None:
                return self._launch(self._request(protocol, seed, onnx_file=path.absolute()))
            file = GgufModel(
                paths=tuple(part.absolute() for part in header.paths),
                vocab_size=header.vocab_size,
                keeps_state=header.keeps_state,
            )
        except InvalidInput as error:
            return failure("unsupported" if error.field in _CHOICES else "build_error", error.detail)
        refusal = self._refuse_memory(header.weight_bytes, protocol)
        return self._launch(self._request(protocol, seed, gguf_file=file)) if refusal is None else refusal

    def _request(self, protocol: MeasurementProtocol, seed: int, **subject: Any) -> LaunchRequest:
        return LaunchRequest(
            **subject,
            protocol=protocol,
            seed=seed,
            cache=self._cache.folder,
            cores=self.plan.pinned(protocol.threads),
            memory_limit_bytes=self._limit,
        )

    def abort(self) -> None:
        """Aborts the current launch at once or, if no launch is running, the next launch: `measure` raises `Aborted`.
        Thread-safe. Kills the fork server too; the next launch starts a new fork server.
        """
        self._aborted.set()
        kill = self._kill
        if kill is not None:
            kill()

    def close(self) -> None:
        """Stops the fork servers, and removes the temporary files of launches."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        self._held.close()
        self._temporary = None

    def _launch(self, request: LaunchRequest) -> LaunchResult:
        protocol = request.protocol
        result: LaunchResult | None = None
        waiting = threading.Timer(WAIT_S, self._waits)
        waiting.daemon = True
        try:
            if sys.platform.startswith("linux") and Provider(protocol.provider).on_processor:
                server = self._server(protocol.runtime)
                self._kill = server.kill
                if not self._aborted.is_set():
                    waiting.start()
                    result = server.launch(request, waiting.cancel)
            else:
                waiting.start()
                with only_measurement(self._lock):
                    waiting.cancel()
                    if not self._aborted.is_set():
                        result = run_spawned(request, self._killable, self._folder())
        finally:
            waiting.cancel()
            self._kill = None
            if result is None or result.outcome != LaunchOutcome.DONE:
                for left in self._folder().glob(f"{CHILD}*"):
                    shutil.rmtree(left, ignore_errors=True)
        if result is None or self._aborted.is_set():
            self._aborted.clear()
            raise Aborted("the launch was aborted")
        return result

    def _folder(self) -> Path:
        """Folder of the measuring processes' temporary files. The agent removes it, because a killed process cannot."""
        if self._temporary is None:
            self._temporary = self._held.enter_context(work_folder())
        return self._temporary

    def _killable(self, process: subprocess.Popen[bytes]) -> None:
        self._kill = process.kill
        if self._aborted.is_set():
            process.kill()

    def _server(self, runtime: Runtime) -> ForkServer:
        server = self._servers.get(runtime)
        if server is None or not server.alive:
            server = self._servers[runtime] = ForkServer(runtime, self._lock, self.plan.home(), self._folder())
        return server

    def _computes_in(self, protocol: MeasurementProtocol) -> bool:
        """Whether the runtime of the protocol computes in the number format of the protocol on this device. Each
        runtime is tested once, as in `agents.device.probe`.
        """
        if protocol.runtime not in self._facts:
            self._facts[protocol.runtime] = try_runtime(protocol.runtime)
        facts = self._facts[protocol.runtime]
        return facts is not None and protocol.number_format in facts.numbers.get(protocol.provider, ())

    def _refuse(self, subject: Architecture | Path, protocol: MeasurementProtocol) -> LaunchResult | None:
        """Returns a failed result if this device certainly cannot run the launch; None if the launch can be tried."""
        if protocol.threads > self.plan.count:
            why = f", by {self.plan.quota}" if self.plan.quota else ""
            return failure(
                "unsupported",
                f"cannot measure {protocol.threads} threads: only {self.plan.count} cores are available{why}",
            )
        missing = not_installed(protocol.runtime)
        if missing is not None:
            return failure("unsupported", missing)
        if isinstance(subject, Path):
            return None
        try:
            protocol_costs(subject, protocol)
        except InvalidInput as error:
            return failure("build_error", error.detail)
        if protocol.number_format != "float32" and not self._computes_in(protocol):
            return failure(
                "unsupported",
                f"{protocol.runtime} on {protocol.provider} does not support {protocol.number_format} on this device",
            )
        return self._refuse_memory(least_footprint_bytes(subject, protocol), protocol)

    def _refuse_memory(self, least: int, protocol: MeasurementProtocol) -> LaunchResult | None:
        """Returns an `infeasible` result if this device has less than `least` bytes of memory, else None."""
        if not Provider(protocol.provider).shares_host_memory:
            return None
        free = available_memory_bytes()
        bound = free if self._limit is None else min(free, self._limit)
        if least > bound:
            message = f"the model needs at least {least} bytes of memory, but only {bound} are available"
            return failure("out_of_memory", message)
        return None


_CHOICES = frozenset(MeasurementProtocol.model_fields)
"""Names of protocol fields. A refusal that names any other field is about the file."""


def least_footprint_bytes(architecture: Architecture, protocol: MeasurementProtocol) -> int:
    """Returns a lower bound of the bytes that any runtime needs: the weights and, except in mode forward, the cache."""
    costs = protocol_costs(architecture, protocol)
    return costs.weight_bytes + (0 if protocol.mode == "forward" else costs.state_bytes)


_BUILDS = {"dtype": "float32", "weights": "full"}
"""Protocol fields that select how an architecture is built → the only value that is allowed for a file."""


def read_file(path: Path, protocol: MeasurementProtocol) -> GgufHeader | None:
    """Returns the header of a GGUF file; None for any other file, which is treated as ONNX.

    Raises `InvalidInput` if the file does not allow a field of the protocol, or if a GGUF file is damaged or truncated.
    """
    header = None
    if _is_gguf(path):
        stat = path.stat()
        header = _header_of(path, stat.st_mtime_ns, stat.st_size)
    if header is None and protocol.runtime == "llamacpp":
        raise _fault(protocol, "runtime", "llama.cpp cannot run ONNX files; choose runtime onnxruntime", "onnxruntime")
    if header is not None and protocol.runtime != "llamacpp":
        raise _fault(protocol, "runtime", f"runtime {protocol.runtime} cannot run GGUF files; llamacpp can", "llamacpp")
    kind = "an ONNX" if header is None else "a GGUF"
    for field, only in (_BUILDS | {"mode": "forward"} if header is None else _BUILDS).items():
        if getattr(protocol, field) != only:
            chosen = getattr(protocol, field)
            why = f"{field} {chosen} needs an architecture: {kind} file is run unchanged"
            raise _fault(protocol, field, why, f"{only}, or the description of the model")
    if header is None or header.context_length is None:
        return header
    # llama.cpp allows as many tokens as the file declares, and needs room for one more after a prompt.
    length, most = last_length(protocol), header.context_length - (protocol.mode != "generate")
    if length > most:
        field = "memory_length" if protocol.memory_length else "sequence_length"
        why = f"{length} tokens in all, but {path.name} allows a context of {header.context_length}"
        raise _fault(protocol, field, f"{field}: {why}", f"at most {most} tokens in all")
    return header


@lru_cache(maxsize=4)
def _header_of(path: Path, _changed_ns: int, _size: int) -> GgufHeader:
    """Returns the header of a GGUF file, cached because each launch needs it and reading a vocabulary takes 0.3 s."""
    return GgufHeader(path)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def _fault(protocol: MeasurementProtocol, field: str, why: str, allowed: str) -> InvalidInput:
    return InvalidInput(why, field=field, value=getattr(protocol, field), allowed=allowed)
