"""Runs of `core.training.run` in processes of their own, forked from one that has imported what they need.

Each is the command as it is, with a process, signals, an environment and an exit status of its own. It only finds its
modules loaded, which takes longer than the runs of these tests do.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from edgefront.core.training.run_folder import LOG

Start = Callable[..., ForkServerProcess]


@contextmanager
def forked_runs() -> Iterator[Start]:
    """What starts a run of a folder: `start(folder, RANK="0")`, or below torchrun `start(folder, torchrun=2)`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "torch.distributed.run", "edgefront.core.training.run", __name__])
    started: list[ForkServerProcess] = []

    def start(folder: Path, *, torchrun: int = 0, **environment: str) -> ForkServerProcess:
        process = context.Process(target=_run, args=(folder, torchrun, environment), daemon=not torchrun)
        process.start()
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.join()
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it would stay until this process ends


def _run(folder: Path, torchrun: int, environment: dict[str, str]) -> None:
    os.environ.update(environment, OMP_NUM_THREADS="1")
    with (folder / LOG).open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    command = ["-m", "edgefront.core.training.run", str(folder)]
    if torchrun:
        from torch.distributed.run import main as launch

        launch(["--standalone", "--nproc-per-node", str(torchrun), *command])
        return
    from edgefront.core.training.run import main

    sys.argv = command[1:]
    main()
