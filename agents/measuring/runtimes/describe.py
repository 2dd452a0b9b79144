"""`python -m edgefront.agents.measuring.runtimes.describe RUNTIME PARENT` prints version, providers and number formats
of a runtime on this device as JSON, or nothing if the runtime is missing.

The command is a separate process because it loads the runtime and tests the runtime's providers. It ends when the
process with id `PARENT` ends. It prints a complete line of JSON after every test of a number format, so that the final
line is valid even if a test crashes the process.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from edgefront.agents.measuring.runtimes import LaunchRequest, library
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.number_formats import QUANTISED, NumberFormat
from edgefront.core.common.processes.child import die_with_parent
from edgefront.core.common.processes.folders import CHILD
from edgefront.core.common.validation import one_of
from edgefront.core.measurement.passes import runtime_fault
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.runtimes import Runtime, not_installed

_MODELS = tuple(
    map(Architecture.parse, json.loads(files(__package__).joinpath("tried_models.json").read_text("utf-8")))
)
"""Small models with every kind of block and of positions."""


def computes_in(number_format: NumberFormat, runtime: Runtime, provider: str) -> bool:
    """Tests whether the runtime's provider computes in this number format. The provider stays loaded afterwards."""
    choice = {"weights" if number_format in QUANTISED else "dtype": number_format}
    try:
        protocol = MeasurementProtocol(
            runtime=runtime, provider=provider, sequence_length=8, memory="resident", **choice
        )
    except ValidationError:  # not a format of this runtime
        return False
    with tempfile.TemporaryDirectory(prefix=CHILD) as folder:
        return all(
            library(runtime).computes_in(
                number_format,
                LaunchRequest(architecture=model.canonical, protocol=protocol, seed=0, cache=Path(folder)),
            )
            for model in _MODELS
            if runtime_fault(model, protocol) is None
        )


# Providers that take minutes for each new graph: for these float32 only is assumed.
_SLOW = {"tensorrt"}


def describe(runtime: Runtime) -> dict[str, Any]:
    """Returns the fields of `core.schemas.agent.RuntimeFacts` except `numbers`, as no number format is tested."""
    return {"runtime": runtime, **library(runtime).facts()}


def main(runtime: Runtime) -> None:
    if not_installed(runtime) is not None:
        return
    facts = describe(runtime)
    # GPU providers come last because a driver may crash.
    here = sorted(facts["providers"], key=lambda name: not Provider(name).on_processor)
    # These always compute in float32; a test could fail because of a full disk or a full GPU. Other providers, such as
    # OpenVINO's `gpu` and `npu`, offer only the formats that passed the test.
    sure = [name for name in here if Provider(name).on_processor or Provider(name).on_nvidia]
    numbers: dict[str, list[str]] = {name: ["float32"] for name in sure}
    facts |= {"providers": sorted(numbers), "numbers": numbers}
    _print(facts)
    for provider in here:
        if provider in _SLOW:
            continue
        for number in get_args(NumberFormat):
            passed = computes_in(number, runtime, provider)
            if passed and number not in numbers.setdefault(provider, []):
                numbers[provider].append(number)
                facts["providers"] = sorted(name for name, formats in numbers.items() if formats)
                _print(facts)


def _print(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    main(one_of("runtime", sys.argv[1], get_args(Runtime)))
