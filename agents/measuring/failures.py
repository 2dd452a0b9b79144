"""Maps failures of a launch to a `FailureReason`."""

from __future__ import annotations

import re
import signal

from edgefront.core.errors import MeasurementError
from edgefront.core.measurement.record import INFEASIBLE, FailureReason, LaunchResult
from edgefront.core.states import LaunchOutcome

_MAX_MESSAGE = 4000
_ONNX_RUNTIME_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
"""Prefix of ONNX Runtime's messages."""
# Messages of failed allocations: C++, PyTorch on CPU and CUDA, ONNX Runtime on CPU, CUDA and TensorRT, llama.cpp, mmap.
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|can't allocate memory|cannot allocate memory|out ?of ?memory|failed to allocate|unable to allocate"
    r"|not enough memory|STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|memory allocation fail",
    re.IGNORECASE,
)


def failure(reason: FailureReason, message: str, **fields: object) -> LaunchResult:
    """A result without figures; out of memory and over time are infeasible, all others failed."""
    outcome = LaunchOutcome.INFEASIBLE if reason in INFEASIBLE else LaunchOutcome.FAILED
    values = {"outcome": outcome, "reason": reason, "message": message[-_MAX_MESSAGE:], **fields}
    return LaunchResult.model_validate(values)


def out_of_time(limit_s: float) -> LaunchResult:
    """The result of a launch that was killed because it took longer than the protocol permits."""
    return failure("over_time", f"not done within the time limit of {limit_s:g} s for loading it and all passes")


def reason_of(error: BaseException, stage: FailureReason) -> FailureReason:
    """The reason for an exception of the runtime at `stage` (build_error or run_error)."""
    if isinstance(error, MeasurementError):
        reason: FailureReason = error.extra["reason"]
        return reason
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
        return "out_of_memory"
    return stage


def message_of(error: BaseException) -> str:
    """Message of an exception of the runtime, with its class only if the message alone would not tell enough."""
    message = _ONNX_RUNTIME_PREFIX.sub("", str(error)).strip()
    if isinstance(error, MemoryError):
        return message or "the runtime could not allocate memory"
    if not message or isinstance(error, (LookupError, AssertionError)):
        return f"{type(error).__name__} {message}".strip()
    return message


def of_death(status: int, output_tail: str, oom_kills: int) -> LaunchResult:
    """The result of a child that exited without a result.

    Args:
        status: its exit code, or minus the signal that killed it. output_tail: the end of its output. oom_kills: number
        of OOM kills by the kernel in the meantime.
    """
    if status == -signal.SIGKILL and oom_kills > 0:
        return failure("out_of_memory", "the system ran out of memory and killed the measuring process")
    if _OUT_OF_MEMORY.search(output_tail):
        return failure("out_of_memory", f"the runtime ran out of memory: {output_tail}")
    how = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with exit code {status} and no result"
    return failure("crashed", f"the measuring process {how}" + (f": {output_tail}" if output_tail else ""))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
