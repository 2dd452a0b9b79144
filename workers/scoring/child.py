"""Child process that scores models; reads requests on standard input and writes responses as lines of JSON.

    {"architecture": {…}, "proxy": "snip", "seed": 0, "settings": {…}, "device": "cpu", "data": null}
    {"value": 1.25}  or  {"reason": "why this model has no score"}

The child computes on one thread with low priority. When memory runs out, the system kills the child first, so the
parent process survives. The child exits when standard input closes, also in the middle of a score, and ignores signals
to the worker's process group, because an exit by a signal would look like a failure.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import EdgefrontError
from edgefront.core.common.processes.child import first_for_the_oom_killer
from edgefront.core.training.proxies.registry import ProxySettings
from edgefront.core.training.proxies.score import score


def main() -> None:
    """Answers requests from standard input until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of libraries now go to the log
    with suppress(OSError):
        os.nice(5)
    first_for_the_oom_killer()
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    while True:
        request = json.loads(asked.get())
        answers.write(json.dumps(answer(request)) + "\n")
        answers.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Computes the requested score, or returns the reason why the model has no score. Never raises."""
    proxy = str(request["proxy"])
    try:
        _one_thread(request["device"])
        settings = ProxySettings.parse(request["settings"])
        architecture = Architecture.parse(request["architecture"])
        data = None if request["data"] is None else Path(request["data"])
        return {"value": score(architecture, proxy, request["seed"], settings, request["device"], data)}
    except EdgefrontError as error:
        return {"reason": error.detail}
    except ModuleNotFoundError as error:
        return {"reason": f"{proxy} needs {error.name}, which is not installed where the workers run"}
    except MemoryError:
        return {"reason": f"memory ran out while {proxy} was computed"}
    except Exception as error:
        if _is_out_of_memory(error):
            return {"reason": f"memory ran out while {proxy} was computed"}
        traceback.print_exc()
        return {"reason": f"{proxy} cannot score this model: internal error ({type(error).__name__}), see the log"}


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out. torch has an exception class for the GPU; for the CPU, the message must be read."""
    text = str(error)
    return type(error).__name__ == "OutOfMemoryError" or "not enough memory" in text or "can't allocate memory" in text


def _one_thread(device: str) -> None:
    if device == "cpu" and "torch" not in sys.modules:
        with suppress(ModuleNotFoundError):
            import torch

            torch.set_num_threads(1)


def _read(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)  # the parent is gone


if __name__ == "__main__":
    main()
