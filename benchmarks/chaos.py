"""Kills a team's server and its devices at random instants under real jobs, and checks the rows.

Its own Postgres, Redis, API, Celery worker and agents, each a process that is killed by its id and started again; real
agents measure real models with ONNX Runtime, beside devices that lie. One owner's large job takes all the time that
there is; another owner asks for small ones meanwhile. Agents replace their credentials all the time. At the end
everything is up, what is under way ends, and the rows are checked: each launch counted once, no gap in the logs, each
frontier moocore's over the raw launches, nothing on it that cannot be, and how long each owner waited. A lie that is
possible counts as a result, beside those of other launches: no device judges another.

    python benchmarks/chaos.py [--minutes 30] [--kills-per-minute 12] [--agents 2] [--liars 1] [--seed 0]

Needs the binaries of Postgres and Redis. Exits with 1 if anything is wrong, and then keeps its logs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from chaos_checks import Account, check
from chaos_processes import ROOT, Program, Stack
from from_tests import from_tests
from record import append, table

from edgefront.core.common.states import LaunchState
from edgefront.core.schemas.service import EnrolmentTokenRequest
from edgefront.core.services.access.keys import Principal, create_key
from edgefront.core.services.fleet.devices import create_enrolment_token
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Launch

servers = from_tests("servers")
CLASS = "chaos"
WEIGHTS = {"agent": 4, "api": 2, "worker": 3, "postgres": 2, "redis": 3}
"""How often each is killed, in proportion."""
SPACE = {"name": "lts-gpt2", "narrow": {"n_layer": {"max": 4}, "d_model": [128, 192], "d_inner": {"max": 768}}}
SETTINGS = {
    "EDGEFRONT_LEASES__TTL_S": "10",
    "EDGEFRONT_LEASES__HEARTBEAT_S": "2",
    "EDGEFRONT_LEASES__SWEEP_S": "1",
}
TRUSTED_EVERY_S = 30.0
QUIET_S = 120.0
"""Seconds that what is under way gets to end."""


@dataclass
class Owner:
    """Somebody who asks for one job after another. `iterations` of `population` candidates each."""

    name: str
    key: str
    iterations: int
    population: int
    job: str | None = None
    wanted: str = ""
    submitted: int = 0

    def tend(self, http: httpx.Client, seed: int) -> None:
        """Submits the next job once the last one has ended. What gets no answer is asked again."""
        headers = {"Authorization": f"Bearer {self.key}"}
        if self.job is not None:
            state = http.get(f"/v1/jobs/{self.job}", headers=headers).raise_for_status().json()["state"]
            if state in ("running", "paused"):
                return
            self.job = None
        self.wanted = self.wanted or uuid.uuid4().hex
        settings = {"iterations": self.iterations, "population": self.population}
        asked: dict[str, Any] = {
            "name": f"{self.name} {self.submitted}",
            "space": SPACE,
            "targets": [{"device_class": CLASS}],
            "algorithm": {"name": "lts", "settings": settings},
            "epsilon": 0.0,
            "seed": seed + self.submitted,
        }
        made = http.post("/v1/jobs", json=asked, headers={**headers, "Idempotency-Key": self.wanted})
        self.job = made.raise_for_status().json()["id"]
        self.submitted += 1
        self.wanted = ""


@contextmanager
def team(folder: Path, given: argparse.Namespace) -> Iterator[tuple[Stack, Database, list[Owner], str, str]]:
    """Everything, running: the stack, its database, the owners, the API's URL, an admin's key."""
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
            asked = EnrolmentTokenRequest(minutes=24 * 60, uses=given.agents + given.liars)
            principal = Principal("chaos", "admin", "admin", "admin")
            token.write_text(create_enrolment_token(session, principal, asked, now)[1])
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
        for number in range(given.agents):
            name = f"agent-{number}"
            where = [f"--data-dir={folder / name}", f"--name={name}", f"--token-file={token}"]
            commands[name] = ["-m", "edgefront", "agent", f"--server={url}", *where, f"--device-class={CLASS}"]
        for number in range(given.liars):
            (folder / f"liar-{number}").mkdir()
            lies = [str(ROOT / "benchmarks" / "chaos_liar.py"), url, str(folder / f"liar-{number}"), str(token)]
            commands[f"liar-{number}"] = [*lies, f"--device-class={CLASS}", f"--seed={given.seed}"]
        programs = [Program(name, command, environment, folder / f"{name}.log") for name, command in commands.items()]
        stack = Stack({"redis": redis, "postgres": postgres}, programs)
        ending.callback(stack.close)
        redis.start()
        for program in programs:
            program.start()
        yield stack, database, [Owner("ada", keys["ada"], 30, 24), Owner("bob", keys["bob"], 2, 4)], url, keys["admin"]


def disturb(stack: Stack, owners: list[Owner], url: str, admin: str, given: argparse.Namespace) -> int:
    """Kills at random instants, while the owners go on asking; returns how often a liar was in quarantine.

    An admin trusts it again every half a minute, so that it continues to lie.
    """
    rng = random.Random(given.seed)
    names = {
        kind: [name for name in (*stack.servers, *stack.programs) if name.split("-")[0] == kind] for kind in WEIGHTS
    }
    kinds = [kind for kind in WEIGHTS if names[kind]]
    with httpx.Client(base_url=url, timeout=5, trust_env=False) as http:
        stack.tend_until(lambda: _answers(http), 60)
        end = time.monotonic() + 60 * given.minutes
        next_kill = time.monotonic() + 10.0
        next_trust, caught = time.monotonic() + TRUSTED_EVERY_S, 0
        while (now := time.monotonic()) < end:
            stack.tend()
            if now >= next_kill:
                kind = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
                stack.kill(rng.choice(names[kind]), rng.choice((0.0, 0.2, 1.0, 4.0)) * rng.random())
                next_kill += rng.expovariate(given.kills_per_minute / 60)
            for number, owner in enumerate(owners):
                with suppress(httpx.HTTPError):
                    owner.tend(http, 1000 * given.seed + 100_000 * number)
            if now >= next_trust:
                next_trust = now + TRUSTED_EVERY_S
                caught += sum(_trusted_again(http, f"liar-{number}", admin) for number in range(given.liars))
            time.sleep(0.05)
    return caught


def _trusted_again(http: httpx.Client, name: str, admin: str) -> bool:
    """Lets a device back; whether it was in quarantine."""
    headers = {"Authorization": f"Bearer {admin}"}
    with suppress(httpx.HTTPError):
        device = http.get(f"/v1/devices/{name}", headers=headers).raise_for_status().json()
        if device["quarantine"] is not None:
            return http.post(f"/v1/devices/{name}/trust", headers=headers).is_success
    return False


def settle(stack: Stack, database: Database) -> None:
    """Everything up again; then the agents deliver what they have, and all reports are settled."""
    stack.tend_until(stack.all_up, 60)
    stack.tend_until(lambda: False, 15)
    for name in [name for name in stack.programs if name.startswith(("agent", "liar"))]:
        stack.programs.pop(name).stop()

    def quiet() -> bool:
        with database.read() as session:
            states = (LaunchState.LEASED, LaunchState.REPORTED)
            return session.query(Launch).filter(Launch.state.in_(states)).first() is None

    stack.tend_until(quiet, QUIET_S)
    stack.tend_until(lambda: False, 2)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/v1/ready").status_code == 200
    except httpx.HTTPError:
        return False


def show(stack: Stack, account: Account, jobs: int, caught: int) -> None:
    table("Killed", [{"what": kind, "times": stack.kills[kind]} for kind in WEIGHTS])
    counts = {**{f"launches {state}": count for state, count in sorted(account.launches.items())}}
    counts |= {
        "jobs": jobs,
        "events": account.events,
        "frontier points": account.frontier,
        "lies": account.lies,
        "quarantines": caught,
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
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="edgefront-chaos-"))
    with team(folder, given) as (stack, database, owners, url, admin):
        caught = disturb(stack, owners, url, admin, given)
        settle(stack, database)
        account = check(database, folder.glob("liar-*/answers.jsonl"), len(os.sched_getaffinity(0)))
        with database.read() as session:
            jobs = session.query(Job).count()
    show(stack, account, jobs, caught)
    append(
        "chaos",
        {
            **vars(given),
            "kills": dict(stack.kills),
            "launches": dict(account.launches),
            "jobs": jobs,
            "events": account.events,
            "frontier": account.frontier,
            "lies": account.lies,
            "quarantines": caught,
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
