"""What another user and another device wait for while one floods the service: a real team's server on loopback.

Its own Postgres, Redis, API and worker. Eve has a finished job of many candidates and a device; each flood
(`floods.py`) is sent by 24 connections of another process for some seconds, or more connections are held. Meanwhile
bob's device leases and reports, bob reads the jobs and the devices, and asks who he is with keys of his that were never
used, each over a new connection. Printed are milliseconds of each kind of request: median, 95th percentile, longest
(and their number), the answers that eve got, and the load of the machine.

    python benchmarks/bench_floods.py [--seconds 8] [--candidates 100000] [--only NAME …] [--code FOLDER]

All go through the proxy of docker-compose.yml, which here leaves one address as many requests as it likes.
`--connections` is `EDGEFRONT_HTTP__CONNECTIONS` of the API; `--code` names the folder of another version of the project
that the servers run. Needs the binaries of Postgres, Redis and nginx.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from chaos_processes import ROOT, Program
from floods import floods, held
from from_tests import from_tests
from record import append, table
from sqlalchemy import select

from edgefront.core.services.access.keys import DeviceCredential, create_key
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Target

servers, large_job = from_tests("servers"), from_tests("large_job")
simulated_agent, simulated_service = from_tests("simulated_agent"), from_tests("simulated_service")
PAUSE_S = 0.02
NEW_KEYS_PER_S = 40
"""Keys of bob that were never used, for each second of each flood: more than one thread can begin with."""


@contextmanager
def team(folder: Path, given: argparse.Namespace) -> Iterator[tuple[dict[str, Any], str, list[str]]]:
    """What eve has (as `floods.py` takes it), the secrets of bob's device and of bob."""
    with ExitStack() as ending:
        postgres = ending.enter_context(closing(servers.OwnPostgres()))
        redis = ending.enter_context(closing(servers.OwnRedis()))
        postgres.start()
        redis.start()
        database = Database(postgres.url)
        ending.callback(database.dispose)
        database.migrate()
        service = simulated_service.Service(database)
        agent = simulated_agent.SimulatedAgent(database, simulated_agent.by_work)
        service.submit(simulated_service.request(budget={"refinement": 0.0}))
        service.run(agent)
        job_id = large_job.fill(database, given.candidates, "eve")
        devices = {name: _busy_device(database, name) for name in ("eve", "bob")}
        with database.write() as session:
            now = database.now(session)
            new = {"role": "user", "now": now}
            key = create_key(session, name="eve", owner="eve", **new)[1]
            count = 1 + given.floods * int(NEW_KEYS_PER_S * given.seconds)
            bobs = [create_key(session, name=f"bob {number}", owner="bob", **new)[1] for number in range(count)]
            target = session.scalars(select(Target.id).where(Target.job_id == job_id)).one()
        port = servers.free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_")},
            "PYTHONPATH": str(given.code),
            "PYTHONSAFEPATH": "1",  # the working directory does not come first
            "EDGEFRONT_DATABASE__URL": postgres.url,
            "EDGEFRONT_BROKER__URL": redis.url,
            "EDGEFRONT_HOME": str(folder / "home"),
            "EDGEFRONT_HTTP__PORT": str(port),
            "EDGEFRONT_HTTP__REQUESTS_PER_MINUTE": str(given.rate),
            "EDGEFRONT_HTTP__CONNECTIONS": str(given.connections),
            "EDGEFRONT_HTTP__TRUSTED_PROXIES": "127.0.0.1",
        }
        celery = ["-m", "celery", "--app=edgefront.workers.app", "worker", "--pool=solo", "--loglevel=warning"]
        for name, command in {"api": ["-m", "edgefront.api"], "worker": celery}.items():
            program = Program(name, command, environment, folder / f"{name}.log")
            program.start()
            ending.callback(program.stop, 20)
            if name == "api":
                started = program
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            assert started.ended() is None, (folder / "api.log").read_text()
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/v1/health", trust_env=False).is_success:
                    break
            time.sleep(0.1)
        bounds = {"REQUESTS": given.connections * 3 // 4, "ADDRESS_CONNECTIONS": 65_000}
        url = ending.enter_context(servers.own_nginx(f"127.0.0.1:{port}", **bounds)).url
        eve = {"url": url, "key": key, "device": devices["eve"], "job": job_id, "target": target}
        yield eve, devices["bob"], bobs


def _busy_device(database: Database, owner: str) -> str:
    """A device of the owner with a thousand launches to make; its credential."""
    board = f"board of {owner}"
    service = simulated_service.Service(database)
    service.user = simulated_agent.principal(database, owner)
    agent = simulated_agent.SimulatedAgent(database, simulated_agent.by_work, device_class=board)
    random = {"name": "random", "settings": {"population": 1000, "iterations": 1}}
    service.submit(
        simulated_service.request(
            space={"name": "lts-gpt2"}, targets=[{"device_class": board}], algorithm=random, baseline_layers=[1, 2]
        )
    )
    for _ in range(4):  # the baselines
        agent.step(2)
        service.work()
    with database.write() as session:
        now = database.now(session)
        made = create_key(
            session, name=board, owner=owner, role="agent", now=now, credential=DeviceCredential(agent.device_id)
        )
    return str(made[1])


class Others:
    """Bob, his device, and somebody who asks for the health: milliseconds of each of their requests."""

    def __init__(self, url: str, device: str, keys: list[str]) -> None:
        self.ms: dict[str, list[float]] = {}
        self.errors: list[str] = []
        self._url, self._device, self._key, self._keys = url, device, keys[0], keys
        self._ending = threading.Event()
        parts = (self._measure, self._read, self._health, self._begin)
        self._threads = [threading.Thread(target=part, daemon=True) for part in parts]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(150)

    def _client(self, secret: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {secret}"}
        return httpx.Client(base_url=self._url, headers=headers, timeout=120, trust_env=False)

    def _timed(self, kind: str, ask: Callable[[], httpx.Response]) -> Any:
        begun = time.perf_counter()
        try:
            answer = ask()
        except httpx.HTTPError as error:
            self.errors.append(f"{kind}: {error!r}")
            return None
        self.ms.setdefault(kind, []).append(1e3 * (time.perf_counter() - begun))
        if not answer.is_success:
            self.errors.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
            return None
        self._ending.wait(PAUSE_S)
        return answer.json()

    def _measure(self) -> None:
        with self._client(self._device) as client:
            while not self._ending.is_set():
                lease = self._timed("lease", lambda: client.post("/v1/leases", json={"max_items": 1, "wait_s": 0}))
                for item in (lease or {}).get("items", ()):
                    body = {"reports": [_report(item)], "busy_s": 0.02}
                    self._timed("report", lambda body=body: client.post("/v1/reports", json=body))

    def _read(self) -> None:
        with self._client(self._key) as client:
            while not self._ending.is_set():
                for path in ("/v1/jobs", "/v1/devices", "/v1/me"):
                    self._timed("GET", lambda path=path: client.get(path))

    def _health(self) -> None:
        with self._client("none") as client:
            while not self._ending.is_set():
                self._timed("health", lambda: client.get("/v1/health"))

    def _begin(self) -> None:
        while not self._ending.is_set() and len(self._keys) > 1:
            with self._client(self._keys.pop()) as client:
                self._timed("new key", lambda client=client: client.get("/v1/me"))


def _report(item: dict[str, Any]) -> dict[str, Any]:
    """What a launch of a moment came to: a device that claims more time than it held the lease is not believed."""
    result = simulated_agent.done(1.0 + 1e-3 * item["architecture"]["d_model"], int(1e8)).model_dump(mode="json")
    result |= {"build_s": 0.001, "measuring_s": 0.01, "wall_s": 0.012}
    return {"launch_id": item["launch_id"], "fence": item["fence"], "result": result}


def measure(name: str, eve: dict[str, Any], device: str, keys: list[str], seconds: float) -> dict[str, Any]:
    """A row: what the others waited for during one flood."""
    others = Others(eve["url"], device, keys)
    command = [sys.executable, str(ROOT / "benchmarks" / "floods.py"), name, json.dumps({**eve, "seconds": seconds})]
    flood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert flood.stdout is not None
    assert flood.stdout.readline() == "ready\n"
    others.start()
    time.sleep(seconds)
    load = os.getloadavg()[0]
    others.stop()
    answers = flood.communicate(timeout=300)[0].strip()
    shown = {kind: _spread(ms) for kind, ms in sorted(others.ms.items())}
    for error in sorted(set(others.errors))[:3]:
        print(f"  {name}: {error}", file=sys.stderr)
    return {
        "flood": name, **{kind: shown.get(kind, "none") for kind in ("lease", "report", "GET", "health", "new key")},
        "failed": len(others.errors), "answers": answers, "load": round(load, 1),
    }  # fmt: skip


def _spread(found: list[float]) -> str:
    ordered = sorted(found)
    high = ordered[int(0.95 * (len(ordered) - 1))]
    return f"{median(ordered):.0f} / {high:.0f} / {ordered[-1]:.0f} ({len(ordered)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=6000, help="requests a minute of one key")
    parser.add_argument("--connections", type=int, default=4096)
    parser.add_argument("--only", nargs="*", help="floods whose names contain one of these")
    parser.add_argument("--code", type=Path, default=ROOT)
    given = parser.parse_args()
    every = [*floods("", ""), *held("")]
    names = [name for name in every if not given.only or any(part in name for part in given.only)]
    given.floods = len(names)
    with tempfile.TemporaryDirectory() as folder, team(Path(folder), given) as (eve, device, keys):
        rows = []
        for name in names:
            rows.append(measure(name, eve, device, keys, given.seconds))
            print(json.dumps(rows[-1]), file=sys.stderr)
    table("Milliseconds that others waited: median / 95 % / longest", rows)
    append("floods", {"code": "this" if given.code == ROOT else "another", "seconds": given.seconds, "rows": rows})


if __name__ == "__main__":
    main()
