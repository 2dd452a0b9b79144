"""The agent on an aarch64 board that is not here: installed in a Debian root, run under emulation, against a service.

    make arm                                   # into arm-output/; as root; 17 minutes the first time
    .venv/bin/python benchmarks/arm.py --out FOLDER [--torch 'torch==2.10.*'] [--processor cortex-a76]

It is installed from the index's aarch64 wheels as `docs/devices.md` says, enrols with a service of this process, says
what it is, measures a job of five candidates for each runtime and format, and drains. What models compute there is
compared with what they compute here. Times are the emulator's and mean nothing: none is shown. `FOLDER/arm.md` and
`arm.json` have the result. It needs root, and Debian's debootstrap and qemu-user-static, and changes nothing here but
an entry of binfmt_misc, which it withdraws.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from arm_root import FAST_CORE, PROCESSOR, PROJECT, Root, check_tools, emulation
from format_outputs import error
from record import append, markdown

from edgefront.agents.measuring.measure import Measurer
from edgefront.client import Client
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import ENDED_JOBS, CandidateRole
from edgefront.core.wire.agent import DeviceFacts
from edgefront.core.wire.candidates import CandidateView
from edgefront.embedded.service import EmbeddedService

TORCH = "torch==2.10.*"
"""The last whose wheel for aarch64 on the package index has no CUDA: later ones bring gigabytes of it."""
ENVIRONMENT = "/agent-env"
PYTHON, PIP, AGENT = (f"{ENVIRONMENT}/bin/{name}" for name in ("python", "pip", "edgefront"))
DEVICE, CANDIDATES = "board", 5
FORMATS = {"onnxruntime": ("full", "int8"), "pytorch": ("full", "int8"), "llamacpp": ("full", "q8_0")}
NARROW = {"n_layer": [2, 3], "d_model": [128], "d_inner": [256, 384], "vocab_size": [8192]}
PROTOCOL = {"sequence_length": 16, "warmup": 1, "repeats": 3, "max_launches": 1, "time_limit_s": 300.0}
WAIT_S = 1800.0
EMULATOR_BYTES = 64e6
"""What the emulator adds to peak memory at most, with code that it has translated."""
EXACT = 1e-5
"""Relative difference of logits in float32 that another order of additions may make."""

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the result; keeps the root for the next run")
    parser.add_argument("--torch", default=TORCH, help=f"which torch to install (default: {TORCH})")
    parser.add_argument("--processor", default=PROCESSOR, help=f"which processor qemu emulates (default: {PROCESSOR})")
    options = parser.parse_args()
    check_tools()
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with emulation():
        root = Root(out / "root", options.processor)
        say("a Debian root for aarch64")
        root.create()
        installed = install(root, options.torch)
        say("what models compute, here and there")
        outputs = compare(root, out)
        say("a job")
        device, targets = job(root, out)
    tables = {
        f"What the agent says of a {options.processor} whose /sys has a core of 1,800 and one of 2,400 MHz": device,
        "A job of five candidates for each runtime and format; peak memory, MB": targets,
        "What models compute: this machine's processor against the emulated one": outputs,
    }
    text = "".join(markdown(title, rows) for title, rows in tables.items())
    print(text)
    result = {"emulated": options.processor, "installed": installed, **tables}
    (out / "arm.md").write_text(f"# The agent on aarch64, emulated\n{text}")
    (out / "arm.json").write_text(json.dumps(result, indent=1) + "\n")
    append("arm", result)
    sys.exit(any(row["holds"] is False for row in (*outputs, *targets)))


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what} ...", flush=True)


def install(root: Root, torch: str) -> dict[str, str]:
    """The agent and its runtimes as `docs/devices.md` says; what came, by name."""
    root.copy_project()
    root.run("python3", "-m", "venv", ENVIRONMENT)
    say("the agent with ONNX Runtime")
    root.run(PIP, "install", "-q", "-c", "constraints.txt", ".[agent]")
    say(f"llama.cpp and {torch}")
    root.run("sh", "-c", "sed '/^torch==/d;/^triton==/d' constraints.txt > board.txt")
    root.run(PIP, "install", "-q", "-c", "board.txt", ".[agent,torch,cpu-fast,llamacpp]", torch)
    listed = json.loads(root.run(PIP, "list", "--format=json"))
    names = ("onnxruntime", "torch", "xllamacpp", "numpy", "onnx")
    return {entry["name"]: entry["version"] for entry in listed if entry["name"] in names}


def compare(root: Root, out: Path) -> list[Row]:
    """Of each format the largest relative difference of logits, beside what the format itself changes of float32."""
    script = "benchmarks/arm_outputs.py"
    subprocess.run([sys.executable, script, out / "here.npz"], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    root.run(PYTHON, script, "/there.npz")
    here, there = np.load(out / "here.npz"), np.load(root.folder / "there.npz")
    differences: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name in there.files:
        model, format_ = name.rsplit("/", 1)
        if there[name].dtype == np.uint8:
            differences[format_].append((float(not np.array_equal(there[name], here[name])), 0.0))
            continue
        exact = here[f"{model}/onnxruntime float32"]
        promise = EXACT if format_ in ("onnxruntime float32", "pytorch float32") else error(here[name], exact)
        differences[format_].append((error(there[name], here[name]), promise))
    return [
        {
            "format": format_,
            "models": len(pairs),
            "largest difference": max(difference for difference, _ in pairs),
            "may differ by": max(promise for _, promise in pairs),
            "holds": all(difference <= promise for difference, promise in pairs),
        }
        for format_, pairs in differences.items()
    ]


def job(root: Root, out: Path) -> tuple[list[Row], list[Row]]:
    """The device's facts, and a row for each runtime and format."""
    shutil.rmtree(out / "service", ignore_errors=True)
    with (
        EmbeddedService(out / "service", port=0, agent=False, isolated=True) as service,
        Client(service.url, service.key) as client,
        agent(root, out, service.url, client.tokens.create(name=DEVICE).token or "") as process,
    ):
        until(lambda: any(device.name == DEVICE and device.online for device in client.devices.list()), process)
        say("measuring")
        facts = client.devices.get(DEVICE).facts
        made = client.jobs.create(request("on aarch64", FORMATS))
        until(lambda: client.jobs.get(made.id).state in ENDED_JOBS, process)
        targets = client.jobs.get(made.id).targets
        rows = [measured(client, made.id, target.name, target.protocol, out / "weights") for target in targets]
        drained = drain(client, process)
    return [*described(facts), drained], rows


