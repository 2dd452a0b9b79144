"""Kills a team's server and its devices at random under real jobs, and checks the rows afterwards.

Starts its own Postgres, Redis, API, Celery worker and agents, kills them by their process ids and restarts them. Real
agents measure real models with ONNX Runtime, beside devices that send false reports. One owner has a large job that
never ends; another submits small ones meanwhile. At the end everything is up, running work ends, and the rows are
checked: each launch counted once, no gap in the logs, each frontier equal to moocore's over the raw launches, nothing
impossible on it, and how long each owner waited. A false report of a possible result counts as a result.

    python benchmarks/chaos.py [--minutes 30] [--kills-per-minute 12] [--agents 2] [--liars 1] [--seed 0]

Needs the binaries of Postgres and Redis. Exits with 1 if anything is wrong, and then keeps its logs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import httpx
from chaos_checks import Account, check
from record import append, from_tests, table

from edgefront.core.common.states import LaunchState
from edgefront.core.schemas.service import EnrolmentTokenRequest
from edgefront.core.services.access.keys import Principal, create_key
from edgefront.core.services.fleet.devices import create_enrolment_token
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Launch

ROOT = Path(__file__).resolve().parents[1]
servers = from_tests("servers")
CLASS = "chaos"
WEIGHTS = {"agent": 4, "api": 2, "worker": 3, "postgres": 2, "redis": 3}
"""Relative frequency of kills."""
SPACE = {"name": "lts-gpt2", "narrow": {"n_layer": {"max": 4}, "d_model": [128, 192], "d_inner": {"max": 768}}}
SETTINGS = {
    "EDGEFRONT_LEASES__TTL_S": "10",
    "EDGEFRONT_LEASES__HEARTBEAT_S": "2",
    "EDGEFRONT_LEASES__SWEEP_S": "1",
}
TRUSTED_EVERY_S = 30.0
QUIET_S = 120.0
"""Maximum seconds for running work to end."""


class Server(Protocol):
    """Postgres or Redis as a child process (`tests/servers.py`)."""

    def start(self) -> None: ...
    def kill(self) -> None: ...


class Program:
    """A Python program with a log, in its own session, so that its children can be ended with the program."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._command = [sys.executable, *command]
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Sends SIGKILL to the program only; its children have to detect its end."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ended(self) -> int | None:
        """Returns the program's exit code if the program has ended, else None."""
        return None if self._process is None else self._process.poll()

    def stop(self, seconds: float = 60.0) -> bool:
        """Sends SIGTERM, then kills the rest of the session. Returns whether the program ended in time."""
        if self._process is None:
            return True
        with suppress(ProcessLookupError):
            self._process.terminate()
        in_time = True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            in_time = False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return in_time


