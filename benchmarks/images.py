"""Builds every image, runs a job and a training through docker-compose.yml, breaks it, and removes it.

    python benchmarks/images.py [--engine podman] [--python 3.11] [--pip-config FILE]

Needs Python, and Docker with Compose, or Podman that uses it (`podman compose`).
Prints a table; exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = "edgefront-check"
TARGETS = ("server", "agent", "trainer", "agent-torch")
SERVICES = ("postgres", "redis", "api", "worker", "proxy", "agent")
SPACE = "--space lts-gpt2 --narrow n_layer=2..3 --narrow d_model=128..192:64 --candidates 3"
REACH = """
import socket
for name in {names!r}:
    host, port = name.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 3).close()
        print(name)
    except OSError:
        pass
"""


class Failed(Exception):
    """Raised if a check did not find the expected result."""


def run(command: list[str], environment: dict[str, str] | None = None, limit_s: float = 300) -> str:
    """Runs a command and returns its output. Raises `Failed` with the end of the output."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)}: no end after {limit_s:.0f} s") from error
    if done.returncode:
        said = (done.stderr + done.stdout).strip()[-2000:]
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{said}")
    return done.stdout


def until(question: Callable[[], object], what: str, limit_s: float = 180) -> float:
    """Repeats the question until the answer is true; returns the seconds of waiting."""
    start = time.monotonic()
    while not question():
        if time.monotonic() - start > limit_s:
            raise Failed(f"not within {limit_s:.0f} s: {what}")
        time.sleep(1)
    return time.monotonic() - start


class Server:
    """The services of docker-compose.yml, as a separate project on a free port."""

    def __init__(self, engine: str, pip_config: str | None) -> None:
        self.engine = engine
        self._compose = [engine, "compose", "--project-name", PROJECT]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environment = {"EDGEFRONT_POSTGRES_PASSWORD": secrets.token_hex(16), "EDGEFRONT_PORT": str(self.port)}
        if pip_config:
            self.environment["EDGEFRONT_PIP_CONFIG"] = pip_config
        self.key = ""

    def compose(self, *arguments: str, limit_s: float = 300, **environment: str) -> str:
        return run([*self._compose, *arguments], {**self.environment, **environment}, limit_s)

    def up(self, *options: str, **environment: str) -> float:
        start = time.monotonic()
        self.compose(*options, "up", "--detach", **environment)
        until(lambda: self.answers("/v1/ready"), "the API is ready, through the proxy")
        return time.monotonic() - start

    def answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def cli(self, command: str, limit_s: float = 300) -> str:
        """Runs `edgefront COMMAND` in the image of the workers and returns its output."""
        given = [
            "--env",
            "EDGEFRONT_URL=http://proxy:8090",
            "--env",
            f"EDGEFRONT_KEY={self.key}",
            "--env",
            "COLUMNS=200",
        ]
        whole = ["run", "--rm", "-T", "--no-deps", *given, "worker", "edgefront", *command.split()]
        return self.compose(*whole, limit_s=limit_s)

    def containers(self, service: str = "") -> list[str]:
        label = "label=com.docker.compose."
        chosen = ["--filter", f"{label}project={PROJECT}"] + (
            ["--filter", f"{label}service={service}"] if service else []
        )
        return run([self.engine, "ps", "--quiet", *chosen]).split()

    def inside(self, service: str, *command: str) -> str:
        (container,) = self.containers(service)
        return run([self.engine, "exec", container, *command])

    def state(self, service: str) -> dict[str, object]:
        (container,) = self.containers(service)
        return dict(json.loads(run([self.engine, "inspect", container]))[0])

    def health(self) -> str:
        state = self.state("api")["State"]
        assert isinstance(state, dict)
        return str((state.get("Health") or state.get("Healthcheck") or {}).get("Status"))

    def volumes(self) -> int:
        return len(run([self.engine, "volume", "ls", "--quiet"]).split())


def check_rights(server: Server) -> str:
    """Checks user and capabilities of every process, as the kernel reports them."""
    processes = 0
    for service in SERVICES:
        said = server.inside(service, "sh", "-c", "cat /proc/[0-9]*/status 2>/dev/null || true")
        for field in ("CapEff", "CapBnd"):
            if any(int(value, 16) for value in re.findall(rf"^{field}:\s*(\w+)", said, re.MULTILINE)):
                raise Failed(f"a process of {service} has capabilities ({field})")
        users = re.findall(r"^Uid:\s*(\d+)", said, re.MULTILINE)
        if "0" in users or "0" in re.findall(r"^NoNewPrivs:\s*(\d)", said, re.MULTILINE):
            raise Failed(f"a process of {service} runs as root, or may become it")
        processes += len(users)
    return f"{processes} processes, none as root, none with a capability"


