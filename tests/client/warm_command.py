"""A process that has imported what the `edgefront` command imports, and forks a run of it for each request.

A request is a JSON line with `arguments`, `env` and `cwd`, and the files for standard output and error; the answer is
the exit code. The run is the command as it is: `edgefront.cli.main.main`, with a process, an environment and an end of
its own. It only finds its modules loaded, which takes longer than most runs do.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys

from edgefront.cli import main as cli
from edgefront.cli import session as base
from edgefront.client import client, requests
from edgefront.client.show import frontier_table
from edgefront.core.architectures import catalogue, models
from edgefront.core.architectures.cost import costs

LOADED = (costs, catalogue, models, client, requests, frontier_table, base)
WITH_TORCH = ("evaluate", "generate", "inherit")
"""Commands that load torch, which is kept from the first of them on."""


def serve(control: socket.socket) -> bool:
    """Answers until the socket closes; True in a forked process, which is to run the command."""
    while True:
        message, files, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not message:
            return False
        request = json.loads(message)
        if request["arguments"][0] in WITH_TORCH and "torch" not in sys.modules:
            importlib.import_module("edgefront.core.training.evaluation.package")
            importlib.import_module("torch")
            gc.freeze()
        child = os.fork()
        if child == 0:
            control.close()
            _become(request, *files)
            return True
        for file in files:
            os.close(file)
        control.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())


def _become(request: dict[str, object], out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    sys.argv = ["edgefront", *request["arguments"]]  # type: ignore[misc]


if __name__ == "__main__":
    cli.command()  # built, as the modules are loaded
    gc.freeze()  # what is loaded is looked through for garbage by no run
    with socket.socket(fileno=int(sys.argv[1])) as opened:
        is_command = serve(opened)
    if is_command:
        cli.main()
