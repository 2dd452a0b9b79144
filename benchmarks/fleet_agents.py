"""Simulated agents in a separate process, which send the requests of real agents without measuring.

Reads a JSON task on standard input and writes a JSON account on standard output; started by `bench_leases.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """The simulation to run.

    Attributes:
        secrets: API keys of the agents.
        cycle_s: an agent leases this often (batch · 60 / candidates a minute); 0: as soon as the response arrives.
        seconds: duration; launches that are leased then are reported before the end.
    """

    host: str
    port: int
    secrets: list[str]
    batch: int
    cycle_s: float
    seconds: float


@dataclass
class Account:
    """Milliseconds of each request by kind, and the launches handed out and accepted (launch, fencing token)."""

    lease_ms: list[float] = field(default_factory=list)
    report_ms: list[float] = field(default_factory=list)
    heartbeat_ms: list[float] = field(default_factory=list)
    handed_out: list[tuple[str, int]] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    empty: int = 0
    wall_s: float = 0.0
    late_ms: float = 0.0
    """Maximum delay of this process itself, which is not the server's fault."""


class Connection:
    """One keep-alive HTTP/1.1 connection."""

    def __init__(self, task: Task, secret: str) -> None:
        self.task = task
        head = f"host: {task.host}\r\nauthorization: Bearer {secret}\r\ncontent-type: application/json\r\n"
        self.head = head.encode()
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Any) -> tuple[int, bytes, float]:
        """Sends a POST. Returns status, body and milliseconds from the first byte sent to the last byte received."""
        content = json.dumps(body).encode()
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.task.host, self.task.port)
        reader, writer = self.streams
        begun = time.perf_counter()
        writer.write(b"POST %s HTTP/1.1\r\n%scontent-length: %d\r\n\r\n" % (path.encode(), self.head, len(content)))
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answer = await reader.readexactly(length)
        return int(head.split(b" ", 2)[1]), answer, 1e3 * (time.perf_counter() - begun)

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


class SimulatedAgent:
    def __init__(self, task: Task, index: int, account: Account, begin: float) -> None:
        self.task, self.account = task, account
        self.connection = Connection(task, task.secrets[index])
        self.rng = random.Random(index)
        self.next = begin + task.cycle_s * index / len(task.secrets)
        self.end = begin + task.seconds

    async def run(self) -> None:
        try:
            await self._until(self.next)
            while time.perf_counter() < self.end:
                await self._cycle()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.account.errors.append(repr(error))
        finally:
            self.connection.close()

    async def _cycle(self) -> None:
        status, answer, ms = await self.connection.post("/v1/leases", {"max_items": self.task.batch, "wait_s": 0.0})
        if status != 200:
            self.account.errors.append(f"lease {status} {answer[:200]!r}")
            await asyncio.sleep(1)
            return
        lease = json.loads(answer)
        if not lease["items"]:
            self.account.empty += 1
            await asyncio.sleep(0.5)
            return
        self.account.lease_ms.append(ms)
        self.account.handed_out += [(item["launch_id"], item["fence"]) for item in lease["items"]]
        await self._measure(lease)
        body = {
            "reports": [self._report(item) for item in lease["items"]],
            "busy_s": max(self.task.cycle_s, 0.1),
        }
        status, answer, ms = await self.connection.post("/v1/reports", body)
        if status != 200:
            self.account.errors.append(f"report {status} {answer[:200]!r}")
            return
        self.account.report_ms.append(ms)
        for receipt in json.loads(answer)["receipts"]:
            if receipt["outcome"] == "accepted":
                self.account.accepted.append(receipt["launch_id"])
            else:
                self.account.errors.append(f"receipt {receipt}")

    async def _measure(self, lease: dict[str, Any]) -> None:
        """Waits as long as measuring would take, and sends an agent's requests meanwhile."""
        if not self.task.cycle_s:
            return
        moments: list[tuple[float, str, str, Any]] = []
        beat = lease["heartbeat_s"]
        while beat < self.task.cycle_s:
            moments.append((self.next + beat, "heartbeat", f"/v1/leases/{lease['lease_id']}/heartbeat", {}))
            beat += lease["heartbeat_s"]
        for moment, kind, path, body in sorted(moments, key=lambda entry: entry[0]):
            await self._until(moment)
            status, answer, ms = await self.connection.post(path, body)
            if status >= 300:
                self.account.errors.append(f"{kind} {status} {answer[:200]!r}")
            getattr(self.account, f"{kind}_ms").append(ms)
        self.next += self.task.cycle_s
        await self._until(self.next)

    async def _until(self, moment: float) -> None:
        wait = moment - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
            self.account.late_ms = max(self.account.late_ms, 1e3 * (time.perf_counter() - moment))

    def _report(self, item: dict[str, Any]) -> dict[str, Any]:
        # As on a device, an architecture has equal figures at each launch; otherwise the launch would be repeated.
        architecture = item["architecture"]
        latency, memory = figures_of(architecture)
        samples = [round(latency * self.rng.uniform(0.99, 1.02), 6) for _ in range(7)]
        return {
            "launch_id": item["launch_id"],
            "fence": item["fence"],
            "result": {
                "outcome": "done",
                "latency": {"warmup_ms": samples[:2], "samples_ms": samples[2:]},
                "memory": {
                    "method": "anonymous",
                    "peak_bytes": memory,
                    "forward_peak_bytes": memory,
                    "build_peak_bytes": memory // 3,
                    "mapped_weight_bytes": 0,
                },
                "environment": {**_ENVIRONMENT, "load": round(self.rng.random(), 2)},
                "build_s": 0.05,
                "measuring_s": 1.7,
                "wall_s": 1.9,
            },
        }


def parameters_of(architecture: dict[str, Any]) -> float:
    """Returns the approximate number of parameters of this GPT-2; an exact count would take longer than the request."""
    d_model = float(architecture["d_model"])
    blocks = sum(2 * block["d_inner"] if "d_inner" in block else 4 * d_model for block in architecture["blocks"])
    return d_model * (float(architecture["embedding"]["vocab_size"]) + blocks)


def figures_of(architecture: dict[str, Any]) -> tuple[float, int]:
    """Returns milliseconds and bytes of a pass, by the parameters and slightly different for each architecture."""
    own, parameters = random.Random(str(architecture)), parameters_of(architecture)
    return 1.0 + 4e-6 * parameters * own.uniform(0.9, 1.1), int(4.0 * parameters * own.uniform(1.2, 1.4)) + (8 << 20)


_ENVIRONMENT = {
    "runtime": "onnxruntime 1.23.0",
    "python": "3.11.7",
    "agent": "0.1.0",
    "cores": "2,3",
    "governor": "performance",
    "frequency_mhz": 2450.0,
    "temperature_c": 51.0,
    "kernel": "6.1.0",
}


async def simulate(task: Task) -> Account:
    account = Account()
    begin = time.perf_counter() + 0.5
    agents = [SimulatedAgent(task, index, account, begin) for index in range(len(task.secrets))]
    await asyncio.gather(*(agent.run() for agent in agents))
    account.wall_s = time.perf_counter() - begin
    return account


if __name__ == "__main__":
    json.dump(asdict(asyncio.run(simulate(Task(**json.load(sys.stdin))))), sys.stdout)