def check_agent(server: Server) -> str:
    """Checks which of the other services an agent's container can reach."""
    addresses = []
    for service in ("api", "postgres"):
        settings = server.state(service)["NetworkSettings"]
        assert isinstance(settings, dict)
        addresses += [network["IPAddress"] for network in settings["Networks"].values()]
    names = ["proxy:8090", "proxy:8091", "api:8090", "postgres:5432", "redis:6379", "example.org:443"]
    names += [f"{address}:{port}" for address, port in zip(addresses, (8090, 5432), strict=True)]
    reached = server.inside("agent", "python", "-c", REACH.format(names=names)).split()
    if reached != ["proxy:8090"]:
        raise Failed(f"an agent reaches {reached}")
    if "admin-key" in server.inside("agent", "find", "/setup", "/enrolment", "/data"):
        raise Failed("an agent has the admin key")
    return "the proxy, and no key"


def check_job(server: Server) -> str:
    until(lambda: "compose-agent" in server.cli("device list"), "the agent is enrolled")
    return server.cli(f"job submit {SPACE} --target compose-agent --watch", 600).strip().splitlines()[1]


def check_training(server: Server) -> str:
    took = server.up("--profile", "train")
    server.compose("run", "--rm", "-T", "--no-deps", "trainer", "edgefront", "data", "prepare", "python", limit_s=600)
    found = re.search(r"job_\w+", server.cli("job list --json"))
    assert found is not None
    command = f"train submit --frontier {found[0]} --count 1 --steps 8 --set rows=4 --watch"
    return f"{server.cli(command, 900).strip().splitlines()[-1]} (up in {took:.0f} s)"


def check_health(server: Server) -> str:
    seconds = []
    for service in ("redis", "postgres"):
        (container,) = server.containers(service)
        run([server.engine, "stop", container])
        until(lambda: server.health() == "unhealthy", f"unhealthy without {service}")
        run([server.engine, "start", container])
        seconds.append(until(lambda: server.health() == "healthy", f"healthy with {service} again"))
    return f"unhealthy without Redis or Postgres; healthy {max(seconds):.0f} s after they are back"


def check_address(server: Server) -> str:
    """Checks that the API comes back at another address, as after a crash."""
    (api,) = server.containers("api")
    run([server.engine, "stop", api])
    image = str(server.state("redis")["Image"])
    squatter = [server.engine, "run", "--rm", "--detach", "--network", f"{PROJECT}_default", "--entrypoint", "sleep"]
    other = run([*squatter, image, "300"]).strip()
    try:
        run([server.engine, "start", api])
        return f"after {until(lambda: server.answers('/v1/ready'), 'the proxy finds the API'):.0f} s"
    finally:
        run([server.engine, "rm", "--force", other])


def check_down_and_up(server: Server) -> str:
    before, volumes = server.cli("job list") + server.cli("train list"), server.volumes()
    server.compose("--profile", "train", "down")
    took = server.up("--profile", "train")
    if server.cli("job list") + server.cli("train list") != before or server.volumes() != volumes:
        raise Failed("jobs, trainings or the number of volumes changed")
    return f"jobs, trainings and volumes as before, up in {took:.0f} s"


CHECKS: dict[str, Callable[[Server], str]] = {
    "rights of processes": check_rights,
    "what an agent reaches": check_agent,
    "a job": check_job,
    "a training": check_training,
    "health": check_health,
    "the API at another address": check_address,
    "down and up": check_down_and_up,
}


@contextmanager
def row(rows: list[tuple[str, str]], name: str) -> Iterator[list[str]]:
    """Adds a row to the table, also if the check fails."""
    result: list[str] = []
    try:
        yield result
    except Failed as error:
        result.append(f"**failed**: {error}")
    rows.append((name, " ".join(result)))
    print(f"{name}: {rows[-1][1]}", file=sys.stderr, flush=True)


def find_engine() -> str:
    for engine in ("docker", "podman"):
        if shutil.which(engine) and not subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
            return engine
    sys.exit("neither Docker nor Podman answers here")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=("docker", "podman"), help="default: the first that answers")
    parser.add_argument("--python", help="version of the base image")
    parser.add_argument("--pip-config", help="pip.conf for the builds")
    given = parser.parse_args()
    server, rows = Server(given.engine or find_engine(), given.pip_config), []
    arguments = [f"--build-arg=PYTHON_VERSION={given.python}"] if given.python else []
    secret = [f"--secret=id=pip,src={given.pip_config}"] if given.pip_config else []
    try:
        for target in TARGETS:
            with row(rows, f"image `{target}`") as result:
                name, start = f"edgefront-{target}", time.monotonic()
                run([server.engine, "build", *arguments, *secret, "--target", target, "--tag", name, "."], limit_s=3600)
                size = int(run([server.engine, "image", "inspect", "--format", "{{.Size}}", name]))
                result.append(f"{size / 1e9:.2f} GB, built in {time.monotonic() - start:.0f} s")
        with row(rows, "up") as result:
            result.append(f"ready after {server.up():.0f} s")
            command = ["run", "--rm", "-T", "--no-deps", "--entrypoint", "cat", "migrate", "/setup/admin-key"]
            server.key = server.compose(*command).strip()
        for name, check in CHECKS.items():
            with row(rows, name) as result:
                result.append(check(server))
    finally:
        server.compose("--profile", "train", "down", "--volumes")
    print("\n| what | result |\n| --- | --- |")
    for name, text in rows:
        print(f"| {name} | {text.splitlines()[0]} |")
    return int(any("**failed**" in text for _, text in rows))


if __name__ == "__main__":
    sys.exit(main())
