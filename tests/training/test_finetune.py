"""Encoders are tuned to tasks of GLUE's and SQuAD's form, which are scored as their official scripts do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from packages import DESCRIPTIONS, lively
from squad_files import squad
from tokenizers import Tokenizer as HuggingFace
from tokenizers import models, pre_tokenizers

from edgefront.core.common.errors import Diverged, InvalidInput
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.finetune.finetune import (
    FineTuning,
    Row,
    SpecialTokens,
    accuracy,
    answer_f1,
    exact_match,
    f1,
    fine_tune,
    matthews,
    pearson,
    scores_of,
    spearman,
    squad_scores,
    with_head,
)
from edgefront.core.training.finetune.tasks import (
    Examples,
    Question,
    _Layout,
    answer_questions,
    classify,
    read_questions,
    read_table,
    word_spans,
)

WORDS = ["good", "bad", "film", "plot", "actor", "scene", "story", "the", "was", "a", "very", "quite"]
WORDS += ["rather", "indeed", "name", "answer", "is", "not"]
QUICK = FineTuning(epochs=8, rows=8, lr=4e-3, dropout=0.0)


@cache
def bpe() -> BPETokenizer:
    return BPETokenizer.train(iter([" ".join(WORDS)] * 3), 340)


@cache
def word_pieces(folder: Path) -> BPETokenizer:
    """A WordPiece vocabulary in BERT's form."""
    # Written down rather than learnt: the trainer breaks ties by chance.
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]"]
    pieces = [*special, *WORDS]
    model = HuggingFace(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.add_special_tokens(special)
    (folder / "tokenizer.json").write_text(model.to_str())
    return BPETokenizer.from_file(folder / "tokenizer.json")


def encoder(vocabulary: int, **changes: Any) -> LanguageModel:
    embedding = {"vocab_size": vocabulary, "segments": 2, "norm": True}
    return lively(
        {"positions": {"kind": "learned", "length": 64}, **DESCRIPTIONS["bert"], "embedding": embedding, **changes},
        spread=0.1,
    )


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    fillers = WORDS[2:]
    made = []
    for index in range(count):
        words = list(rng.choice(fillers, 5))
        words.insert(int(rng.integers(0, 6)), WORDS[index % 2])
        made.append(" ".join(words))
    return made


def table(path: Path, head: str, rows: list[str]) -> Path:
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["bpe", "WordPiece"])
def test_a_class_of_a_sentence_is_learnt(kind: str, tmp_path: Path) -> None:
    tokenizer = bpe() if kind == "bpe" else word_pieces(tmp_path)
    files = [
        table(
            tmp_path / f"{name}.tsv",
            "index\tsentence\tlabel",
            [f"{i}\t{text}\t{'yes' if 'good' in text else 'no'}" for i, text in enumerate(sentences(count, seed))],
        )
        for name, count, seed in (("train", 40, 1), ("dev", 20, 2))
    ]
    train, test = map(read_table, files)
    body = encoder(tokenizer.vocab_size)
    before = body.embedding.tables[0].clone()
    found = classify(body, tokenizer, train, test, QUICK)
    right = [predicted == other for predicted, other in zip(found.predictions, test.labels, strict=True)]
    assert found.scores["accuracy"] == 100 * np.mean(right)
    assert found.scores["accuracy"] > 85
    assert found.scores["matthews"] > 70
    assert set(found.predictions) == {"no", "yes"}
    assert len(found.losses) == 8 * 5
    assert found.model.architecture.output.classes == 2
    assert torch.equal(body.embedding.tables[0], before)  # the model that was given stays as it was
    once = QUICK.model_copy(update={"epochs": 1})
    assert classify(body, tokenizer, train, test, once).losses == classify(body, tokenizer, train, test, once).losses


def test_a_row_of_a_table_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    path = tmp_path / "sst.tsv"
    path.write_bytes("sentence\tlabel\r\none\rtwo\u2028three\t1\r\nfour\t0\r\n".encode("utf-8-sig"))
    found = read_table(path)
    assert (found.first, found.labels) == (["one\rtwo\u2028three", "four"], ["1", "0"])


