"""Batches are a function of the step: every token once an epoch, rows shared by ranks, nothing remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches import batches as batches_module
from edgefront.core.data.batches.batch import IGNORED, Batch, Batches
from edgefront.core.data.batches.batches import InOrder, Masked, Pairs, Segments, Shuffled, Streams
from edgefront.core.data.batches.order import random_bits, random_key, shuffled
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.training.batches import make_batches
from edgefront.core.training.recipes.recipe import Recipe


@pytest.fixture(autouse=True, scope="module")
def short_blocks() -> Iterator[None]:
    """So that a few hundred rows are of several blocks, and a block of 64 epochs at most: each takes its own order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "_ORDER_BLOCK", 64)
        yield


SENTENCES = st.lists(st.integers(0, 9), min_size=1, max_size=150).filter(lambda lengths: sum(lengths) > 0)


def split_of(lengths: Sequence[int], source: Sequence[int] | None = None) -> Split:
    """A split of sentences of these lengths, whose tokens are 0, 1, 2, …"""
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    tokens = np.arange(starts[-1], dtype=np.int32)
    return Split(tokens, starts, 0, 0, 0, None if source is None else split_of(source))


def streams(split: Split, task: str, rows: int, segment: int, rank_rows: range, *, resets: bool = False) -> Streams:
    text: Any = InOrder(split) if task == "streams" else Shuffled(split, seed=3)
    return Streams(text, rows, segment, rank_rows=rank_rows, resets=resets)


def epoch_of(batches: Batches, epoch: int) -> list[Batch]:
    first = epoch * batches.steps_per_epoch
    return [batches(step) for step in range(first, first + batches.steps_per_epoch)]


@given(SENTENCES, st.sampled_from(["streams", "sentences"]), st.integers(1, 5), st.integers(1, 12), st.integers(0, 3))
def test_every_token_is_a_target_once_an_epoch(
    lengths: list[int], task: str, rows: int, segment: int, epoch: int
) -> None:
    split = split_of(lengths)
    batches = epoch_of(streams(split, task, rows, segment, range(rows)), epoch)
    targets = np.concatenate([batch.targets.ravel() for batch in batches])
    assert sorted(targets[targets != IGNORED].tolist()) == list(range(len(split.tokens)))
    assert all(batch.inputs.shape == batch.targets.shape and batch.inputs.dtype == np.int64 for batch in batches)
    assert all(batch.inputs.shape == (rows, segment) for batch in batches[:-1])


@given(SENTENCES, st.integers(1, 4), st.integers(1, 12))
def test_a_row_continues_where_it_ended_through_epochs(lengths: list[int], rows: int, segment: int) -> None:
    split = split_of(lengths)
    size = len(split.tokens)
    batches = streams(split, "streams", rows, segment, range(rows))
    steps = range(3 * batches.steps_per_epoch)
    for row in range(rows):
        read = np.concatenate([np.stack(_row(batches(step), row), 1) for step in steps])
        read = read[read[:, 1] != IGNORED]
        assert (read[:, 1] == (read[:, 0] + 1) % size).all()
        assert ((read[1:, 1] - read[:-1, 1]) % size == 1 % size).all()


def _row(batch: Batch, row: int) -> tuple[Any, Any]:
    return batch.inputs[row], batch.targets[row]


