"""The embedded service trains for real: data, torch, perplexity, and a model that can be downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefront import Client
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.spaces.architecture import Architecture
from edgefront.embedded.service import EmbeddedService

ARCHITECTURE = {
    "version": 1,
    "d_model": 16,
    "positions": {"kind": "learned", "length": 64},
    "embedding": {"vocab_size": 50264, "cutoffs": [19997, 39997], "div": 4},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 32}],
}
RECIPE = {
    "steps": 30,
    "rows": 4,
    "segment": 16,
    "checkpoint_every": 5,
    "schedule": {"warmup": 2},
    "evaluation": {"segment": 16, "rows": 4, "every": 15},
}


def test_a_real_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFRONT_TRAINING", json.dumps({"poll_s": 0.2, "threads": 1, "gpus": 0}))
    home, text = tmp_path / "home", tmp_path / "text"
    text.mkdir()
    (text / "all.txt").write_text("the quick brown fox jumps over the lazy dog. \n" * 400, encoding="utf-8")
    data = prepare(str(text), home / "data", settings=None)
    with EmbeddedService(home, port=0, agent=False, isolated=True), Client(home=home) as client:
        asked = {"architecture": ARCHITECTURE, "dataset": data.name, "overrides": RECIPE, "name": "fox"}
        (made,) = client.trainings.create(asked)
        done = client.trainings.wait(made.id, timeout_s=180)
        assert done.state == "done", (done.reason, client.trainings.log(made.id))
        assert (done.step, done.attempts, done.digest) == (30, 0, Architecture.parse(ARCHITECTURE).digest)
        scores = {(score.split, score.metric): score.value for score in done.evaluations}
        assert 1 < scores["valid", "perplexity"] < data.vocab_size
        steps = [item.step for item in client.trainings.metrics(made.id)]
        assert steps == sorted(set(steps))
        assert steps[-1] == 30
        client.trainings.download(made.id, tmp_path / "model")
        kept = json.loads((tmp_path / "model" / "architecture.json").read_text(encoding="utf-8"))
        assert kept == done.trained
        assert kept["embedding"]["vocab_size"] == data.vocab_size
        assert (tmp_path / "model" / "model.safetensors").stat().st_size > 1000
