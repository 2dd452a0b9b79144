"""Trains nothing, by the contract of `core.training.run_folder`: what the pool's tests start instead of a training.

The recipe's title says what happens: `fail 3` ends with exit code 70 at step 3, `invalid` with 64 at once, `smaller 2`
with 71 at step 2 (once), `kill 3` kills itself there, `stubborn` heeds no SIGTERM, `wait` goes on until it is told to
stop or the file `go` is there, `wait 3` from step 3 on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from edgefront.core.schemas.trainings import MetricView
from edgefront.core.training.run_folder import CHECKPOINTS, RESULT, SPEC, TENSORBOARD, Journal, RunSpec


def main(folder: Path) -> int:
    stop = threading.Event()
    spec = RunSpec.model_validate_json((folder / SPEC).read_bytes())
    what, _, at = str(spec.recipe["title"]).partition(" ")
    if what != "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with (folder / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    (folder / "visible").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    journal = Journal(folder, writes=True)
    if what == "invalid":
        journal.update(state="invalid", error="the recipe makes no sense")
        return 64
    done = max((int(path.name[5:]) for path in (folder / CHECKPOINTS).glob("step-*")), default=0)
    journal.rewind(done)
    (folder / TENSORBOARD).mkdir(exist_ok=True)
    if done:
        assert (_place(folder, done) / "model.safetensors").read_bytes() == f"after {done}".encode()
        journal.note(f"It resumed from step {done}.")
    steps = int(spec.budget.steps or spec.recipe["steps"])
    for step in range(done + 1, steps + 1):
        if stop.is_set():
            _save(folder, step - 1)
            journal.update(state="stopped")
            return 75
        journal.update(state="training", step=step, steps=steps, seconds_left=0.01 * (steps - step))
        journal.report(MetricView(step=step, tokens=32 * step, seconds=0.01 * step, loss=5.0 / step))
        with (folder / TENSORBOARD / "events").open("a") as events:
            events.write(f"{step} ")
        if step % int(spec.recipe["checkpoint_every"]) == 0:
            _save(folder, step)
        if at.isdigit() and step == int(at):
            if what == "fail":
                journal.update(state="failed", error="the loss is not a number")
                return 70
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "smaller" and not (folder / "was-smaller").exists():
                (folder / "was-smaller").touch()
                journal.update(state="smaller", error="Out of memory; half the rows.")
                return 71
        waits = what in ("wait", "stubborn") and step >= int(at or 0)
        while waits and not stop.is_set() and not (folder / "go").exists():
            time.sleep(0.01)
    journal.update(state="evaluating")
    result = folder / RESULT
    result.mkdir(exist_ok=True)
    (result / "model.safetensors").write_bytes(b"weights " * 100)
    (result / "architecture.json").write_text(json.dumps(spec.architecture))
    scores = {"perplexity": 12.5, "bpc": None, "tokens": 640}
    (result / "result.json").write_text(json.dumps({"steps": steps, "valid": scores, "test": None}))
    journal.update(state="done")
    return 0


def _save(folder: Path, step: int) -> None:
    if step:
        place = _place(folder, step)
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.safetensors").write_bytes(f"after {step}".encode())


def _place(folder: Path, step: int) -> Path:
    return folder / CHECKPOINTS / f"step-{step:09}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