class Stack:
    """All servers and programs: restarts killed ones after a delay, and counts programs that ended by themselves."""

    def __init__(self, servers: Mapping[str, Server], programs: Sequence[Program]) -> None:
        self.servers = dict(servers)
        self.programs = {program.name: program for program in programs}
        self.kills: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Programs that ended without being killed, with their exit code."""
        self._down: dict[str, float] = {}

    def start(self) -> None:
        for program in (*self.servers.values(), *self.programs.values()):
            program.start()

    def kill(self, name: str, down_s: float) -> None:
        """Kills the server or program unless it is down already, and restarts it after `down_s`."""
        if name in self._down:
            return
        (self.servers.get(name) or self.programs[name]).kill()
        self.kills[name.split("-")[0]] += 1
        self._down[name] = time.monotonic() + down_s

    def restart_due(self) -> None:
        """Restarts servers and programs whose delay is over. Call often."""
        now = time.monotonic()
        for name, at in list(self._down.items()):
            if at <= now:
                del self._down[name]
                (self.servers.get(name) or self.programs[name]).start()
        for name, program in self.programs.items():
            if name not in self._down and (code := program.ended()) is not None:
                self.ended[f"{name} ({code})"] += 1
                self._down[name] = now + 1.0

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Keeps everything running until `done`, at most for `seconds`; returns whether it is done."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            self.restart_due()
            time.sleep(0.1)
        return True

    def all_up(self) -> bool:
        return not self._down

    def close(self) -> None:
        for program in self.programs.values():
            program.stop(5.0)


@dataclass
class Owner:
    """A user who submits one job after another, of `iterations` times `population` candidates."""

    name: str
    key: str
    iterations: int
    population: int
    job: str | None = None
    idempotency_key: str = ""
    submitted: int = 0

    def submit_next(self, http: httpx.Client, seed: int) -> None:
        """Submits the next job once the previous one has ended; retries a request without a response."""
        headers = {"Authorization": f"Bearer {self.key}"}
        if self.job is not None:
            state = http.get(f"/v1/jobs/{self.job}", headers=headers).raise_for_status().json()["state"]
            if state in ("running", "paused"):
                return
            self.job = None
        self.idempotency_key = self.idempotency_key or uuid.uuid4().hex
        settings = {"iterations": self.iterations, "population": self.population}
        request: dict[str, Any] = {
            "name": f"{self.name} {self.submitted}",
            "space": SPACE,
            "targets": [{"device_class": CLASS}],
            "algorithm": {"name": "lts", "settings": settings},
            "epsilon": 0.0,
            "seed": seed + self.submitted,
        }
        response = http.post("/v1/jobs", json=request, headers={**headers, "Idempotency-Key": self.idempotency_key})
        self.job = response.raise_for_status().json()["id"]
        self.submitted += 1
        self.idempotency_key = ""


@contextmanager
def team(folder: Path, options: argparse.Namespace) -> Iterator[tuple[Stack, Database, list[Owner], str, str]]:
    """Yields the running stack, its database, the owners, the API's URL and an admin's key."""
    with ExitStack() as ending:
        postgres = ending.enter_context(closing(servers.OwnPostgres()))
        redis = ending.enter_context(closing(servers.OwnRedis()))
        postgres.start()
        database = Database(postgres.url)
        ending.callback(database.dispose)
        database.migrate()
        token, keys = folder / "token", {}
        with database.write() as session:
            now = database.now(session)
            for name, role in (("admin", "admin"), ("ada", "user"), ("bob", "user")):
                _, keys[name] = create_key(session, name=name, owner=name, role=role, now=now)  # type: ignore[arg-type]
            request = EnrolmentTokenRequest(minutes=24 * 60, uses=options.agents + options.liars)
            principal = Principal("chaos", "admin", "admin", "admin")
            token.write_text(create_enrolment_token(session, principal, request, now)[1])
        port = servers.free_port()
        url = f"http://127.0.0.1:{port}"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_")},
            **SETTINGS,
            "PYTHONPATH": str(ROOT),
            "EDGEFRONT_DATABASE__URL": postgres.url,
            "EDGEFRONT_BROKER__URL": redis.url,
            "EDGEFRONT_HOME": str(folder / "home"),
            "EDGEFRONT_HTTP__PORT": str(port),
            "EDGEFRONT_MEASURE_LOCK": str(folder / "measure.lock"),
        }
        celery = ["-m", "celery", "--app=edgefront.workers.app", "worker", "--pool=solo", "--loglevel=info"]
        commands = {"api": ["-m", "edgefront.api"], "worker": celery}
        for number in range(options.agents):
            name = f"agent-{number}"
            where = [f"--data-dir={folder / name}", f"--name={name}", f"--token-file={token}"]
            commands[name] = ["-m", "edgefront", "agent", f"--server={url}", *where, f"--device-class={CLASS}"]
        for number in range(options.liars):
            (folder / f"liar-{number}").mkdir()
            lies = [str(ROOT / "benchmarks" / "chaos_liar.py"), url, str(folder / f"liar-{number}"), str(token)]
            commands[f"liar-{number}"] = [*lies, f"--device-class={CLASS}", f"--seed={options.seed}"]
        programs = [Program(name, command, environment, folder / f"{name}.log") for name, command in commands.items()]
        stack = Stack({"redis": redis, "postgres": postgres}, programs)
        ending.callback(stack.close)
        redis.start()
        for program in programs:
            program.start()
        yield stack, database, [Owner("ada", keys["ada"], 30, 24), Owner("bob", keys["bob"], 2, 4)], url, keys["admin"]


def disturb(stack: Stack, owners: list[Owner], url: str, admin: str, options: argparse.Namespace) -> int:
    """Kills at random while the owners submit jobs; returns the number of quarantines of lying devices.

    An admin ends each quarantine every half a minute.
    """
    rng = random.Random(options.seed)
    names = {
        kind: [name for name in (*stack.servers, *stack.programs) if name.split("-")[0] == kind] for kind in WEIGHTS
    }
    kinds = [kind for kind in WEIGHTS if names[kind]]
    with httpx.Client(base_url=url, timeout=5, trust_env=False) as http:
        stack.run_until(lambda: _answers(http), 60)
        end = time.monotonic() + 60 * options.minutes
        next_kill = time.monotonic() + 10.0
        next_trust, quarantines = time.monotonic() + TRUSTED_EVERY_S, 0
        while (now := time.monotonic()) < end:
            stack.restart_due()
            if now >= next_kill:
                kind = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
                stack.kill(rng.choice(names[kind]), rng.choice((0.0, 0.2, 1.0, 4.0)) * rng.random())
                next_kill += rng.expovariate(options.kills_per_minute / 60)
            for number, owner in enumerate(owners):
                with suppress(httpx.HTTPError):
                    owner.submit_next(http, 1000 * options.seed + 100_000 * number)
            if now >= next_trust:
                next_trust = now + TRUSTED_EVERY_S
                quarantines += sum(_end_quarantine(http, f"liar-{number}", admin) for number in range(options.liars))
            time.sleep(0.05)
    return quarantines


def _end_quarantine(http: httpx.Client, name: str, admin: str) -> bool:
    """Ends a device's quarantine; returns whether it was in one."""
    headers = {"Authorization": f"Bearer {admin}"}
    with suppress(httpx.HTTPError):
        device = http.get(f"/v1/devices/{name}", headers=headers).raise_for_status().json()
        if device["quarantine"] is not None:
            return http.post(f"/v1/devices/{name}/trust", headers=headers).is_success
    return False


