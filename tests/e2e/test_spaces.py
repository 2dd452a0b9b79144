"""A small job on every search space, measured for real on both runtimes by the embedded service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefront import Client
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.wire.jobs import JobView
from edgefront.embedded.service import EmbeddedService
from edgefront.workflows.up import agent_is_ready

TINY: dict[str, dict[str, Any]] = {
    "lts-gpt2": {"n_layer": [2], "d_model": [128], "d_inner": [256, 320], "n_head": [2, 4]},
    "lts-transformer-xl": {"n_layer": [2], "d_model": [128], "d_inner": [256, 320]},
    "lts-opt": {"n_layer": [3], "d_model": [512], "d_inner": [512, 1024]},
    "par-32": {"n_block": [2, 3, 4], "d_model": [128], "d_inner": [512], "div": [4]},
    "srupp": {"n_layer": [2, 3], "d_model": [256], "d_embed": [128]},
    "bert": {"n_block": [2, 3], "d_model": [128], "d_inner": [256]},
    "hybrid": {"n_block": [2, 3, 4], "d_model": [128], "d_inner": [256]},
    "llama": {"n_layer": [2, 3], "d_model": [128], "d_inner": [0, 256], "n_head": [0, 2, 4], "vocab_size": 8192},
    "lfm": {"n_layer": [2, 3], "d_model": [128], "d_inner": [256], "window": [0, 64], "vocab_size": 8192},
}
FORWARD = {"sequence_length": 16, "memory_length": 0}
SEGMENT = {"sequence_length": 8, "memory_length": 16}
DECODE = {"mode": "decode", "memory_length": 16}
INT8 = {"mode": "prefill", "sequence_length": 16, "weights": "int8"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The embedded service with its own agent, ready to measure."""
    home: Path = tmp_path_factory.mktemp("home")
    with EmbeddedService(home, port=0, isolated=True) as service, Client(service.url, service.key) as made:
        end = time.monotonic() + 120
        while not agent_is_ready(made, service):
            assert time.monotonic() < end
            time.sleep(0.1)
        yield made


def targets(name: str, index: int) -> list[dict[str, Any]]:
    """Each runtime with a pass of its own; over the spaces both get all of them."""
    passes = [FORWARD, FORWARD] if name == "bert" else [[FORWARD, DECODE], [SEGMENT, INT8]][index // 2 % 2]
    runtimes = ("onnxruntime", "pytorch") if index % 2 else ("pytorch", "onnxruntime")
    shared = {"repeats": 1, "logits": "last"}
    return [
        {"name": runtime, "device": "local", "protocol": {"runtime": runtime, **shared, **fields}}
        for runtime, fields in zip(runtimes, passes, strict=True)
    ]


def test_jobs_on_every_space_end_with_a_frontier_on_both_runtimes(client: Client) -> None:
    assert set(TINY) == set(spaces())
    submitted: dict[str, JobView] = {}
    for index, (name, narrow) in enumerate(TINY.items()):
        submitted[name] = client.jobs.create(
            {
                "name": name,
                "space": {"name": name, "narrow": narrow},
                "targets": targets(name, index),
                "algorithm": {"name": "random", "settings": {"population": 2}},
                "budget": {"candidates": 2, "refinement": 0},
                "baseline_layers": [1],
                "seed": 5,
            }
        )
    for name, job in submitted.items():
        ended = client.jobs.wait(job.id, timeout_s=240)
        assert ended.state == "finished", (name, ended.reason)
        for target in ended.targets:
            points = client.frontier(job.id, target=target.id).points
            assert points, (name, target.name, target.note)
            for point in points:
                assert point.latency_ms is not None
                assert point.memory_bytes is not None
