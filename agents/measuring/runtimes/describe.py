"""`python -m edgefront.agents.measuring.runtimes.describe RUNTIME PARENT`: the facts of a runtime on this device, as
JSON. It fails if the runtime is missing, or a provider does not compute in float32.

Run in a separate process, since it loads the runtime and tests its providers; it ends with its parent, whose process id
is `PARENT`. It prints a line of facts after every test of a number format: if a test crashes the process, the last line
is valid.
"""

from __future__ import annotations

import json
import sys
from typing import Any, get_args

from edgefront.agents.measuring.runtimes import library
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.runtimes import Runtime, not_installed
from edgefront.core.number_formats import NumberFormat
from edgefront.core.processes.child import die_with_parent
from edgefront.core.validation import one_of

# Providers that take minutes for each new graph: for these float32 only is assumed.
_SLOW = {"tensorrt"}


def describe(runtime: Runtime) -> dict[str, Any]:
    """Fields of `core.wire.agent.RuntimeFacts`, except `numbers`; its providers are not tested yet."""
    return {"runtime": runtime, **library(runtime).facts()}


def main(runtime: Runtime) -> int:
    if not_installed(runtime) is not None:
        return 1
    facts = describe(runtime)
    # A driver may crash: it comes last.
    here = sorted(facts["providers"], key=lambda name: not Provider(name).on_processor)
    numbers: dict[str, list[str]] = {name: ["float32"] for name in here if _always_computes(Provider(name))}
    facts |= {"providers": sorted(numbers), "numbers": numbers}
    _print(facts)
    from edgefront.agents.measuring.runtimes.trial import computes_in

    works = True
    for provider in here:
        if provider in _SLOW:
            continue
        for number in get_args(NumberFormat):
            passed = computes_in(number, runtime, provider)
            works = works and (passed or number != "float32")
            if passed and number not in numbers.setdefault(provider, []):
                numbers[provider].append(number)
                facts["providers"] = sorted(name for name, formats in numbers.items() if formats)
                _print(facts)
    return 0 if works else 1


def _always_computes(provider: Provider) -> bool:
    """Whether it computes in float32 whatever a test says, which fails on a full disk or a full GPU, too. Of any other,
    as OpenVINO's `gpu` and `npu`, only what passed is offered.
    """
    return provider.on_processor or provider.on_nvidia


def _print(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    sys.exit(main(one_of("runtime", sys.argv[1], get_args(Runtime))))