def test_a_number_is_regressed_on(tmp_path: Path) -> None:
    def rows(count: int, seed: int) -> list[str]:
        one, other = sentences(count, seed), sentences(count, seed + 50)
        texts = [f"{text} {other[index // 2]}" for index, text in enumerate(one)]
        return [f"{text}\t{text.split().count('good') + 0.5}" for text in texts]

    train, test = (read_table(table(tmp_path / str(n), "text\tscore", rows(n, n))) for n in (48, 20))
    assert train.is_regression
    found = classify(encoder(bpe().vocab_size), bpe(), train, test, QUICK.model_copy(update={"epochs": 12}))
    assert found.scores["pearson"] > 60
    assert found.scores["spearman"] > 50
    assert len(found.predictions) == 20


@pytest.mark.parametrize(
    ("kind", "classes", "target", "output"), [("classes", 2, 0, 0.1), ("spans", None, (0, 1), 0.0)]
)
def test_dropout_is_where_bert_has_it(kind: Any, classes: int | None, target: Any, output: float) -> None:
    tuned, seen = with_head(encoder(bpe().vocab_size), kind, classes), set()
    rows = [Row([1, 2, 3], [0, 0, 0], target)]
    fine_tune(tuned, rows, FineTuning(epochs=1), progress=lambda *_: seen.add(tuned.dropout))
    assert seen == {Dropout(embedding=0.1, hidden=0.1, inner=0.0, attention=0.1, output=output)}
    assert tuned.dropout == NO_DROPOUT


def test_classes_read_a_pooled_vector_that_is_dropped_after_its_tanh() -> None:
    """As BertForSequenceClassification: tanh, dropout, linear layer; in the loss as in the scores of a regression."""
    tuned = with_head(encoder(99), "classes", 3).train()
    tuned.dropout = Dropout(inner=0.0, output=0.5)
    tokens = torch.randint(5, 99, (4, 7), generator=torch.Generator().manual_seed(0))
    hidden = tuned(tokens, "none")
    pooled = torch.tanh(tuned.output.pooler(hidden[:, 0]))
    torch.manual_seed(1)
    expected = tuned.output.classes(torch.nn.functional.dropout(pooled, 0.5))
    torch.manual_seed(1)
    assert torch.equal(tuned(tokens), expected)
    targets = torch.tensor([0, 1, 2, 0])
    torch.manual_seed(1)
    losses = torch.nn.functional.cross_entropy(expected, targets, reduction="none")
    assert torch.equal(tuned.token_losses(hidden, targets), losses)
    assert torch.equal(tuned.eval()(tokens), tuned.output.classes(pooled))


def test_pairs_are_laid_out_as_in_bert(tmp_path: Path) -> None:
    path = table(tmp_path / "pairs", "id\tsentence1\tsentence2\tlabel", ['0\tgood "film\tbad plot\t1', "1\ta\tb\t0"])
    pairs = read_table(path)
    assert pairs == Examples(['good "film', "a"], ["bad plot", "b"], ["1", "0"])
    tokenizer, seen = bpe(), []
    model = encoder(tokenizer.vocab_size)
    found = classify(model, tokenizer, pairs, pairs, FineTuning(epochs=1, rows=2, max_length=8))
    assert set(found.scores) == {"accuracy", "f1", "matthews"}

    from edgefront.core.training.finetune import tasks

    cls, sep = tokenizer.special["<cls>"], tokenizer.special["<sep>"]
    for row in tasks._rows(found.model, tokenizer, pairs, {"0": 0, "1": 1}, 8):
        seen.append(row)
        split = row.tokens.index(sep)
        assert (row.tokens[0], row.tokens[-1], len(row.tokens) <= 8) == (cls, sep, True)
        assert row.segments == [0] * (split + 1) + [1] * (len(row.tokens) - split - 1)
    assert [row.target for row in seen] == [1, 0]
    assert seen[1].tokens == [cls, *tokenizer.encode("a"), sep, *tokenizer.encode("b"), sep]


