"""The agent as a process: signals, exit codes, sudden death; and against the real service."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from running_agent import ended, item, reported, slow
from scripted_server import TOKEN, Script, ScriptedServer, wait_for

from edgefront.agents import main
from edgefront.agents.main import own_folder
from edgefront.agents.options import AgentOptions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path, weights, known_device):
    """Starts the agent's command as processes on a device whose facts are known; those that are left at the end are
    killed. With `probes` it finds them out.
    """
    begun: list[subprocess.Popen[str]] = []
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "weights").symlink_to(weights)
    (tmp_path / "token").write_text(TOKEN)

    def begin(url: str, *options: str, probes: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "edgefront", "agent", "--server", url, "--data-dir", str(folder)]
        process = subprocess.Popen(
            [*command, "--token-file", str(tmp_path / "token"), *options],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | ({} if probes else known_device),
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ends_with(process: subprocess.Popen[str], code: int) -> str:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    return errors


def test_sigterm_drains_and_a_second_one_gives_up(start):
    script = Script()
    script.items.extend(slow(number) for number in range(3))
    with ScriptedServer(script) as server:
        agent = start(server.url, "--json")
        wait_for(lambda: script.started)
        agent.terminate()
        lines = [json.loads(line) for line in ends_with(agent, 0).splitlines()]
        assert lines[-1]["message"] == "drained"
        assert reported(script) == ["lau_0"]
        assert script.released == ["lau_1", "lau_2"]
        script.items.extend(slow(number, repeats=1000) for number in range(3, 5))
        agent = start(server.url)
        wait_for(lambda: len(script.started) == 2)
        agent.send_signal(signal.SIGINT)
        wait_for(lambda: "lau_4" in script.released)
        agent.send_signal(signal.SIGINT)
        ends_with(agent, 0)
    assert reported(script) == ["lau_0"]
    assert script.released[2:] == ["lau_4", "lau_3"]


def test_sudden_death_leaves_nothing_behind_and_loses_no_result(start, tmp_path):
    script = Script(status={"/v1/reports": 503})
    script.items.extend([item(0), slow(1, repeats=1000)])
    with ScriptedServer(script) as server:
        agent = start(server.url)
        wait_for(lambda: len(script.started) == 2)
        family = psutil.Process(agent.pid).children(recursive=True)
        assert family
        agent.kill()
        agent.wait()
        wait_for(lambda: all(ended(process) for process in family))
        script.status.clear()
        start(server.url)
        wait_for(lambda: script.reports)
    assert reported(script) == ["lau_0"]
    assert len(script.enrolled) == 1


@pytest.fixture
def run_here(start, tmp_path, facts, monkeypatch, capfd):
    """What the command runs, in a thread of this process: its exit code and what it says on standard error."""
    # A process of its own takes seconds to find them.
    monkeypatch.setattr("edgefront.agents.loop.probe", lambda *_: facts)
    logger = logging.getLogger("edgefront.agents")
    before = list(logger.handlers), logger.propagate, logger.level

    def run(url: str, cores: str | None = None) -> tuple[int, str]:
        options = AgentOptions(url, tmp_path / "token", tmp_path / "agent", cores=cores)
        with ThreadPoolExecutor(1) as thread:  # the agent keeps its thread to a core
            code = thread.submit(main.main, options).result(120)
        return code, capfd.readouterr().err

    yield run
    logger.handlers[:], logger.propagate, level = before
    logger.setLevel(level)


def test_exit_codes_say_what_is_wrong(start, run_here, tmp_path):
    script = Script()
    with ScriptedServer(script) as server:
        for said, code, arguments in (
            ("plain HTTP", 2, ["http://far.example"]),
            ("not a list of cores", 2, [server.url, "all"]),
        ):
            ended_with, words = run_here(*arguments)
            assert ended_with == code
            assert said in words
        for status, code in ((409, 1), (426, 8)):
            script.status["/v1/agents/enrol"] = status
            assert run_here(server.url)[0] == code
        script.status["/v1/agents/enrol"] = 401
        assert "as scripted" in ends_with(start(server.url), 4)
        script.status = {"/v1/leases": 410}
        assert run_here(server.url)[0] == 7
        with own_folder(tmp_path / "agent"):
            assert "another agent" in ends_with(start(server.url), 9)


def test_an_agent_that_is_ended_while_it_tests_its_runtimes_does_not_wait_for_them(start, tmp_path, monkeypatch):
    tests_begun = tmp_path / "begun"
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, sys, time\n"
        "if 'edgefront.agents.measuring.runtimes.describe' in sys.orig_argv:\n"
        f"    pathlib.Path({str(tests_begun)!r}).touch(); time.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    agent = start("http://127.0.0.1:9", probes=True)
    wait_for(tests_begun.exists, pause_s=0.1)
    agent.send_signal(signal.SIGINT)
    assert "drained" in ends_with(agent, 0)
