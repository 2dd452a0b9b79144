"""Maps failures of a launch (one run of a model in a fresh process) to a `FailureReason`."""

from __future__ import annotations

import re
import signal

from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.states import LaunchOutcome
from edgefront.core.measurement.record import INFEASIBLE, FailureReason, LaunchResult

_MAX_MESSAGE = 4000
MAX_TAIL_BYTES = 500
"""Maximum bytes kept from the end of the output of a child that ended without a result."""
_ONNX_RUNTIME_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
"""Prefix of ONNX Runtime's messages."""
# Messages of failed allocations: C++, PyTorch on CPU and CUDA, ONNX Runtime on CPU, CUDA and TensorRT, llama.cpp, mmap.
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|can't allocate memory|cannot allocate memory|out ?of ?memory|failed to allocate|unable to allocate"
    r"|not enough memory|STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|memory allocation fail",
    re.IGNORECASE,
)


def failure(reason: FailureReason, message: str, **fields: object) -> LaunchResult:
    """Returns a result without figures: `infeasible` if memory or time did not suffice, otherwise `failed`."""
    outcome = LaunchOutcome.INFEASIBLE if reason in INFEASIBLE else LaunchOutcome.FAILED
    values = {"outcome": outcome, "reason": reason, "message": message[-_MAX_MESSAGE:], **fields}
    return LaunchResult.model_validate(values)


def reason_of(error: BaseException, stage: FailureReason) -> FailureReason:
    """Returns the failure reason for an exception of the runtime at `stage` (build_error or run_error)."""
    if isinstance(error, MeasurementError):
        reason: FailureReason = error.extra["reason"]
        return reason
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
        return "out_of_memory"
    return stage


def message_of(error: BaseException) -> str:
    """Returns the message of a runtime's exception, with the exception's class if the message is not informative."""
    message = _ONNX_RUNTIME_PREFIX.sub("", str(error)).strip()
    if isinstance(error, MemoryError):
        return message or "the runtime could not allocate memory"
    if not message or isinstance(error, (LookupError, AssertionError)):
        return f"{type(error).__name__} {message}".strip()
    return message


def of_child(answer: bytes | None, status: int, output_tail: str, oom_kills: int, limit_s: float) -> LaunchResult:
    """Returns the result of a child process that has ended.

    Args:
        answer: the child's result, empty if missing; None if the child was killed after the protocol's time limit
        `limit_s`.
        status: the child's exit code, or minus the signal that killed the child. output_tail: the end of the child's
        output. oom_kills: number of OOM kills by the kernel while the child ran.
    """
    if answer is None:
        return failure("over_time", f"loading the model and all passes exceeded the time limit of {limit_s:g} s")
    if status == 0 and answer:
        return LaunchResult.model_validate_json(answer)
    if status == -signal.SIGKILL and oom_kills > 0:
        return failure("out_of_memory", "the system ran out of memory and killed the measuring process")
    if _OUT_OF_MEMORY.search(output_tail):
        return failure("out_of_memory", f"the runtime ran out of memory: {output_tail}")
    how = f"ended with exit code {status} and no result"
    if status < 0:
        named = {number.value for number in signal.Signals}
        how = f"was killed by {signal.Signals(-status).name if -status in named else f'signal {-status}'}"
    return failure("crashed", f"the measuring process {how}" + (f": {output_tail}" if output_tail else ""))
