"""What one user, one device or nobody may send as fast as they can, for `bench_floods.py`: a process of its own.

    python benchmarks/floods.py FLOOD '{"url": …, "key": …, "device": …, "job": …, "target": …, "seconds": 8}'

Prints how many answers there were by status.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

AT_ONCE = 24


class Sent(NamedTuple):
    """One request; `who`: user, device or nobody."""

    method: str
    path: str
    body: bytes = b""
    who: str = "user"


def deep(d_model: int) -> dict[str, Any]:
    """The longest description that there is, in few bytes."""
    letters = {"s": {"kind": "attention", "n_head": 4}, "f": {"kind": "feed_forward", "d_inner": 4 * d_model}}
    return {
        "d_model": d_model,
        "embedding": {"vocab_size": 50_000},
        "blocks": {"pattern": "(sf)x512", **letters},
    }


def posted(path: str, body: Any, who: str = "user") -> Sent:
    return Sent("POST", path, json.dumps(body, separators=(",", ":")).encode(), who)


def job(**changes: Any) -> dict[str, Any]:
    return {"space": {"name": "lts-gpt2"}, "targets": [{"device_class": "simulated board"}], **changes}


def _wide(fields: int) -> dict[str, int]:
    return {f"x{number:06}": 1 for number in range(fields)}


def floods(job_id: str, target: str) -> dict[str, Callable[[], list[Sent]]]:
    """Name → the requests that it sends, over and over."""
    job_path, of_target = f"/v1/jobs/{job_id}", f"target={target}"
    on_board = {"device_class": "simulated board"}

    def get(path: str, who: str = "user") -> Callable[[], list[Sent]]:
        return lambda: [Sent("GET", path, who=who)]

    def deepest(turn: int) -> Sent:
        models = [deep(64 * (1 + (64 * turn + number) % 1000)) for number in range(64)]
        return posted("/v1/predictions", {**on_board, "architectures": models})

    def log() -> list[Sent]:
        line = {"at": "2026-01-01T00:00:00Z", "level": "info", "message": "x" * 1000}
        return [posted("/v1/agents/log", {"lines": [line] * 200}, "device")]

    def reports() -> list[Sent]:
        wrong = {"reports": [{"result": {"latency": {"samples_ms": ["x"] * 700_000}}}]}
        return [posted("/v1/reports", wrong, "device")]

    return {
        "nothing": list,
        "predictions of one model": lambda: [posted("/v1/predictions", {**on_board, "architectures": ["gpt2-small"]})],
        "predictions of 64 models of 1,024 blocks": lambda: [deepest(turn) for turn in range(4)],
        "estimates of a space with few models": lambda: [
            posted("/v1/jobs/estimate", job(parameters={"max_decoder": most})) for most in range(700_000, 700_040)
        ],
        "costs of models of 1,024 blocks": lambda: [
            posted("/v1/catalogue/describe", deep(64 * width)) for width in range(1, 40)
        ],
        "candidates by speed-up, 500 a page": get(
            f"{job_path}/candidates?{of_target}&sort=-speedup&limit=500&text=mutate&offset=90000"
        ),
        "20,000 points": get(f"{job_path}/points?{of_target}&most=20000&min_latency_ms=0"),
        "recommendations": get(f"{job_path}/recommendation?max_latency_ms=20"),
        "frontiers": get(f"{job_path}/frontier"),
        "genes": get(f"{job_path}/genes"),
        "comparisons": get(f"/v1/comparison?job={job_id}"),
        "exports": get(f"{job_path}/candidates?format=csv"),
        "bodies of 300,000 fields": lambda: [posted("/v1/jobs", _wide(300_000))],
        "lists that are wrong throughout": lambda: [posted("/v1/jobs", {"targets": [1] * 1_300_000})],
        "reports that are wrong throughout": reports,
        "the same without a key": lambda: [posted("/v1/session", _wide(300_000), "nobody")],
        "readiness without a key": get("/v1/ready", "nobody"),
        "lines of a device's log": log,
        "leases of one device": lambda: [posted("/v1/leases", {"max_items": 1, "wait_s": 0}, "device")],
    }


class Held(NamedTuple):
    """Connections on which something is sent and nothing is read; each that ends is opened again at once."""

    connections: int
    sent: Callable[[], bytes]
    stays: bool = True
    """Whether it waits for the server to end it."""


def _get(path: str, key: str = "none") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def held(key: str) -> dict[str, Held]:
    """Name → connections."""
    return {
        "1,100 half-sent requests": Held(1100, lambda: b"GET /v1/health HTTP/1.1\r\nX: "),
        "3,000 half-sent requests": Held(3000, lambda: b"GET /v1/health HTTP/1.1\r\nX: "),
        "1,100 answers that nobody reads": Held(1100, lambda: 40 * _get("/static/style.css")),
        "200 documents that nobody reads": Held(200, lambda: _get("/v1/openapi.json", key)),
        "wrong keys": Held(16, lambda: _get("/v1/me", f"efk_{secrets.token_urlsafe(32)}"), stays=False),
    }


async def hold(flood: Held, url: str, end: float) -> Counter[str]:
    """How many connections were opened, and how many the server ended."""
    parts, counts = urlsplit(url), Counter[str]()

    async def one() -> None:
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
            except OSError as error:
                counts[type(error).__name__] += 1
                await asyncio.sleep(0.01)
                continue
            counts["opened"] += 1
            try:
                writer.write(flood.sent())
                await writer.drain()
                while flood.stays and time.monotonic() < end and not reader.at_eof() and not reader.exception():
                    await asyncio.sleep(0.05)
                counts["ended"] += flood.stays and time.monotonic() < end
            except OSError:
                counts["ended"] += 1
            writer.close()

    await asyncio.gather(*(one() for _ in range(flood.connections)))
    return counts


async def main(name: str, given: dict[str, Any]) -> None:
    connections = held(given["key"]).get(name)
    if connections is not None:
        print("ready", flush=True)
        print(json.dumps(await hold(connections, given["url"], time.monotonic() + given["seconds"])))
        return
    requests = itertools.cycle(floods(given["job"], given["target"])[name]())
    print("ready", flush=True)
    end = time.monotonic() + given["seconds"]
    counts: Counter[str] = Counter()
    heads = {
        "user": {"Authorization": f"Bearer {given['key']}"},
        "device": {"Authorization": f"Bearer {given['device']}"},
        "nobody": {},
    }

    async def send(client: httpx.AsyncClient) -> None:
        for request in requests:
            if time.monotonic() > end:
                return
            headers = {**heads[request.who], "Content-Type": "application/json"}
            try:
                answer = await client.request(
                    request.method, request.path, content=request.body or None, headers=headers
                )
                counts[str(answer.status_code)] += 1
                if answer.status_code == 429:
                    await asyncio.sleep(0.05)
            except httpx.HTTPError as error:
                counts[type(error).__name__] += 1

    limits = httpx.Limits(max_connections=AT_ONCE)
    async with httpx.AsyncClient(base_url=given["url"], limits=limits, timeout=120, trust_env=False) as client:
        await asyncio.gather(*(send(client) for _ in range(AT_ONCE)))
    print(json.dumps(counts))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