@given(SENTENCES, st.integers(1, 40), st.integers(0, 2**62))
def test_sentences_stay_whole_and_their_order_is_shuffled(lengths: list[int], epoch: int, seed: int) -> None:
    split = split_of(lengths)
    read = Shuffled(split, seed).read(epoch, 0, len(split.tokens)).tolist()
    starts = {int(start) for start, length in zip(split.starts[:-1], lengths, strict=True) if length}
    breaks = [place for place in range(len(read)) if place == 0 or read[place] != read[place - 1] + 1]
    assert {read[place] for place in breaks} <= starts
    assert sorted(read) == list(range(len(read)))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    split = split_of([3] * 500)
    orders = [Shuffled(split, seed).read(epoch, 0, 1500).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


@given(SENTENCES, st.sampled_from(["streams", "sentences"]), st.sampled_from([1, 2, 3, 6]), st.integers(0, 50))
def test_ranks_share_the_rows(lengths: list[int], task: str, ranks: int, step: int) -> None:
    split, share = split_of(lengths), 6 // ranks
    whole = streams(split, task, 6, 4, range(6))(step)
    parts = [streams(split, task, 6, 4, range(rank * share, (rank + 1) * share))(step) for rank in range(ranks)]
    assert np.array_equal(np.concatenate([part.inputs for part in parts]), whole.inputs)
    assert np.array_equal(np.concatenate([part.targets for part in parts]), whole.targets)


@given(st.integers(1, 400), st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**62))
def test_each_segment_of_a_shuffled_text_is_a_row_once_an_epoch(size: int, rows: int, segment: int, seed: int) -> None:
    split = split_of([size])
    batches = Segments(split, rows, segment, seed, rank_rows=range(rows))
    count = -(-size // segment)
    assert batches.steps_per_epoch == -(-count // rows)
    read = [batches(step) for step in range(3 * batches.steps_per_epoch)]
    inputs, targets = (np.concatenate([getattr(batch, side) for batch in read]) for side in ("inputs", "targets"))
    for epoch in range(3 * batches.steps_per_epoch * rows // count):
        own = slice(epoch * count, (epoch + 1) * count)
        assert sorted(targets[own][targets[own] != IGNORED].tolist()) == list(range(size))
        there = targets[own] != IGNORED
        assert ((inputs[own][there] + 1) % size == targets[own][there]).all()
    starts = targets[:, 0]  # a segment of its own has at least one target
    assert (starts % segment == 0).all()
    assert all(batch.starts and batch.inputs.shape == (rows, segment) for batch in read)


def test_segments_are_in_another_order_in_each_epoch_and_for_each_seed() -> None:
    split = split_of([4000])
    by_epoch = [
        tuple(
            Segments(split, 10, 4, seed, rank_rows=range(10))(step).targets[0, 0] for step in range(first, first + 100)
        )
        for seed in (0, 1)
        for first in (0, 100)
    ]
    assert len(set(by_epoch)) == 4
    assert all(len(set(order)) == 100 for order in by_epoch)


@given(st.integers(1, 4000), st.sampled_from([1, 2, 3, 6]), st.integers(0, 5000), st.integers(0, 2**62))
def test_ranks_share_shuffled_segments_and_any_step_can_be_the_first(
    size: int, ranks: int, step: int, seed: int
) -> None:
    split, share = split_of([size]), 6 // ranks
    used = Segments(split, 6, 4, seed, rank_rows=range(6))
    used(step + 700)  # of another part of the order
    whole = used(step)
    parts = [Segments(split, 6, 4, seed, rank_rows=range(at * share, (at + 1) * share))(step) for at in range(ranks)]
    assert np.array_equal(np.concatenate([part.inputs for part in parts]), whole.inputs)
    assert np.array_equal(np.concatenate([part.targets for part in parts]), whole.targets)


def test_memory_is_cleared_at_step_0_and_with_epochs_if_asked() -> None:
    split = split_of([40])
    assert [streams(split, "streams", 2, 8, range(2))(step).starts for step in range(7)] == [True] + [False] * 6
    resets = streams(split, "streams", 2, 8, range(2), resets=True)
    assert [resets(step).starts for step in range(7)] == [step % 3 == 0 for step in range(7)]


@given(st.integers(1, 5000), st.integers(0, 2**62))
def test_a_shuffled_order_has_each_place_once(count: int, seed: int) -> None:
    order = shuffled(random_key(seed), count, np.arange(count))
    assert np.array_equal(np.sort(order), np.arange(count))
    some = np.array([0, count // 2, count - 1])
    assert np.array_equal(shuffled(random_key(seed), count, some), order[some])
    keys = np.array([random_key(seed), random_key(seed + 1), random_key(seed)], np.uint64)
    other = shuffled(random_key(seed + 1), count, some)
    assert shuffled(keys, count, some).tolist() == [order[some[0]], other[1], order[some[2]]]


def test_random_bits_are_the_same_everywhere() -> None:
    # SplitMix64's first numbers from state 0, as its authors' code gives them, begin at its first increment.
    assert [int(number) for number in random_bits(0, np.arange(1, 4))] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    assert shuffled(random_key("sentences", 0, 0), 10, np.arange(10)).tolist() == [6, 3, 7, 1, 9, 4, 5, 2, 0, 8]


class Specials(Tokenizer):
    """Numbers as text; the last three are special."""

    level = "words"
    eos = 0
    unknown = None

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.special = {"<mask>": vocab_size - 3, "<cls>": vocab_size - 2, "<sep>": vocab_size - 1}

    def encode_many(self, texts: Sequence[str]) -> list[Any]:
        return [np.array(text.split(), np.int32) for text in texts]

    def _decode(self, ids: Any) -> str:
        return " ".join(map(str, ids))

    def _content(self) -> dict[str, Any]:
        return {}

    def hugging_face(self) -> dict[str, bytes]:
        return {}


@given(st.integers(1, 200), st.integers(1, 5), st.integers(3, 12), st.floats(0.01, 0.9), st.integers(0, 9))
def test_masked_rows_show_every_token_once_and_hide_no_special_one(
    size: int, rows: int, segment: int, fraction: float, seed: int
) -> None:
    vocabulary = Specials(size + 3)
    split = split_of([size])
    split.tokens[::7] = size + 2  # special tokens in the text are never hidden
    original = split.tokens
    batches = Masked(split, vocabulary, rows, segment, fraction, seed, rank_rows=range(rows))
    shown = []
    for batch in epoch_of(batches, epoch=1):
        assert batch.mask is not None
        assert batch.starts
        assert (batch.inputs[:, 0] == size + 1).all()
        hidden = batch.targets != IGNORED
        assert not hidden[~batch.mask].any()
        assert (batch.targets[hidden] < size).all()
        text = np.where(hidden, batch.targets, batch.inputs)
        lengths = batch.mask.sum(1)
        for row in range(rows):
            assert text[row, lengths[row] - 1] == size + 2
            body = text[row, 1 : lengths[row] - 1]
            shown += body.tolist()
            ordinary = int((body < size).sum())
            wanted = max(1, round(ordinary * fraction)) if ordinary else 0
            assert hidden[row].sum() == wanted
    assert sorted(shown) == sorted(original.tolist())


def test_hidden_tokens_become_mask_another_or_stay_as_in_bert() -> None:
    split = split_of([20_000])
    batches = Masked(split, Specials(20_003), 100, 102, 0.15, 0, rank_rows=range(100))
    batch = batches(0)
    hidden = batch.targets != IGNORED
    assert hidden.sum() == 100 * 15
    masks = (batch.inputs[hidden] == 20_000).mean()
    same = (batch.inputs[hidden] == batch.targets[hidden]).mean()
    assert masks == pytest.approx(0.8, abs=0.04)
    assert same == pytest.approx(0.1, abs=0.03)
    again = batches(batches.steps_per_epoch)
    assert not np.array_equal(again.targets, batch.targets)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60), st.integers(1, 5), st.data())
def test_pairs_stay_together_and_come_once_an_epoch(
    lengths: list[tuple[int, int]], rows: int, data: st.DataObject
) -> None:
    split = split_of([target for target, _ in lengths], [source for _, source in lengths])
    assert split.source is not None
    batches = Pairs(split, Specials(1000), rows, 9, seed=5, rank_rows=range(rows))
    said = set()
    for batch in epoch_of(batches, epoch=data.draw(st.integers(0, 3))):
        assert batch.mask is not None
        assert batch.source is not None
        assert batch.source_mask is not None
        assert batch.mask.any(1).all()
        assert batch.source_mask.any(1).all()
        for row in range(rows):
            target = batch.targets[row][batch.targets[row] != IGNORED]
            if not target.size:
                continue
            assert batch.mask[row].sum() == target.size
            assert batch.inputs[row][: target.size].tolist() == [0, *target[:-1]]
            number = int(np.searchsorted(split.starts, target[0], "right")) - 1
            assert target.tolist() == list(range(split.starts[number], split.starts[number + 1]))
            source = batch.source[row][batch.source_mask[row]]
            assert source.tolist() == list(range(split.source.starts[number], split.source.starts[number + 1]))
            assert number not in said
            said.add(number)
    assert len(said) == len(lengths)


def test_pairs_of_similar_length_are_together_and_long_ones_left_out() -> None:
    chance = np.random.default_rng(0).integers(2, 50, (4000, 2))
    split = split_of(chance[:, 0].tolist(), chance[:, 1].tolist())
    batches = Pairs(split, Specials(1_000_000), 20, 40, seed=0, rank_rows=range(20))
    assert batches.left_out == int((chance.max(1) > 40).sum())
    used = np.mean([batch.mask.mean() for batch in epoch_of(batches, 0) if batch.mask is not None])
    assert used > 0.9
    halves = [Pairs(split, Specials(1_000_000), 20, 40, seed=0, rank_rows=part) for part in (range(10), range(10, 20))]
    whole, parts = batches(7), [half(7) for half in halves]
    for field in ("inputs", "targets", "mask", "source", "source_mask"):
        joined = np.concatenate([getattr(part, field) for part in parts])
        assert np.array_equal(joined, getattr(whole, field))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def text(home: Path) -> Path:
    path = home / "text.txt"
    path.write_text("".join(f"line {number} of a text\n" for number in range(400)))
    return path


@pytest.mark.parametrize("task", ["streams", "sentences", "masked"])
def test_a_step_is_the_same_whenever_and_however_often_it_is_asked(home: Path, text: Path, task: str) -> None:
    prepared = prepare(str(text), home, settings=Preparation(level="bpe", vocab_size=300))
    recipe = Recipe(name="r", task=task, rows=4, segment=16)
    one, other = (make_batches(prepared, recipe, seed=11) for _ in range(2))
    steps = np.random.default_rng(0).permutation(3 * one.steps_per_epoch)[:20].tolist()
    forward = {step: one(step) for step in sorted(steps)}
    for step in [*steps, *steps]:
        batch = other(step)
        assert np.array_equal(batch.inputs, forward[step].inputs)
        assert np.array_equal(batch.targets, forward[step].targets)
        assert batch.starts == forward[step].starts
    assert max(batch.inputs.max() for batch in forward.values()) < prepared.vocab_size


@pytest.mark.parametrize(
    ("recipe", "options", "said"),
    [
        ({"rows": 64, "segment": 512}, {}, "has 6,749 tokens, but one batch of 64 rows of 512 tokens needs 32,768"),
        ({}, {"split": "tset"}, "has no split 'tset'; it has train, valid, test"),
        ({"rows": 4}, {"ranks": 3}, "4 rows cannot be divided equally among 3"),
        ({"task": "pairs"}, {}, "not parallel text"),
        ({"task": "masked"}, {}, "has no <mask>, <cls>, <sep>"),
    ],
)
def test_what_cannot_be_is_said(
    home: Path, text: Path, recipe: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    prepared = prepare(str(text), home, settings=Preparation(level="bytes"))
    made = Recipe.parse({"name": "r", "rows": 2, "segment": 8} | recipe)
    with pytest.raises(InvalidInput, match=said):
        make_batches(prepared, made, **({"seed": 0} | options))


@pytest.mark.parametrize("task", ["streams", "sentences", "masked"])
def test_a_split_to_evaluate_on_may_be_smaller_than_a_batch(home: Path, text: Path, task: str) -> None:
    prepared = prepare(str(text), home, settings=Preparation(level="bpe", vocab_size=300))
    batches = make_batches(prepared, Recipe(name="r", task=task, rows=64, segment=64), split="valid", seed=0)
    assert batches.steps_per_epoch == 1
    assert (batches(0).targets != IGNORED).any()


def test_translations_need_short_pairs_and_enough_of_them(home: Path) -> None:
    for name in ("long.de", "long.en"):
        (home / name).write_text("one two three four five\n" * 40)
    prepared = prepare(
        str(home / "long.de"), home, target=home / "long.en", settings=Preparation(level="words", valid_percent=10)
    )
    with pytest.raises(InvalidInput, match="no pair has at most 5 tokens on both sides"):
        make_batches(prepared, Recipe(name="r", task="pairs", rows=2, segment=5), seed=0)
    with pytest.raises(InvalidInput, match="has 34 pairs of at most 6 tokens, but one batch of 40 rows"):
        make_batches(prepared, Recipe(name="r", task="pairs", rows=40, segment=6), seed=0)
    batch = make_batches(prepared, Recipe(name="r", task="pairs", rows=4, segment=6), seed=0)(0)
    assert batch.source is not None
    assert batch.source.shape == batch.inputs.shape == (4, 6)
