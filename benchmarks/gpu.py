"""Everything of edgefront that needs an NVIDIA GPU, in one command: tests, a whole `edgefront find`, benchmarks.

    python benchmarks/gpu.py --out FOLDER [--minutes 9] [--wheels FOLDER] [--only PART ...]
    python benchmarks/gpu.py --out FOLDER --pretend

Needs Python 3.10 and an installed torch, in any checkout, offline. Each part (`gpu_parts.py`) is a separate process
with its own time limit, after which it is killed. Time that a part leaves goes to later parts, which always keep a
minimum. `FOLDER/gpu.md` and `FOLDER/gpu.json` are written after every part, so that an aborted run keeps its results;
FOLDER also gets each part's output and the benchmarks' JSON lines. Missing requirements of a part are reported by name.
`--wheels` installs the given wheels into FOLDER, without an index; installed versions of torch and the CUDA libraries
stay. `--pretend` runs small versions of the parts on the CPU: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpu_parts import ROOT, Part, parts

KEPT = ("torch", "triton", "nvidia-", "cuda-")
"""Name prefixes of installed packages that `--wheels` does not replace: torch's versions fit the driver."""
ENOUGH = 0.6
"""Minimum share of its own time that a part needs; with less time the part is not started."""
END_S = 5.0
"""Seconds at the end of a part's time in which the part may end by itself."""
KILL_S = 3.0
"""Seconds in which killed processes must end; a process that waits for its driver may never end."""
FACTS_S = 120.0
RUN = "EDGEFRONT_TEST_GPU_RUN"
"""Environment variable of every process of a run, which identifies processes that left their part's group."""
FACTS = """
import json, platform, sys
from importlib.util import find_spec
names = sys.argv[1:]
facts = {"python": platform.python_version(), "torch": None, "gpus": [], "here": [n for n in names if find_spec(n)]}
try:
    import torch
    facts["torch"], facts["cuda"] = torch.__version__, torch.version.cuda
    if torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
except Exception as error:
    facts["torch error"] = str(error)
print(json.dumps(facts))
"""