def test_padding_changes_no_score() -> None:
    model = with_head(encoder(99), "classes", 3)
    rows = [Row(list(range(5, 5 + n)), [0] * n) for n in (9, 2, 5)]
    together = scores_of(model, rows)
    for row, scores in zip(rows, together, strict=True):
        np.testing.assert_allclose(scores_of(model, [row])[0], scores, rtol=1e-4, atol=1e-6)


def test_a_head_is_added_to_the_trained_body() -> None:
    body = encoder(99)
    tuned, other = with_head(body, "classes", 4, seed=1), with_head(body, "classes", 4, seed=2)
    shared = dict(body.named_parameters())
    for name, parameter in tuned.named_parameters():
        if not name.startswith("output."):
            assert torch.equal(parameter, shared[name]), name
    assert not torch.equal(tuned.output.classes.weight, other.output.classes.weight)
    pooled = with_head(tuned, "classes", 2)
    assert torch.equal(pooled.output.pooler.weight, tuned.output.pooler.weight)
    assert with_head(body, "spans").architecture.output.kind == "spans"
    with pytest.raises(InvalidInput, match="requires an encoder"):
        with_head(lively(DESCRIPTIONS["gpt2"]), "classes", 2)


def test_models_that_cannot_be_fine_tuned_are_reported(tmp_path: Path) -> None:
    model = with_head(encoder(99), "classes", 2)
    with torch.no_grad():
        model.embedding.tables[0].fill_(torch.nan)
    with pytest.raises(Diverged, match="loss is nan"):
        fine_tune(model, [Row([1, 2], [0, 0], 1)], QUICK)
    with pytest.raises(Diverged, match="scores are NaN"):
        scores_of(model, [Row([1, 2], [0, 0])])
    with pytest.raises(InvalidInput, match="no <cls> and no <sep>"):
        SpecialTokens.of(ByteTokenizer())
    with pytest.raises(InvalidInput, match=r"finetuning\.epochs"):
        FineTuning.parse({"epochs": 0})
    examples = Examples(["a"], None, ["x"])
    with pytest.raises(InvalidInput, match="class 'y', which no row"):
        classify(encoder(99), bpe(), examples, Examples(["a"], None, ["y"]), QUICK)
    with pytest.raises(InvalidInput, match="has classes of single texts, but the test table has numbers of pairs"):
        classify(encoder(99), bpe(), examples, Examples(["a"], ["b"], [0.5]), QUICK)
    for head, rows, said in (
        ("a\tb", ["1\t2"], "no column with a known name for the text"),
        ("sentence\tb", ["1\t2"], "has no column label"),
        ("sentence\tlabel", ["only one field"], "line 2 has 1 of 2 fields"),
        ("sentence\tlabel", [], "has no rows"),
    ):
        with pytest.raises(InvalidInput, match=said):
            read_table(table(tmp_path / "wrong", head, rows))
    named = read_table(table(tmp_path / "named", "a\tb\tc", ["x\ty\t1"]), text="b", label="c")
    assert named == Examples(["y"], None, ["1"])


# Answers ------------------------------------------------------------------------------------------------------------


def question(index: int, rng: np.random.Generator, long: bool = False) -> Question:
    words = list(rng.choice(WORDS[2:12], 30 if long else 6))
    place = int(rng.integers(0, len(words)))
    name = f"{WORDS[index % 2]}."
    words[place:place] = ["answer", name]
    context = "  ".join(words)
    return Question(str(index), "the answer is", context, ((name[:-1], context.index(name)),))


def test_answers_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    train, test = ([question(index, rng) for index in range(count)] for count in (48, 16))
    train, test = read_questions(squad(tmp_path / "train", train)), read_questions(squad(tmp_path / "test", test))
    settings = FineTuning(epochs=10, rows=8, lr=4e-3, dropout=0.0, max_length=64)
    found = answer_questions(encoder(bpe().vocab_size), bpe(), train, test, settings)
    # WordTokenizer between spaces are found ("good."), which the official comparison takes for the answer ("good").
    assert found.scores["exact_match"] > 80
    assert found.scores["f1"] >= found.scores["exact_match"]
    assert set(found.predictions) == {question.id for question in test}
    assert all(found.predictions[question.id] in question.context for question in test)


