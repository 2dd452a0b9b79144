"""A worker of Celery as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "celery", "--app", "edgefront.workers.app", "worker")


@contextmanager
def celery_worker(environment: Mapping[str, str], home: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Told to end behind the block. An assertion that fails within it says how the worker's log ends."""
    with (home / "worker.log").open("ab") as log:
        command = [*COMMAND, "--pool", "solo", "--loglevel", "info", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield process
        except AssertionError as error:
            state = "running" if process.poll() is None else f"ended with {process.returncode}"
            said = (home / "worker.log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"{error}; the worker is {state}, its log ends:\n{said}") from error
        finally:
            process.terminate()
            process.wait(30)