def main() -> int:
    everything = [part.name for part in parts(False)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the table, the JSON and every output")
    parser.add_argument("--minutes", type=float, default=9.0, help="of all parts together")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to install into --out")
    parser.add_argument("--only", nargs="+", choices=everything, default=everything, metavar="PART")
    parser.add_argument("--pretend", action="store_true", help="in small, on the CPU")
    options = parser.parse_args()
    if not (ROOT / "edgefront" / "core" / "common" / "errors.py").is_file():
        return refuse(f"{ROOT}/edgefront/core is neither a folder nor a link to one: copy the checkout with its links")
    sys.path.append(str(ROOT))  # edgefront need not be installed
    begun, out = time.monotonic(), options.out.resolve()
    end = begun + 60 * options.minutes
    (out / "results").mkdir(parents=True, exist_ok=True)
    chosen = [part for part in parts(options.pretend) if part.name in options.only]
    missed = install(options.wheels.resolve(), out / "packages") if options.wheels else []
    facts = machine(out, chosen, min(FACTS_S, 30 * options.minutes))
    if facts["torch"] is None:
        return refuse(f"torch is not here: {facts.get('torch error')}")
    if not facts["gpus"] and not options.pretend:
        return refuse(f"torch {facts['torch']} sees no NVIDIA GPU here; --pretend runs everything in small on the CPU")
    facts |= {"pretended": options.pretend, "wheels not installed": missed}
    rows: list[dict[str, Any]] = []
    for number, part in enumerate(chosen):
        after = [later.seconds for later in chosen[number + 1 :] if not missing(later, facts["here"])]
        left = end - time.monotonic()
        rows.append(outcome(part, facts["here"], left, out, limit_s(left, part.seconds, after)))
        write(out, facts, rows)
        print(f"{part.name}: {rows[-1]['state']}", flush=True)
    print(f"{out / 'gpu.md'}")
    return 1 if any(row["state"].startswith("failed") for row in rows) else 0


def limit_s(left: float, own: float, after: Sequence[float]) -> float:
    """Returns the time limit of a part that takes `own` seconds: that and half of the surplus. If there is less time
    than all parts need, the part's share, or 0 if that is too little.

    The final parts get no share if there is not enough time for all, because they are worth less.
    """
    total = own
    for seconds in after:
        if left < ENOUGH * (total + seconds):
            break
        total += seconds
    if left < ENOUGH * own:
        return 0.0
    if left < total or total == own:
        return left * own / total
    return own + (left - total) / 2


def missing(part: Part, here: Sequence[str]) -> list[str]:
    """Returns the requirements of the part that are not installed."""
    return [name for name in part.needs if name not in here]


def refuse(why: str) -> int:
    print(f"gpu.py: {why}", file=sys.stderr)
    return 2


def environment(out: Path) -> dict[str, str]:
    """Returns the environment of every child: checkout and wheels on the path, results in `out`, no network."""
    path = [str(out / "packages"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "BENCHMARK_RESULTS": str(out / "results"),
        "EDGEFRONT_MEASURE_LOCK": str(out / "measure.lock"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "400",  # pytest cuts reasons to the width
        RUN: f"{os.getpid()}-{out}",
    }


def machine(out: Path, chosen: Sequence[Part], seconds: float) -> dict[str, Any]:
    """Returns torch, GPUs, and the required packages that can be imported. A hanging driver is timed out."""
    names = sorted({name for part in chosen for name in part.needs})
    command = [sys.executable, "-c", FACTS, *names]
    try:
        done = subprocess.run(
            command, env=environment(out), capture_output=True, text=True, check=False, cwd=out, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        kill_processes(out)
        return {"torch": None, "torch error": f"it did not say within {seconds:.0f} s which GPUs there are"}
    if done.returncode:  # importing torch may crash the process
        return {"torch": None, "torch error": done.stderr.strip().rpartition("\n")[2]}
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def install(wheels: Path, packages: Path) -> list[str]:
    """Installs the newest fitting wheel of each name without an index. Returns the names that failed."""
    names = sorted({wheel.name.partition("-")[0].lower() for wheel in wheels.glob("*.whl")})
    names = [name for name in names if not name.replace("_", "-").startswith(KEPT) or not installed(name)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--upgrade", "--find-links", str(wheels), "--target", str(packages)]
    if names and subprocess.run([*command, *names], stdin=subprocess.DEVNULL, check=False).returncode == 0:
        return []
    # A wheel that does not fit this Python or machine must not prevent the installation of the rest.
    return [name for name in names if subprocess.run([*command, name], check=False).returncode]


def installed(name: str) -> bool:
    with suppress(PackageNotFoundError):
        return bool(version(name))
    return False


def outcome(part: Part, here: Sequence[str], left: float, out: Path, limit: float) -> dict[str, Any]:
    """Runs the part with this limit, or decides to skip it. Returns the part's row of the report."""
    part = part.lasting(limit)
    row: dict[str, Any] = {"part": part.name, "goal": part.goal, "command": " ".join(("python", *part.command))}
    row |= {"seconds": 0.0, "figures": []}
    if lacking := missing(part, here):
        return {**row, "state": f"skipped: needs {', '.join(lacking)}, not here"}
    if not limit:
        return {**row, "state": f"not run: {max(0.0, left):.0f} s left, and it takes {part.seconds:.0f} s"}
    log = out / f"{part.name.replace(':', '').replace(',', '').replace(' ', '-')}.log"
    begun = time.monotonic()
    code = run(part, limit, log, out)
    row["seconds"] = round(time.monotonic() - begun, 1)
    output = log.read_text(encoding="utf-8", errors="replace")
    try:
        figures = part.read(out / "results", output)
    except Exception as error:  # a failed benchmark may have recorded no or unreadable results
        figures = []
        if code == 0:
            return {**row, "state": f"failed: its figures cannot be read: {type(error).__name__}: {error}"}
    row["figures"] = [figure._asdict() for figure in figures]
    if code is None:
        return {**row, "state": f"cut off after {limit:.0f} s"}
    if code and (lacking := lacked(output)):
        return {**row, "state": f"skipped: needs {lacking}, not here"}
    if code:
        return {**row, "state": f"failed: exit code {code}: {last_line(output)}"}
    return {**row, "state": "done"}


def run(part: Part, limit_s: float, log: Path, out: Path) -> int | None:
    """Returns the part's exit code; None if the part exceeded its limit."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *part.command],
            cwd=ROOT,
            env=environment(out),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(limit_s - min(END_S, limit_s / 2))
    except subprocess.TimeoutExpired:
        # Ends the process group. torchrun, for instance, then ends its ranks, which are in separate groups.
        os.killpg(process.pid, signal.SIGTERM)
        wait_until(lambda: process.poll() is not None and not processes(out), min(END_S, limit_s / 2))
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        kill_processes(out)
        wait_until(lambda: process.poll() is not None and not processes(out), KILL_S)


def processes(out: Path) -> list[int]:
    """Returns the processes of this run in any group, as far as the system lists them (Linux), without zombies."""
    mark, found = f"{RUN}={environment(out)[RUN]}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def kill_processes(out: Path) -> None:
    """Kills the remaining processes of this run, which would keep the GPU's memory."""
    for left in processes(out):
        with suppress(OSError):
            os.kill(left, signal.SIGKILL)


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)


def lacked(output: str) -> str | None:
    """Returns the package whose absence ended a part: an indirect requirement that `Part.needs` does not name."""
    match = re.fullmatch(r"ModuleNotFoundError: No module named '([^']+)'", last_line(output))
    name = match[1].partition(".")[0] if match else "edgefront"
    is_ours = name == "edgefront" or (ROOT / "benchmarks" / f"{name}.py").exists()
    return None if is_ours else name


def last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no output"])[-1][-300:]


def write(out: Path, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the table and the JSON of the results so far, each replaced atomically."""
    from record import markdown

    shown = []
    for row in rows:
        first = {"part": row["part"], "state": row["state"], "s": row["seconds"], "goal": row["goal"]}
        for number, figure in enumerate(row["figures"] or [{"what": "", "value": "", "met": None}]):
            met = {True: "yes", False: "no", None: ""}[None if facts["pretended"] else figure["met"]]
            # A part's name and state appear only in its first row.
            shown.append(
                (first if number == 0 else dict.fromkeys(first, ""))
                | {"figure": figure["what"], "value": figure["value"], "met": met}
            )
    shown = [{name: str(cell).replace("|", "\\|") for name, cell in row.items()} for row in shown]
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    where = ", ".join(facts["gpus"]) or "no GPU"
    title = f"Everything that needs a GPU: {where}, torch {facts['torch']}, Python {facts['python']}, {at}"
    if facts["pretended"]:
        title = f"PRETENDED, in small on the CPU: these figures say nothing. {title}"
    replace(out / "gpu.md", markdown(title, shown))
    replace(out / "gpu.json", json.dumps({"at": at, "machine": facts, "parts": rows}, indent=1) + "\n")


def replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the running part is ended too
    sys.exit(main())
