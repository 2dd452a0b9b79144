"""A device that sends false reports by the real protocol: impossible or false memory, impossible speed, invented
crashes, reports about other devices' launches, duplicate reports, and hoarded leases.

Started by `chaos.py`. Its folder keeps its credential, and `answers.jsonl` with the server's response to each false
report.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from record import from_tests

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.schemas.agent import EnrolRequest

MARK = {"agent": "liar"}
"""Environment of false reports, by which the checks identify them."""


def _report(item: dict[str, Any], latency_ms: float, peak_bytes: int) -> dict[str, Any]:
    samples = [latency_ms] * 5
    return {
        "launch_id": item["launch_id"],
        "fence": item["fence"],
        "result": {
            "outcome": "done",
            "latency": {"warmup_ms": samples[:2], "samples_ms": samples},
            "memory": {
                "method": "anonymous",
                "peak_bytes": peak_bytes,
                "forward_peak_bytes": peak_bytes,
                "build_peak_bytes": peak_bytes,
            },
            "environment": MARK,
            "measuring_s": min(3600.0, 7 * latency_ms / 1e3),
            "wall_s": min(7200.0, 7 * latency_ms / 1e3 + 0.2),
        },
    }


def _crash(item: dict[str, Any]) -> dict[str, Any]:
    failed = {"outcome": "failed", "reason": "crashed", "message": "signal 11", "environment": MARK, "wall_s": 0.2}
    return {"launch_id": item["launch_id"], "fence": item["fence"], "result": failed}


LIES: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    "light": lambda item, _weights: _report(item, 50.0, 5),
    "fast": lambda item, weights: _report(item, 0.001, 2 * weights),
    "both": lambda item, _weights: _report(item, 0.001, 5),
    "half": lambda item, weights: _report(item, 10.0, int(1.02 * weights)),
    "crash": lambda item, _weights: _crash(item),
    "endless": lambda item, weights: _report(item, 3.5e6, 2 * weights),
}
"""Functions that make a false report from a launch and the bytes of its weights."""


class Liar:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(f"{seed} {folder.name} {time.time_ns()}")
        self._http = httpx.Client(base_url=url, timeout=20, trust_env=False)
        self._answers = (folder / "answers.jsonl").open("a")

    def join(self, token: str, device_class: str) -> None:
        credential = self._folder / "credential"
        while not credential.exists():
            request = EnrolRequest(
                name=self._folder.name, device_class=device_class, facts=from_tests("simulated_agent").facts()
            )
            try:
                answer = self._post("/v1/agents/enrol", request.model_dump(mode="json"), bearer=token)
            except httpx.HTTPError:
                time.sleep(0.5)
                continue
            if answer.status_code == 409:
                raise SystemExit("enrolled already, and the credential did not arrive")
            if answer.is_success:
                credential.write_text(answer.json()["credential"])
        self._http.headers["Authorization"] = f"Bearer {credential.read_text()}"

    def lie(self) -> None:
        """Leases few or many launches, and sends false reports, duplicates, none, or reports about guessed launches."""
        hoards = self._rng.random() < 0.1
        request = {"max_items": 32, "wait_s": 0.0} if hoards else {"max_items": self._rng.randint(1, 2), "wait_s": 5.0}
        answer = self._post("/v1/leases", request)
        if not answer.is_success:
            time.sleep(1.0)
            return
        for item in answer.json()["items"]:
            kind = self._rng.choice([*LIES, "silent", "another's"])
            if hoards or kind == "silent":
                continue
            weights = costs(Architecture.parse(item["architecture"])).weight_bytes
            if kind == "another's":
                guessed = item["launch_id"][:-1] + self._rng.choice("0123456789abcdefghjkmnpqrstvwxyz")
                report = LIES["both"]({"launch_id": guessed, "fence": 1}, weights)
            else:
                report = LIES[kind](item, weights)
            if self._rng.random() < 0.2:
                self._post("/v1/reports", {"reports": [report, report], "busy_s": 0.1})
            answer = self._post("/v1/reports", {"reports": [report], "busy_s": 0.1})
            outcome = answer.json()["receipts"][0]["outcome"] if answer.is_success else f"http {answer.status_code}"
            self._answers.write(json.dumps({"kind": kind, "launch": report["launch_id"], "outcome": outcome}) + "\n")
            self._answers.flush()
        time.sleep(self._rng.uniform(0.5, 2.0))

    def _post(self, path: str, body: Any, bearer: str | None = None) -> httpx.Response:
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        return self._http.post(path, json=body, headers=headers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("token", type=Path)
    parser.add_argument("--device-class", required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    liar = Liar(options.url, options.folder, options.seed)
    liar.join(options.token.read_text().strip(), options.device_class)
    while True:
        try:
            liar.lie()
        except httpx.HTTPError:
            time.sleep(0.5)


if __name__ == "__main__":
    main()
