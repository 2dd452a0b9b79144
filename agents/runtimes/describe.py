"""`python -m agents.runtimes.describe RUNTIME`: what a runtime can do here, as JSON; it fails where there is none.

Run in a process of its own, since it loads the runtime and tries its providers.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

from agents.rulers import memory_methods

# Providers that run operators elsewhere than on this device.
_REMOTE = {"azure"}


def describe(runtime: str) -> dict[str, Any]:
    """Fields of `core.wire.agent.RuntimeFacts`."""
    return _pytorch() if runtime == "pytorch" else _onnxruntime()


def _pytorch() -> dict[str, Any]:
    import torch

    works = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return {
        "runtime": "pytorch",
        "version": str(torch.__version__),
        "providers": [name for name, present in works.items() if present],
        "memory_methods": memory_methods(allocator=works["cuda"], device=works["cuda"]),
    }


def _onnxruntime() -> dict[str, Any]:
    import onnxruntime

    from agents.runtimes.onnx_runtime import ON_NVIDIA, providers, works

    # A build lists what it was made with, whether or not the device has it.
    working = [name for name in providers() if name == "cpu" or (name not in _REMOTE and works(name))]
    return {
        "runtime": "onnxruntime",
        "version": onnxruntime.__version__,
        "providers": sorted(working),
        "memory_methods": memory_methods(allocator=False, device=bool(ON_NVIDIA & set(working))),
    }


def main(runtime: str) -> int:
    if importlib.util.find_spec({"pytorch": "torch"}.get(runtime, runtime)) is None:
        return 1
    sys.stdout.write(json.dumps(describe(runtime)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
