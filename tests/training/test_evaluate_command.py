"""The commands that evaluate and tune trained models, on data that was prepared as a user prepares it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import DESCRIPTIONS, lively, package
from squad_files import squad
from translators import translator
from typer.testing import CliRunner

from edgefront.cli.main import app
from edgefront.core.common.errors import EdgefrontError, InvalidInput
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.training.evaluation.package import write_package
from edgefront.core.training.evaluation.perplexity import first_token, perplexity
from edgefront.core.training.evaluation.translation import bleu, translate
from edgefront.core.training.finetune.tasks import Question
from edgefront.core.training.recipes.recipe import EvaluationSettings, Recipe


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def output_of(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output or done.exception
    return json.loads(done.stdout)


def lines(count: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    words = ["anna", "bruno", "sees", "knows", "the", "old", "red", "house", "garden"]
    return "".join(" ".join(rng.choice(words, rng.integers(2, 8))) + "\n" for _ in range(count))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(lines(200))
    return prepare(str(folder / "text.txt"), folder / "home", settings=Preparation(level="words", unit="line"))


def trained(folder: Path, data: Prepared, **recipe: Any) -> Path:
    model = lively({**DESCRIPTIONS["transformer-xl"], "embedding": {"vocab_size": data.vocab_size}})
    evaluation = {"segment": 8, "memory": 12, "rows": 1, "same_length": True}
    whole = Recipe(name="quick", evaluation=evaluation, **recipe)
    write_package(folder, model, data.tokenizer(), {"dataset": "lines", "recipe": whole.model_dump(mode="json")})
    return folder


@pytest.mark.parametrize("task", ["streams", "sentences"])
def test_perplexity_is_that_of_the_recipes_evaluation(task: str, data: Prepared, tmp_path: Path) -> None:
    folder = trained(tmp_path / "model", data, task=task)
    output = output_of("evaluate", folder, "--data", data.folder, "--split", "valid")
    model = lively({**DESCRIPTIONS["transformer-xl"], "embedding": {"vocab_size": data.vocab_size}})
    wanted = perplexity(
        model,
        data.split("valid"),
        EvaluationSettings(segment=8, memory=12, rows=1, same_length=True),
        device="cpu",
        sentences=task == "sentences",
        begin=first_token(data.tokenizer(), task),
    )
    tokens = len(data.split("valid").tokens)
    # A sentence's first word is predicted too, and of running text all but the first word of all.
    assert output["tokens"] == wanted.tokens == tokens - (task == "streams")
    assert output["loss"] == pytest.approx(wanted.loss)
    assert output["word_perplexity"] == pytest.approx(wanted.word_perplexity)
    assert output["split"] == "valid"
    assert output["data_digest"] == data.digest
    other = output_of(
        "evaluate", folder, "--data", data.folder, "--memory", 1, "--segment", 3, "--any-length", "--rows", 2
    )
    assert other["evaluation"] == {"segment": 3, "memory": 1, "clamp": None, "same_length": False, "rows": 2}
    assert "perplexity" in run("evaluate", folder, "--data", data.folder, "--max-tokens", 20).stdout


def test_translations_are_scored(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text(lines(40, seed=1))
    (tmp_path / "en.txt").write_text(lines(40, seed=2))
    data = prepare(
        str(tmp_path / "de.txt"),
        tmp_path / "home",
        target=tmp_path / "en.txt",
        settings=Preparation(level="words", valid_percent=20, test_percent=20),
    )
    source = {**translator().architecture.canonical["source"], "embedding": {"vocab_size": data.source_vocab_size}}
    model = translator(vocabulary=data.vocab_size, spread=0.2, source=source)
    write_package(tmp_path / "model", model, data.tokenizer(), {}, data.source_tokenizer())
    output = output_of("evaluate", tmp_path / "model", "--data", data.folder, "--beam", 2, "--limit", 4)
    split, tokenizer = data.split("test"), data.tokenizer()
    assert split.source is not None
    wanted = translate(model, split.source, split, tokenizer, device="cpu", end=tokenizer.eos, beam=2, sentences=4)
    assert output["sentences"] == len(wanted.hypotheses) == 4
    assert output["bleu"] == pytest.approx(wanted.bleu.score)
    assert bleu(wanted.references, wanted.references).score == pytest.approx(100)
    assert "tok:13a" in output["signature"]


def test_models_that_cannot_be_evaluated_are_reported(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained(tmp_path / "model", data)
    for arguments, said in (
        ((), "either --data or --tasks"),
        (("--data", data.folder, "--tasks", "x"), "either --data or --tasks"),
        (("--data", data.folder, "--split", "dev"), "has no split 'dev'"),
        (("--data", tmp_path), "is prepared in"),
    ):
        done = run("evaluate", folder, *arguments)
        assert isinstance(done.exception, EdgefrontError), done.output
        assert said in str(done.exception)
    other = package(tmp_path / "bytes").folder
    wrong = run("evaluate", other, "--data", data.folder).exception
    assert isinstance(wrong, InvalidInput)
    assert "has 11 tokens, and this model 256" in str(wrong)
    # As many tokens, but others: their perplexity would be a number without a meaning.
    (tmp_path / "text.txt").write_text(lines(200).replace("anna", "otto"))
    settings = Preparation(level="words", unit="line")
    others = prepare(str(tmp_path / "text.txt"), tmp_path / "home", settings=settings)
    assert others.vocab_size == data.vocab_size
    wrong = run("evaluate", folder, "--data", others.folder).exception
    assert isinstance(wrong, InvalidInput)
    assert "11 tokens, as this model, but not the same ones" in str(wrong)
    vocabulary = settings.model_copy(update={"vocabulary": str(folder / "vocabulary.txt")})
    ours = prepare(str(tmp_path / "text.txt"), tmp_path / "data", settings=vocabulary)
    monkeypatch.setenv("EDGEFRONT_HOME", str(tmp_path))
    assert output_of("evaluate", folder, "--data", "text.txt")["data_digest"] == ours.digest


def test_an_encoder_is_tuned_on_files(tmp_path: Path) -> None:
    pieces = BPETokenizer.train(iter([lines(20)]), 300)
    embedding = {"vocab_size": pieces.vocab_size, "segments": 2}
    write_package(tmp_path / "model", lively({**DESCRIPTIONS["bert"], "embedding": embedding}), pieces, {})
    rows = [(f"{'red' if index % 2 else 'old'} house", index % 2) for index in range(12)]
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    questions = [Question(str(index), "what", text, (("house", 4),)) for index, (text, _) in enumerate(rows)]
    squad(tmp_path / "rows.json", questions)
    for form, scores in (("tsv", {"accuracy", "f1", "matthews"}), ("json", {"exact_match", "f1"})):
        path = tmp_path / f"rows.{form}"
        output = output_of(
            "finetune", tmp_path / "model", "--train", path, "--test", path, "--epochs", 6, "--rows", 6, "--lr", 0.01
        )
        assert set(output["scores"]) == scores
        assert max(output["scores"].values()) > 90
        assert len(output["predictions"]) == 12


@pytest.mark.parametrize(("positions", "expected"), [({"kind": "learned", "length": 24}, 24), (None, 1024)])
def test_a_model_without_a_recipe_is_read_its_context_at_a_time(
    positions: dict[str, Any] | None, expected: int, data: Prepared, tmp_path: Path
) -> None:
    described = {**DESCRIPTIONS["gpt2"], "embedding": {"vocab_size": data.vocab_size}}
    model = lively(described | {"positions": positions or {"kind": "rotary"}})
    write_package(tmp_path / "model", model, data.tokenizer(), {})
    output = output_of("evaluate", tmp_path / "model", "--data", data.folder)["evaluation"]
    assert (output["segment"], output["memory"], output["rows"]) == (expected, 0, 1024 // expected)
    less = output_of("evaluate", tmp_path / "model", "--data", data.folder, "--memory", 8)["evaluation"]
    assert (less["segment"], less["memory"]) == (min(1024, (24 if positions else 4096) - 8), 8)
    assert (
        output_of("evaluate", tmp_path / "model", "--data", data.folder, "--segment", 5)["evaluation"]["segment"] == 5
    )
