"""Ctrl-C ends every program with exit code 130 and no traceback, also while it is still imported or already ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from edgefront.core.common.processes.program import INTERRUPTED


def interrupted(arguments: Sequence[str], after: str) -> tuple[int, str]:
    """Exit code and errors of a Python process that gets Ctrl-C as soon as it has imported this module."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that a shell runs in the background hands on that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        while line := process.stderr.readline():
            if line.rsplit("|", 1)[-1].strip() == after:
                process.send_signal(signal.SIGINT)
                break
        errors = process.stderr.read()
    return process.returncode, "".join(line for line in errors.splitlines(True) if not line.startswith("import time:"))


@pytest.mark.parametrize(
    ("program", "after"),
    [
        ("edgefront", "edgefront.cli.main"),
        ("edgefront", "edgefront.cli.commands.find"),
        ("edgefront.api", "uvicorn"),
    ],
)
def test_an_interrupt_while_a_program_is_imported(program: str, after: str) -> None:
    assert interrupted(["-m", program, "--help"], after) == (INTERRUPTED, "")


ENDING = """
import atexit, os, signal, sys
from edgefront.core.common.processes.program import run_program
def load():
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
    return lambda: print("done", flush=True)
run_program(load)
"""
RUNNING = """
import os, signal
from edgefront.core.common.processes.program import run_program
def main():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        print("put away", flush=True)
run_program(lambda: main)
"""


@pytest.mark.parametrize(("code", "output"), [(ENDING, "done\n"), (RUNNING, "put away\n")])
def test_an_interrupt_while_a_program_runs_or_ends(code: str, output: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, output, "")


def test_a_program_in_the_background_of_a_shell_is_not_interrupted() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.replace("atexit.register(", "(lambda f, *a: f(*a))(")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
