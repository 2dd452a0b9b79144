"""`edgefront up` as a process: starts, refuses, survives `kill -9`, and ends without leaving anything."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from processes import marked, server_of, started, until

from edgefront import Client
from edgefront.cli import exits

JOB = {
    "name": "small",
    "space": {"name": "lts-gpt2", "narrow": {"n_layer": [2], "d_model": [128, 192], "d_inner": {"max": 512}}},
    "targets": [{"name": "here", "device": "local", "protocol": {"sequence_length": 32, "repeats": 2}}],
    "algorithm": {"name": "lts", "settings": {"population": 6, "iterations": 3}},
    "baseline_layers": [1, 2],
    "budget": {"refinement": 0},
}


def is_up(home: Path, pid: int) -> bool:
    server = server_of(home)
    return server is not None and server.pid == pid


def said(log: Path) -> str:
    return log.read_text(encoding="utf-8")


def agents(mark: str) -> list[int]:
    return [pid for pid, command in marked(mark).items() if "--end-with-parent" in command]


def test_a_job_survives_kill_nine_of_the_service(tmp_path: Path, mark: str, known_device: dict[str, str]) -> None:
    home, log = tmp_path / "home", tmp_path / "up.log"
    with started("up", "--home", str(home), "--port", "0", mark=mark, log=log, variables=known_device) as first:
        until(lambda: is_up(home, first.pid))
        with Client(home=home) as client:
            until(lambda: "measures as device 'local'" in said(log))
            job = client.jobs.create(JOB)
            until(lambda: client.jobs.get(job.id).targets[0].settled >= 3, 120)
        first.kill()
        first.wait()
        until(lambda: not marked(mark), 30)  # nobody is left to tell the agent: it ends by itself
    assert server_of(home) is None

    with started("up", "--home", str(home), "--port", "0", mark=mark, log=log, variables=known_device) as second:
        until(lambda: is_up(home, second.pid))
        with Client(home=home) as client:
            ended = client.jobs.wait(job.id, timeout_s=180)
            (target,) = ended.targets
            assert ended.state == "finished"
            candidates = list(client.candidates.list(job.id))
            assert {candidate.state for candidate in candidates} == {"measured"}
            assert target.settled == target.candidates == len(candidates)
            for candidate in candidates:  # one that is unlikely beside other load is measured again
                launches = client.candidates.launches(candidate.id)
                assert candidate.launches == sum(launch.state == "done" for launch in launches), "counted twice"
            numbers = [event.number for event in client.jobs.events(job.id)]
            assert numbers == list(range(1, ended.last_event + 1))
            assert [device.name for device in client.devices.list() if device.state == "active"] == ["local"]
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == exits.OK
        assert marked(mark) == {}
    assert server_of(home) is None
    assert "Traceback" not in said(log)


def test_the_agent_comes_back_when_it_is_killed(tmp_path: Path, mark: str, known_device: dict[str, str]) -> None:
    home, log = tmp_path / "home", tmp_path / "up.log"
    with started("up", "--home", str(home), "--port", "0", mark=mark, log=log, variables=known_device) as service:
        until(lambda: is_up(home, service.pid) and agents(mark))
        with Client(home=home) as client:
            until(lambda: "measures as device 'local'" in said(log))
            (before,) = agents(mark)
            os.kill(before, signal.SIGKILL)
            until(lambda: agents(mark) not in ([], [before]))
            job = client.jobs.create(
                {**JOB, "algorithm": {"name": "random", "settings": {}}, "budget": {"candidates": 2}}
            )
            assert client.jobs.wait(job.id, timeout_s=180).state == "finished"
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == exits.OK
    assert marked(mark) == {}


def test_one_service_a_folder_and_one_a_port(tmp_path: Path, mark: str) -> None:
    home, log = tmp_path / "home", tmp_path / "up.log"

    def refused(*arguments: str) -> tuple[int, str]:
        other = tmp_path / "other.log"
        other.unlink(missing_ok=True)
        with started("up", "--no-agent", *arguments, mark=mark + "-other", log=other) as process:
            return process.wait(60), said(other)

    with started("up", "--home", str(home), "--port", "0", "--no-agent", mark=mark, log=log) as service:
        until(lambda: is_up(home, service.pid))
        server = server_of(home)
        assert server is not None
        port = server.url.rpartition(":")[2]
        code, words = refused("--home", str(home), "--port", "0")
        assert code == exits.REFUSED
        assert "already runs" in words
        code, words = refused("--home", str(tmp_path / "elsewhere"), "--port", port)
        assert code == exits.REFUSED
        assert f"port {port}" in words
        code, words = refused("--home", str(tmp_path / "elsewhere"), "--port", "0", "--host", "0.0.0.0")
        assert code == exits.REFUSED
        assert "INSECURE" in words
        assert "Traceback" not in words
        assert is_up(home, service.pid)  # and what runs was not disturbed
        service.terminate()
        assert service.wait(60) == exits.OK


def test_a_taken_default_port_becomes_the_next_one(tmp_path: Path, mark: str) -> None:
    home, log = tmp_path / "home", tmp_path / "up.log"
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 8090))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        with started("up", "--home", str(home), "--no-agent", mark=mark, log=log) as service:
            until(lambda: is_up(home, service.pid))
            server = server_of(home)
            assert server is not None
            assert not server.url.endswith(":8090")
            until(lambda: "port 8090 is in use" in said(log))
            service.terminate()
            assert service.wait(60) == exits.OK


def test_the_printed_link_opens_the_page(tmp_path: Path, mark: str) -> None:
    home, log = tmp_path / "home", tmp_path / "up.log"
    with started("up", "--home", str(home), "--port", "0", "--no-agent", "--json", mark=mark, log=log) as service:
        until(lambda: is_up(home, service.pid))
        until(lambda: said(log).endswith("\n"))
        output = json.loads(said(log).splitlines()[0])
        assert Path(output["key_file"]).read_text(encoding="utf-8").startswith("efk_")
        assert output["url"].startswith("http://127.0.0.1:")
        assert (home.stat().st_mode & 0o077) == 0
        service.terminate()
        assert service.wait(60) == exits.OK
    with started("up", "--home", str(home), "--port", "0", "--no-agent", mark=mark, log=tmp_path / "2.log") as again:
        until(lambda: is_up(home, again.pid))
        until(lambda: "login#key=" in said(tmp_path / "2.log"))
        key = (home / "key").read_text(encoding="utf-8").strip()
        assert f"/login#key={key}\n" in said(tmp_path / "2.log")
        assert key not in said(home / "service.log")
        again.terminate()
        assert again.wait(60) == exits.OK


def test_the_agent_ends_when_its_parent_does(tmp_path: Path) -> None:
    """Without a service: the hidden option alone, on a closed pipe."""
    with started(*_agent(tmp_path), "--end-with-parent", mark=str(tmp_path), log=tmp_path / "agent.log") as agent:
        try:
            agent.wait(200)
        except subprocess.TimeoutExpired:
            pytest.fail(said(tmp_path / "agent.log"))
        until(lambda: not marked(str(tmp_path)), 10)


def test_the_tests_of_its_runtimes_end_with_the_agent(tmp_path: Path) -> None:
    def stopped() -> bool:
        """Whether one that loads a runtime is stopped now: it would soon end by itself."""
        for pid, command in marked(str(tmp_path)).items():
            with suppress(OSError):
                if "runtimes.describe" in command and "onnxruntime" in Path(f"/proc/{pid}/maps").read_text():
                    os.kill(pid, signal.SIGSTOP)
                    return True
        return False

    with started(*_agent(tmp_path), mark=str(tmp_path), log=tmp_path / "agent.log") as agent:
        until(stopped, pause_s=0.02)
        agent.kill()
        agent.wait()
        until(lambda: not marked(str(tmp_path)), 20)


def _agent(folder: Path) -> list[str]:
    token = folder / "token"
    token.write_text("efe_" + "x" * 43, encoding="utf-8")
    return ["agent", "--server", "http://127.0.0.1:9", "--token-file", str(token), "--data-dir", str(folder / "a")]
