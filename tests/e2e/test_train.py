"""The embedded service trains for real: data, torch, perplexity, and a model that can be downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from packages import lively

from edgefront import Client
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.model_files.model_file import as_folder, write_model
from edgefront.core.training.evaluation.package import read_package, write_package
from edgefront.core.training.pruning.study import PruningStudySettings, study_pruning, write_pruning_study
from edgefront.core.training.pruning.submodel import explicit_blocks, submodel
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


def test_a_training_starts_from_an_imported_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFRONT_TRAINING", json.dumps({"poll_s": 0.2, "threads": 1, "gpus": 0}))
    home, text, folder = tmp_path / "home", tmp_path / "text", tmp_path / "fox-model"
    text.mkdir()
    (text / "all.txt").write_text("the quick brown fox jumps over the lazy dog. \n" * 400, encoding="utf-8")
    tokenizer = BPETokenizer.train(iter(["the quick brown fox jumps over the lazy dog"]), 270)
    padded = tokenizer.vocab_size + 10  # as published models' embeddings are
    model = lively({**ARCHITECTURE, "embedding": {"vocab_size": padded}}, spread=0.02)
    write_package(tmp_path / "ours", model, tokenizer, {"name": "fox"})
    ours = read_package(tmp_path / "ours")
    with as_folder(folder, "transformers", force=False) as place:
        write_model(ours.architecture, "transformers", ours.weights, place, "float32", ours.hugging_face_files())
    card = folder / "README.md"
    card.write_text(card.read_text(encoding="utf-8").replace("license: unknown", "license: mit"), encoding="utf-8")
    other = prepare(str(text), home / "data", settings=Preparation(level="bpe", vocab_size=280))
    data = prepare(
        str(text), home / "data", settings=Preparation(level="bpe", vocabulary=str(folder / "tokenizer.json"))
    )
    with EmbeddedService(home, port=0, agent=False, isolated=True), Client(home=home) as client:
        imported = client.trainings.import_model(folder)
        assert (imported.kind, imported.state, imported.name, imported.licence) == (
            "import",
            "done",
            "fox-model",
            "mit",
        )
        asked = {
            "architecture": ours.architecture.canonical,
            "dataset": data.digest,
            "overrides": {**RECIPE, "steps": 4, "optimizer": {"lr": 1e-9}, "schedule": {"warmup": 0, "min_lr": 0}},
            "start": imported.id,
        }
        with pytest.raises(InvalidInput, match=rf"train download {imported.id} .* --vocabulary FOLDER/tokenizer.json"):
            client.trainings.create({**asked, "dataset": other.digest})
        (made,) = client.trainings.create(asked)
        done = client.trainings.wait(made.id, timeout_s=180)
        assert done.state == "done", (done.reason, client.trainings.log(made.id))
        assert (done.start, done.licence) == (imported.id, "mit")
        assert done.result is not None
        assert done.result["start"]["training"] == imported.id
        assert done.trained is not None
        assert done.trained["embedding"]["vocab_size"] == padded == data.vocab_size + 10
        client.trainings.download(made.id, tmp_path / "trained")
        trained = dict(read_package(tmp_path / "trained").model().named_parameters())
        for name, values in model.named_parameters():  # so slowly trained that they are nearly the imported ones
            assert torch.allclose(trained[name], values, atol=1e-4), name
        assert client.trainings.download_model(imported.id, "gguf", tmp_path / "fox.gguf").stat().st_size > 1000
        assert client.trainings.import_model(tmp_path / "fox.gguf").digest == imported.digest


def test_a_part_of_a_trained_model_is_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFRONT_TRAINING", json.dumps({"poll_s": 0.2, "threads": 1, "gpus": 0}))
    home, text = tmp_path / "home", tmp_path / "text"
    text.mkdir()
    (text / "all.txt").write_text("the quick brown fox jumps over the lazy dog. \n" * 400, encoding="utf-8")
    data = prepare(str(text), home / "data", settings=None)
    model = {**ARCHITECTURE, "embedding": {"vocab_size": data.vocab_size}}
    recipe = {**RECIPE, "optimizer": {"lr": 0.003}}
    with EmbeddedService(home, port=0, agent=False, isolated=True), Client(home=home) as client:
        asked = {"architecture": model, "dataset": data.name, "overrides": recipe, "name": "fox", "licence": "mit"}
        (parent,) = client.trainings.create(asked)
        trained = client.trainings.wait(parent.id, timeout_s=180)
        assert (trained.state, trained.step) == ("done", 30), (trained.reason, client.trainings.log(parent.id))
        scores = {(score.split, score.metric): score.value for score in trained.evaluations}
        assert 1 < scores["valid", "perplexity"] < data.vocab_size
        (weights,) = home.rglob(f"{parent.id}/result/model.safetensors")
        package = read_package(weights.parent)
        settings = PruningStudySettings(calibration_tokens=256, tokens=256, segment=16, combinations=4)
        write_pruning_study(study_pruning(package, open_prepared(data.folder), "fox", settings), package.folder)
        blocks = list(explicit_blocks(package.architecture))
        blocks[1] = blocks[1].model_copy(update={"d_inner": 24})
        part = dict(submodel(package.architecture, blocks, 16).canonical)
        asked = {"architecture": part, "dataset": data.name, "recipe": "distil", "overrides": recipe, "inherit": True}
        with pytest.raises(InvalidInput, match="start is missing"):
            client.trainings.create(asked)
        (child,) = client.trainings.create(asked | {"start": parent.id, "name": "kit"})
        done = client.trainings.wait(child.id, timeout_s=180)
        assert done.state == "done", (done.reason, client.trainings.log(child.id))
        assert (done.start, done.inherit, done.licence) == (parent.id, True, "mit")
        reported = [item for item in client.trainings.metrics(child.id) if item.loss is not None]
        assert all(0 <= item.extra["divergence"] < 1 for item in reported)
        assert done.result is not None
        assert {name: done.result["parent"][name] for name in ("name", "training", "licence")} == {
            "name": "fox",
            "training": parent.id,
            "licence": "mit",
        }
        assert done.result["cut"]["d_inner"] == {"from": [32, 32], "to": [24, 24]}
        assert done.result["teacher"]["training"] == parent.id
        client.trainings.download(child.id, tmp_path / "model")
        assert "| parent | fox, " in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