@pytest.mark.parametrize("kind", ["bpe", "WordPiece"])
@pytest.mark.parametrize("stride", [3, 7, 18])
def test_windows_hold_the_whole_text_and_know_where_the_answer_stands(kind: str, stride: int, tmp_path: Path) -> None:
    tokenizer, rng = bpe() if kind == "bpe" else word_pieces(tmp_path), np.random.default_rng(5)
    layout = _Layout(tokenizer, 30, stride, has_segments=True)
    for index in range(8):
        one = question(index, rng, long=True)
        windows, spans = layout.windows(one), word_spans(one.context)
        assert len(windows) > 1
        seen = {word for window in windows for word in window.word_at if word >= 0}
        assert seen == set(range(len(spans)))
        assert all(len(window.row.tokens) <= 30 for window in windows)
        targets = [window for window in windows if window.row.target != (0, 0)]
        assert targets
        for window in targets:
            first, last = (window.word_at[place] for place in window.row.target)
            assert one.context[spans[first][0] : spans[last][1]] == f"{one.answers[0][0]}."


def test_a_question_without_an_answer_gets_an_empty_answer() -> None:
    rng = np.random.default_rng(3)
    with_answer = [question(index, rng) for index in range(32)]
    train = [
        question if index % 2 else Question(question.id, "name", question.context.replace("answer", "name"), ())
        for index, question in enumerate(with_answer)
    ]
    settings = FineTuning(epochs=30, rows=8, lr=4e-3, dropout=0.0, max_length=64)
    found = answer_questions(encoder(bpe().vocab_size), bpe(), train, train, settings)
    empty = [found.predictions[question.id] == "" for question in train]
    assert np.mean([said == (not question.answers) for said, question in zip(empty, train, strict=True)]) > 0.8


def test_files_that_are_not_of_squads_form_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "squad"
    for text, said in (("{", "JSONDecodeError"), ('{"data": [{"paragraphs": [{}]}]}', "KeyError"), ("[]", "TypeError")):
        path.write_text(text)
        with pytest.raises(InvalidInput, match=said):
            read_questions(path)
    wrong = Question("7", "q", "some text", (("text", 4),))
    with pytest.raises(InvalidInput, match="is not at character 4"):
        read_questions(squad(path, [wrong]))
    with pytest.raises(InvalidInput, match="no questions"):
        read_questions(squad(path, []))


# Metrics ------------------------------------------------------------------------------------------------------------


def test_answers_are_compared_as_the_official_script_does() -> None:
    assert exact_match("The Denver Broncos!", ["Denver Broncos", "Carolina"]) == 1
    assert exact_match("Denver", ["Denver Broncos"]) == 0
    # Two of three words found, and both of the answer's: 2·2/(3 + 2).
    assert answer_f1("the big Denver Broncos", ["Denver Broncos"]) == pytest.approx(0.8)
    assert answer_f1("Denver", ["Seattle", "Denver Broncos"]) == pytest.approx(2 / 3)
    assert (exact_match("", []), answer_f1("", []), answer_f1("x", [])) == (1, 1, 0)
    assert squad_scores(["a b c", "x"], [["b d"], ["x", "y"]]) == {"exact_match": 50.0, "f1": 75.0}


def test_correlations_and_f1_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(1)
    found, wanted = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    assert accuracy(found, wanted) == 100 * (found == wanted).mean()
    assert matthews(found, wanted) == pytest.approx(100 * np.corrcoef(found, wanted)[0, 1])
    right = (found & wanted).sum()
    precision, recall = right / found.sum(), right / wanted.sum()
    assert f1(found, wanted) == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    several = rng.integers(0, 4, 40)
    assert matthews(several, several) == pytest.approx(100)
    assert f1(several, several) == 100
    numbers, others = rng.normal(size=30).round(1), rng.normal(size=30).round(1)
    assert pearson(numbers, others) == pytest.approx(100 * scipy.stats.pearsonr(numbers, others)[0])
    assert spearman(numbers, others) == pytest.approx(100 * scipy.stats.spearmanr(numbers, others)[0])
    constant = np.ones(5)
    assert (pearson(constant, constant), matthews(constant.astype(int), np.arange(5) % 2)) == (0, 0)