def finish(stack: Stack, database: Database) -> None:
    """Restarts everything, lets the agents deliver their reports, and waits until all are processed."""
    stack.run_until(stack.all_up, 60)
    stack.run_until(lambda: False, 15)
    for name in [name for name in stack.programs if name.startswith(("agent", "liar"))]:
        stack.programs.pop(name).stop()

    def quiet() -> bool:
        with database.read() as session:
            states = (LaunchState.LEASED, LaunchState.REPORTED)
            return session.query(Launch).filter(Launch.state.in_(states)).first() is None

    stack.run_until(quiet, QUIET_S)
    stack.run_until(lambda: False, 2)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/v1/ready").status_code == 200
    except httpx.HTTPError:
        return False


def show(stack: Stack, account: Account, jobs: int, quarantines: int) -> None:
    table("Killed", [{"what": kind, "times": stack.kills[kind]} for kind in WEIGHTS])
    counts = {**{f"launches {state}": count for state, count in sorted(account.launches.items())}}
    counts |= {
        "jobs": jobs,
        "events": account.events,
        "frontier points": account.frontier,
        "lies": account.lies,
        "quarantines": quarantines,
    }
    table("Counted", [{"what": what, "count": count} for what, count in counts.items()])
    violations = {**account.violations, "program ended by itself": sum(stack.ended.values())}
    table("Violations", [{"what": what, "count": count} for what, count in violations.items()])
    waits = [
        {"owner": owner, "jobs": len(waits_s), "median s": median(waits_s), "longest s": max(waits_s)}
        for owner, waits_s in sorted(account.waits_s.items())
    ]
    table("Waited from a job's submission to its first result", waits)
    for what, which in account.examples.items():
        print(f"{what}: {which}")
    for which, times in stack.ended.items():
        print(f"ended by itself: {which}, {times} times")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills-per-minute", type=float, default=12.0)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--liars", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="edgefront-chaos-"))
    with team(folder, options) as (stack, database, owners, url, admin):
        quarantines = disturb(stack, owners, url, admin, options)
        finish(stack, database)
        account = check(database, folder.glob("liar-*/answers.jsonl"), len(os.sched_getaffinity(0)))
        with database.read() as session:
            jobs = session.query(Job).count()
    show(stack, account, jobs, quarantines)
    append(
        "chaos",
        {
            **vars(options),
            "kills": dict(stack.kills),
            "launches": dict(account.launches),
            "jobs": jobs,
            "events": account.events,
            "frontier": account.frontier,
            "lies": account.lies,
            "quarantines": quarantines,
            "violations": dict(account.violations),
            "ended": dict(stack.ended),
            "waits_s": {
                owner: {"jobs": len(found), "median": round(median(found), 2), "longest": round(max(found), 2)}
                for owner, found in account.waits_s.items()
            },
        },
    )
    wrong = account.violations.total() + stack.ended.total()
    if wrong:
        print(f"{wrong} violations; the logs are in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
