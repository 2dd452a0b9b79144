"""`python -m edgefront.agents.measuring.runtimes.describe RUNTIME`: the facts of a runtime on this device, as JSON. It
fails if the runtime is missing.

Run in a separate process, since it loads the runtime and tests its providers. It prints a line of facts after every
test of a number format: if a test crashes the process, the last line is valid.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any, get_args

from edgefront.agents.measuring.rulers import memory_methods
from edgefront.agents.measuring.runtimes import ON_NVIDIA
from edgefront.core.measurement.protocol import Runtime
from edgefront.core.number_formats import KnownFormat

# Providers that do not run operators on this device.
_REMOTE = {"azure"}
# Providers that take minutes for each new graph: for these float32 only is assumed.
_SLOW = {"tensorrt"}


def describe(runtime: Runtime) -> dict[str, Any]:
    """Fields of `core.wire.agent.RuntimeFacts`, except `numbers`."""
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

    from edgefront.agents.measuring.runtimes.onnx_runtime import providers, works

    # A build lists its compiled providers, whether or not the device has them.
    working = [name for name in providers() if name == "cpu" or (name not in _REMOTE and works(name))]
    return {
        "runtime": "onnxruntime",
        "version": onnxruntime.__version__,
        "providers": sorted(working),
        "memory_methods": memory_methods(allocator=False, device=bool(ON_NVIDIA & set(working))),
    }


def main(runtime: Runtime) -> int:
    if importlib.util.find_spec({"pytorch": "torch"}.get(runtime, runtime)) is None:
        return 1
    facts = describe(runtime)
    _say(facts)
    from edgefront.agents.measuring.runtimes.trial import computes_in

    facts["numbers"] = {provider: ["float32"] for provider in facts["providers"]}
    for provider, found in facts["numbers"].items():
        for number in get_args(KnownFormat):
            if number not in found and provider not in _SLOW and computes_in(number, runtime, provider):
                found.append(number)
                _say(facts)
    return 0


def _say(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main("pytorch" if sys.argv[1] == "pytorch" else "onnxruntime"))
