"""What lm-evaluation-harness asks of a model, against passes over whole texts; and the harness itself where it is.

It is an extra of its own (300 MB): where it is not installed, the command has to say how to get it.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packages import DESCRIPTIONS, lively, package
from translators import translator
from typer.testing import CliRunner

from edgefront.cli.main import app
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer
from edgefront.core.training.evaluation.generate import Sampling, generate
from edgefront.core.training.evaluation.package import Package, read_package, write_package
from edgefront.core.training.evaluation.scoring import TextScorer
from edgefront.core.training.recipes.recipe import Recipe

CAUSAL = [name for name in DESCRIPTIONS if name != "bert"]


@torch.no_grad()
def nats(package: Package, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    scores = torch.log_softmax(package.model()(torch.tensor([[*context, *continuation[:-1]]]))[0].double(), -1)
    after = scores[len(context) - 1 :]
    wanted = torch.tensor(continuation)
    return float(after.gather(1, wanted[:, None]).sum()), bool((after.argmax(-1) == wanted).all())


@pytest.mark.parametrize("name", CAUSAL)
def test_continuations_are_scored_after_their_contexts(name: str, tmp_path: Path) -> None:
    found = package(tmp_path, name)
    scorer, rng = TextScorer(found, rows=2), np.random.default_rng(0)
    pairs = [(rng.integers(0, 256, a).tolist(), rng.integers(0, 256, b).tolist()) for a, b in ((3, 5), (9, 1), (1, 2))]
    greedy = generate(found.model(), pairs[0][0], 4, Sampling(temperature=0))
    pairs.append((pairs[0][0], greedy))
    for (context, continuation), (total, is_greedy) in zip(pairs, scorer.score(pairs), strict=True):
        wanted = nats(found, context, continuation)
        assert total == pytest.approx(wanted[0], rel=1e-4)
        assert is_greedy == wanted[1]
    assert scorer.score(pairs)[3][1]
    assert scorer.score([([3], [])])[0][0] == 0


def test_text_is_cut_into_tokens_as_a_whole(tmp_path: Path) -> None:
    pieces = BPETokenizer.train(iter(["the cat sat on the mat"] * 4), 290)
    description = {**DESCRIPTIONS["srupp"], "embedding": {"vocab_size": pieces.vocab_size}}
    write_package(tmp_path, lively(description), pieces, {})
    scorer = TextScorer(read_package(tmp_path))
    # The space belongs to the word after it, wherever the cut between context and continuation was made.
    assert scorer.encoded("the cat", " sat") == scorer.encoded("the cat ", "sat")
    context, continuation = scorer.encoded("the cat", " sat on")
    assert context + continuation == pieces.encode("the cat sat on")
    assert scorer.encoded("", "mat") == ([pieces.eos], pieces.encode("mat"))
    words = tmp_path / "words"
    vocabulary = WordTokenizer(["<eos>", "<unk>", *(f"w{number}" for number in range(254))])
    write_package(words, lively(DESCRIPTIONS["sru"]), vocabulary, {})
    assert TextScorer(read_package(words)).encoded("w1 w2 ", "w3") == ([3, 4], [5])


def test_a_whole_text_is_predicted_once_in_windows_of_the_models_length(tmp_path: Path) -> None:
    text = "".join(np.random.default_rng(1).choice(list("abc de\n"), 97))
    tokens, newline = list(text.encode()), ord("\n")
    for name in ("gpt2", "transformer-xl"):
        found = package(tmp_path / name, name)
        said = TextScorer(found, rows=3).whole(text)
        if name == "transformer-xl":
            assert said == pytest.approx(nats(found, [newline], tokens)[0], rel=1e-4)
            continue
        # 40 positions: two full windows, and a last one that begins early enough to be full as well.
        windows = [
            nats(found, [newline], tokens[:40]),
            nats(found, tokens[39:40], tokens[40:80]),
            nats(found, tokens[56:80], tokens[80:]),
        ]
        assert said == pytest.approx(sum(window for window, _ in windows), rel=1e-4)
    assert TextScorer(found).whole("") == 0


def test_memory_and_clamp_are_those_of_the_evaluation(tmp_path: Path) -> None:
    evaluation = {"segment": 4, "memory": 5, "clamp": 3, "same_length": True}
    recipe = Recipe(name="quick", evaluation=evaluation).model_dump(mode="json")
    found = package(tmp_path, recipe=recipe)
    rng = np.random.default_rng(0)
    context, continuation = rng.integers(0, 256, 9).tolist(), rng.integers(0, 256, 12).tolist()
    model, total = found.model(), 0.0
    model.positions.max_relative_distance = 3
    state = model.init_cache(1)
    with torch.no_grad():
        for place, token in enumerate([*context, *continuation][:-1]):
            scores, state = model(torch.tensor([[token]]), cache=state)
            state = state.keep(5)
            if place >= 8:
                total += float(torch.log_softmax(scores[0, 0].double(), -1)[continuation[place - 8]])
    assert TextScorer(found).score([(context, continuation)])[0][0] == pytest.approx(total, rel=1e-4)


def test_writing_stops_at_the_first_of_the_texts_to_stop_at(tmp_path: Path) -> None:
    for name in ("gpt2", "srupp"):
        found = package(tmp_path / name, name)
        scorer, greedy = TextScorer(found), Sampling(temperature=0)
        whole = scorer.write("Once", 20, [], greedy)
        assert whole == ByteTokenizer().decode(generate(found.model(), list(b"Once"), 20, greedy))
        stop = whole[5:7]
        assert scorer.write("Once", 20, ["never there", stop], greedy) == whole[: whole.index(stop)]
        assert scorer.write("", 3, [], greedy)
    # More than the model's positions: the beginning of the context goes.
    found = package(tmp_path / "gpt2", "gpt2")
    long = "x" * 100 + "Once upon"
    assert TextScorer(found).write(long, 10, [], greedy) == TextScorer(found).write(long[-31:], 10, [], greedy)


def test_models_that_do_not_predict_the_next_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="predict the next token"):
        TextScorer(package(tmp_path / "bert", "bert"))
    tokenizer = WordTokenizer(["<eos>", "<unk>", "a", "b", "c", "d"])
    write_package(tmp_path / "translator", translator(), tokenizer, {}, ByteTokenizer(range(9)))
    with pytest.raises(InvalidInput, match="predict the next token"):
        TextScorer(read_package(tmp_path / "translator"))


def test_a_vocabulary_without_line_feeds_begins_with_a_space(tmp_path: Path) -> None:
    for characters, begin in (("abc d", 3), ("abcde", 0), ("ab\nc", 2)):
        description = {**DESCRIPTIONS["sru"], "embedding": {"vocab_size": len(characters)}}
        write_package(tmp_path, lively(description), CharacterTokenizer(characters), {})
        assert TextScorer(read_package(tmp_path)).begin == begin


TASKS = {
    "choice": {
        "task": "ef_choice",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}} ",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}],
    },
    "rolling": {
        "task": "ef_rolling",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "byte_perplexity"}],
    },
    "writing": {
        "task": "ef_writing",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{written}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 6},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def tasks_in(folder: Path, found: Package) -> list[dict[str, Any]]:
    """Local tasks over five questions, the right answers being what the model itself says."""
    scorer, rng = TextScorer(found), np.random.default_rng(0)
    documents = []
    for _ in range(5):
        question = "".join(rng.choice(list("abcdefgh"), 12))
        choices = ["".join(rng.choice(list("abcdefgh"), 4)) for _ in range(3)]
        said = scorer.score([scorer.encoded(f"{question} ", choice) for choice in choices])
        documents.append(
            {
                "question": question,
                "choices": choices,
                "answer": int(np.argmax([nats for nats, _ in said])),
                "written": scorer.write(question, 6, ["\n"], Sampling(temperature=0)),
            }
        )
    folder.mkdir()
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in documents))
    for name, task in TASKS.items():
        common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({**task, **common}))
    return documents


def evaluate(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["evaluate", *arguments])


def test_the_harness_runs_local_tasks_or_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = package(tmp_path / "model", "srupp")
    documents = tasks_in(tmp_path / "tasks", found)
    for name in ("HF_HOME", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = ["--tasks", "ef_choice,ef_rolling,ef_writing", "--include", str(tmp_path / "tasks"), "--json"]
    done = evaluate(str(found.folder), *named)
    if find_spec("lm_eval") is None:
        assert "pip install 'edgefront-lm[eval]'" in str(done.exception)
        assert "lm_eval" not in sys.modules
        return
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)["tasks"]
    # By construction the model's own choice is the right one, and what it writes the right answer.
    assert results["ef_choice"]["acc"] == 1
    assert results["ef_writing"]["exact_match"] == 1
    scorer = TextScorer(found)
    whole = sum(scorer.whole(document["question"]) for document in documents)
    letters = sum(len(document["question"]) for document in documents)
    assert results["ef_rolling"]["byte_perplexity"] == pytest.approx(np.exp(-whole / letters), rel=1e-5)
    with pytest.raises(InvalidInput, match="no task 'ef_missing'"):
        raise evaluate(str(found.folder), "--tasks", "ef_missing").exception