def request(name: str, formats: Mapping[str, Sequence[str]], **protocol: Any) -> dict[str, Any]:
    """A job of five candidates and a stock model for each runtime and format."""
    targets = [
        {
            "name": f"{runtime} {weights}",
            "device": DEVICE,
            "protocol": {**PROTOCOL, **protocol, "runtime": runtime, "weights": weights},
        }
        for runtime, choices in formats.items()
        for weights in choices
    ]
    return {
        "name": name,
        "space": {"name": "llama", "narrow": NARROW},
        "targets": targets,
        "budget": {"candidates": CANDIDATES, "refinement": 0.0},
        "baseline_layers": [2],
    }


def drain(client: Client, process: subprocess.Popen[bytes]) -> Row:
    """The agent gets SIGTERM while it holds launches: it ends with exit code 0, and none is left with it."""
    client.jobs.create(request("to be drained", {"onnxruntime": ["full"]}, sequence_length=24))
    until(lambda: client.devices.get(DEVICE).leased > 1, process)
    process.send_signal(signal.SIGTERM)
    code = process.wait(120)
    held = client.devices.get(DEVICE).leased
    if code or held:
        sys.exit(f"after SIGTERM the agent ended with exit code {code} and held {held} launches: see agent.log")
    return {"fact": "after SIGTERM while it measured", "value": f"exit code {code}, {held} launches held"}


def described(facts: DeviceFacts) -> list[Row]:
    runtimes = (f"{it.runtime} {it.version}: {', '.join(it.numbers['cpu'])}" for it in facts.runtimes)
    said = {
        "architecture": facts.architecture,
        "processor": facts.cpu,
        "features": " ".join(facts.cpu_features),
        "cores": facts.cores,
        "highest clock, MHz": facts.extra.get("max_mhz"),
        "runtimes by trial": "; ".join(runtimes),
    }
    return [{"fact": name, "value": value} for name, value in said.items()]


def measured(client: Client, job_id: str, target: str, protocol: MeasurementProtocol, weights: Path) -> Row:
    """What the target's candidates came to, and the peak memory of the largest, there and here."""
    candidates = list(client.candidates.list(job_id, target=target))
    done = [candidate for candidate in candidates if candidate.memory_bytes is not None]
    if not done:
        sys.exit(f"{target}: no candidate was measured: {candidates[0].reason}")
    largest = max(done, key=lambda candidate: candidate.weight_bytes)
    peak, peak_here = largest.memory_bytes or 0, here(largest, protocol, weights)
    searched = sum(candidate.role == CandidateRole.SEARCH for candidate in done)
    launch = client.candidates.launches(largest.id)[0].result
    core = launch and launch.environment["cores"]
    return {
        "target": target,
        "measured": f"{len(done)} of {len(candidates)}",
        "launches": sum(candidate.launches for candidate in candidates),
        "on core": core,
        "weights": largest.weight_bytes / 1e6,
        "peak emulated": peak / 1e6,
        "peak here": peak_here / 1e6,
        "holds": len(done) == len(candidates)
        and searched >= CANDIDATES
        and 0 <= peak - peak_here <= EMULATOR_BYTES
        and core == FAST_CORE,
    }


def here(candidate: CandidateView, protocol: MeasurementProtocol, weights: Path) -> float:
    """Peak memory (bytes) of the same model on this machine; `weights`: the folder of its weight cache."""
    with Measurer(weights) as measurer:
        result = measurer.measure(Architecture.parse(candidate.architecture), protocol, 0)
    return float(result.memory.peak_bytes) if result.memory else float("nan")


@contextmanager
def agent(root: Root, out: Path, url: str, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """The agent in the root, with an empty data folder; ended at the end."""
    (root.folder / "token.txt").write_text(token)
    root.run("rm", "-rf", "/agent-data")
    options = f"--server {url} --token-file /token.txt --data-dir /agent-data --name {DEVICE} --verbose"
    with (out / "agent.log").open("wb") as log:
        process = root.start(AGENT, "agent", *options.split(), log=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"the agent ended with {process.poll()}, or took more than {WAIT_S:g} s: see agent.log")
        time.sleep(1.0)


if __name__ == "__main__":
    main()
