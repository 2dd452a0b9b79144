"""The loop is a function of the step: stopped, killed or short of memory, a training goes on as if nothing had been."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_runs import Start
from loop_runs import (
    DROPOUT,
    MODELS,
    MODERN,
    assert_nearly_the_same,
    assert_same_end,
    ended,
    folder_with,
    losses,
    spec_of,
    wait_for_step,
)
from prepared_text import ALONE, after, prepared_text, trainer

import servers
from edgefront.core.common.errors import Diverged, InvalidInput, Unavailable
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.schemas.trainings import TrainingBudget
from edgefront.core.training import loop, run
from edgefront.core.training.checkpoint import read_optimizer, read_progress
from edgefront.core.training.distributed import Ranks
from edgefront.core.training.loop import SmallerBatch, Trainer
from edgefront.core.training.run import run as run_here
from edgefront.core.training.run_folder import (
    CHECKPOINTS,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_SMALLER,
    EXIT_STOPPED,
    LOG,
    RESULT,
    SPEC,
    read_limit,
    read_status,
    recipe_of,
)


@pytest.mark.parametrize(
    ("model", "recipe"), [*((model, {}) for model in MODELS), ("gpt2", MODERN), ("decoder", MODERN)]
)
def test_a_training_that_was_stopped_resumes_as_if_it_had_not_been(
    model: str, recipe: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    spec = spec_of(data, model, **recipe)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert trainer(spec, whole).train() == "done"
    assert trainer(spec, parts, after(2)).train() == "stopped"
    assert trainer(spec, parts, after(3)).train() == "stopped"
    assert trainer(spec, parts).train() == "done"
    assert [step for step, *_ in losses(whole)] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 8]
    assert_same_end(whole, parts)


def test_losses_that_no_report_has_had_survive_a_restart(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_REPORTS", 2)  # one in four steps
    spec = spec_of(data, checkpoint_every=8, evaluation={"every": 8})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainer(spec, whole).train()
    for steps in (2, 1, 3):
        assert trainer(spec, parts, after(steps)).train() == "stopped"
    assert read_progress(max((parts / CHECKPOINTS).iterdir())).seconds > 0
    trainer(spec, parts).train()
    assert [step for step, *_ in losses(whole)] == [4, 8, 8]
    assert_same_end(whole, parts)


def test_a_step_of_many_parts_is_abandoned_for_a_stop_and_repeated(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, micro_rows=1)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainer(spec, whole).train()
    made = trainer(spec, parts, after(4 + 2))  # it is asked before each part of its four
    assert (made.train(), made.progress.step) == ("stopped", 1)
    trainer(spec, parts).train()
    assert_same_end(whole, parts)


@pytest.mark.parametrize("asked", [5 + 1, 8 + 2 + 1])
def test_an_evaluation_is_abandoned_for_a_stop_and_repeated(asked: int, data: Path, tmp_path: Path) -> None:
    """Of the fifth step, and of the eighth and last: a stop takes one batch of an evaluation, however long it is."""
    spec = spec_of(data, evaluation={"every": 5})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainer(spec, whole).train()
    made = trainer(spec, parts, after(asked))
    assert made.train() == "stopped"
    assert made.progress.evaluated_step != made.progress.step
    assert trainer(spec, parts).train() == "done"
    assert_same_end(whole, parts)


def test_in_float16_every_rank_resumes_with_the_same_loss_scale(data: Path, tmp_path: Path) -> None:
    made = trainer(spec_of(data, precision="float16"), tmp_path / "run", after(3))
    made._scaler.set_growth_interval(2)
    made.train()
    latest = made.checkpoints.latest()
    assert latest is not None
    assert read_progress(latest).scaler == made._scaler.state_dict()  # which all ranks read; the optimiser's one does
    assert "scaler" not in read_optimizer(latest)
    assert trainer(made.spec, tmp_path / "run")._scaler.state_dict() == made._scaler.state_dict()


def test_killed_at_any_moment_it_resumes_from_the_last_checkpoint(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, steps=12)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trainer(spec, whole).train()

    class Killed(BaseException):
        pass

    def kill() -> bool:
        raise Killed

    for steps in (2, 2, 5):  # in the middle of the steps between two checkpoints, twice at the same place
        asked = after(steps)
        with pytest.raises(Killed):
            trainer(spec, killed, lambda asked=asked: asked() and kill()).train()
    assert trainer(spec, killed).train() == "done"
    assert_same_end(whole, killed)


def test_a_batch_taken_a_few_rows_at_a_time_teaches_the_same(data: Path, tmp_path: Path) -> None:
    off = dict.fromkeys(DROPOUT, 0.0)
    for model in MODELS:
        folders = [tmp_path / f"{model}-{micro_rows}" for micro_rows in (4, 3, 1)]
        for micro_rows, folder in zip((4, 3, 1), folders, strict=True):
            trainer(spec_of(data, model, dropout=off, micro_rows=micro_rows), folder).train()
        for folder in folders[1:]:
            assert_nearly_the_same(folders[0], folder)


def test_out_of_memory_halves_the_rows_at_a_time_and_says_so(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, dropout=dict.fromkeys(DROPOUT, 0.0))
    trainer(spec, tmp_path / "roomy").train()
    made = trainer(spec, tmp_path / "tight")
    call = made._call

    def too_much(rows: Any, state: Any) -> Any:
        if rows.inputs.shape[0] > 1 and made.progress.step >= 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return call(rows, state)

    made._call = too_much
    assert made.train() == "done"
    assert made.progress.micro_rows == 1
    assert read_limit(tmp_path / "tight") == 1
    status = read_status(tmp_path / "tight")
    assert status is not None
    assert "4 rows at a time; from step 2 on 2" in status.note
    assert "2 rows at a time; from step 2 on 1" in status.note
    assert_nearly_the_same(tmp_path / "roomy", tmp_path / "tight")
    assert trainer(spec, tmp_path / "tight").progress.micro_rows == 1  # it is known from the start now


def test_out_of_memory_with_one_row_ends_it_and_says_what_would_help(data: Path, tmp_path: Path) -> None:
    made = trainer(spec_of(data), tmp_path / "run")

    def never(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    made._call = never
    with pytest.raises(Unavailable, match="one row of 16 tokens at a time"):
        made.train()


def test_a_loss_that_is_not_a_number_ends_it_and_keeps_the_checkpoint_before(data: Path, tmp_path: Path) -> None:
    """Also where the training is stopped before the loss is looked at."""
    assert trainer(spec_of(data, steps=4000), tmp_path / "run", after(3)).train() == "stopped"
    made = trainer(spec_of(data, steps=4000), tmp_path / "run", after(2))
    with torch.no_grad():
        made.model.embedding.tables[0].fill_(float("nan"))
    with pytest.raises(Diverged, match="lower learning rate"):
        made.train()
    assert made.checkpoints.latest() == made.checkpoints.at(3)


def test_it_is_initialised_with_another_s_weights(data: Path, tmp_path: Path) -> None:
    first = folder_with(spec_of(data), tmp_path / "first")
    assert run_here(first, threading.Event()) == EXIT_DONE
    weights = first / RESULT / "model.safetensors"
    spec = spec_of(data, steps=3, segment=8, optimizer={"lr": 0.0}).model_copy(
        update={"start": str(weights), "about": {"start": {"training": "trn_first"}}}
    )
    made = trainer(spec, tmp_path / "second", after(1))
    given = load_safetensors(weights).state_dict()
    assert all(torch.equal(tensor, given[name]) for name, tensor in made.model.state_dict().items())
    assert made.train() == "stopped"
    gone = spec.model_copy(update={"start": str(tmp_path / "gone.safetensors")})  # it has begun: nothing is read again
    (tmp_path / "second" / SPEC).write_text(gone.model_dump_json())
    assert run_here(tmp_path / "second", threading.Event()) == EXIT_DONE
    output = json.loads((tmp_path / "second" / RESULT / "result.json").read_text())["start"]
    assert output == {"training": "trn_first", "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    other = shutil.copytree(first / RESULT, tmp_path / "other")
    ByteTokenizer(range(255, -1, -1)).save(other)
    for wrong, model, said in (
        (gone.start, "transformer-xl", "cannot be read: No such file"),
        (spec.start, "srupp", "have architecture"),
        (str(other / "model.safetensors"), "transformer-xl", "trained with another tokenizer"),
    ):
        with pytest.raises(InvalidInput, match=said):
            trainer(spec_of(data, model).model_copy(update={"start": wrong}), tmp_path / "third")


def test_another_training_s_checkpoint_is_refused(data: Path, tmp_path: Path) -> None:
    trainer(spec_of(data), tmp_path / "run", after(1)).train()
    for other in (spec_of(data, rows=2), spec_of(data, "srupp"), spec_of(data).model_copy(update={"seed": 1})):
        with pytest.raises(InvalidInput, match="another training"):
            trainer(other, tmp_path / "run")
    trainer(spec_of(data, checkpoint_every=4, micro_rows=2), tmp_path / "run")  # no matter for what is learnt


def test_the_budget_shortens_the_schedule_with_the_steps(data: Path) -> None:
    spec = spec_of(data, steps=100, schedule={"warmup": 20})
    for budget, steps, warmup in (
        (TrainingBudget(), 100, 20),
        (TrainingBudget(steps=50), 50, 10),
        (TrainingBudget(tokens=10 * 4 * 16 + 1), 11, 2),
        (TrainingBudget(steps=30, tokens=40 * 4 * 16), 30, 6),
    ):
        recipe = recipe_of(spec.model_copy(update={"budget": budget}))
        assert (recipe.steps, recipe.schedule.warmup) == (steps, warmup)


def test_when_its_hours_are_over_it_is_evaluated_and_done(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, steps=1000).model_copy(update={"budget": TrainingBudget(hours=1e-6)})
    made = trainer(spec, tmp_path / "run")
    assert made.train() == "done"
    assert made.progress.step < 1000
    assert made.progress.best_step == made.progress.evaluated_step == made.progress.step
    status = read_status(tmp_path / "run")
    assert status is not None
    assert "hours were over" in status.note


@pytest.mark.parametrize(
    ("model", "recipe", "said"),
    [
        ("gpt2", {"segment": 128}, "longer than the 64 positions"),
        ("gpt2", {"task": "masked"}, "requires an encoder"),
        ("gpt2", {"task": "pairs"}, "a model with a source"),
        ("gpt2", {"rows": 4000}, "has .* tokens"),
        ("transformer-xl", MODERN, "test shuffles the segments .* attention of Transformer-XL continues"),
        ("srupp", MODERN, "test shuffles the segments .* recurrence of SRU continues"),
    ],
)
def test_incompatible_inputs_are_reported_before_anything_is_trained(
    model: str, recipe: dict[str, Any], said: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=said):
        trainer(spec_of(data, model, **recipe), tmp_path / "run")


def test_data_that_was_changed_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    data = prepared_text(tmp_path)
    tokens = bytearray((data / "train.tokens").read_bytes())
    tokens[100] ^= 1
    (data / "train.tokens").write_bytes(tokens)
    with pytest.raises(InvalidInput, match=r"train\.tokens has changed since it was written"):
        trainer(spec_of(data), tmp_path / "run")


def test_masked_models_are_evaluated_so_many_rows_at_a_time_as_the_recipe_says(tmp_path: Path) -> None:
    data = prepared_text(tmp_path, level="bpe", vocab_size=270)
    evaluation = {"rows": 3, "memory": 0, "tokens": None}
    made = trainer(spec_of(data, "bert", task="masked", rows=16, memory=0, evaluation=evaluation), tmp_path / "run")
    rows: list[int] = []
    made.model.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    found = made.evaluate("valid")
    assert found is not None
    assert max(rows) == 3
    whole = trainer(
        spec_of(data, "bert", task="masked", rows=16, memory=0, evaluation=evaluation | {"rows": 16}), tmp_path / "run"
    )
    every = whole.evaluate("valid")
    assert every is not None
    assert (every.tokens, every.loss) == (found.tokens, pytest.approx(found.loss))


# The process ---------------------------------------------------------------------------------------------------------


def test_the_process_stops_on_sigterm_dies_of_sigkill_and_ends_with_a_model(
    data: Path, tmp_path: Path, start: Start
) -> None:
    spec = spec_of(data, "srupp", steps=100, checkpoint_every=20, evaluation={"every": 50})
    whole, run = folder_with(spec, tmp_path / "whole"), folder_with(spec, tmp_path / "run")
    process = start(run)
    wait_for_step(run, 30, process)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    process = start(run)
    wait_for_step(run, 55, process)
    process.terminate()
    assert ended(process) == EXIT_STOPPED, (run / LOG).read_text()
    status = read_status(run)
    assert status is not None
    assert status.state == "stopped"
    assert ended(start(run)) == EXIT_DONE, (run / LOG).read_text()
    assert run_here(whole, threading.Event()) == EXIT_DONE
    assert_same_end(whole, run)
    results = [json.loads((folder / RESULT / "result.json").read_text()) for folder in (whole, run)]
    assert results[0]["test"] == results[1]["test"]
    assert results[0]["test"]["perplexity"] < 100  # of 256 bytes
    weights = [(folder / RESULT / "model.safetensors").read_bytes() for folder in (whole, run)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("optimizer", "model"),
    [
        ("radam", "transformer-xl"),
        ("lamb", "transformer-xl"),
        ("adamw", "decoder"),  # in groups of their own rates, on shuffled segments
    ],
)
def test_two_ranks_learn_what_one_learns(optimizer: str, model: str, data: Path, tmp_path: Path, start: Start) -> None:
    recipe = {"dropout": dict.fromkeys(DROPOUT, 0.0), "steps": 6, "optimizer": {"name": optimizer}}
    spec = spec_of(data, model, **(recipe | MODERN if model == "decoder" else recipe))
    run = folder_with(spec, tmp_path / "run")
    one = folder_with(spec, tmp_path / "one")
    if optimizer == "radam":
        ranks = [start(run, torchrun=2)]
    else:  # as `torchrun` starts them, which needs as long as they do
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(servers.free_port()), "WORLD_SIZE": "2"}
        ranks = [start(run, RANK=rank, LOCAL_RANK=rank, **meeting) for rank in "01"]
    assert run_here(one, threading.Event()) == EXIT_DONE
    assert [ended(rank) for rank in ranks] == [0] * len(ranks), (run / LOG).read_text()
    assert_nearly_the_same(one, run)
    scores = [json.loads((folder / RESULT / "result.json").read_text())["test"]["loss"] for folder in (one, run)]
    assert scores[0] == pytest.approx(scores[1], rel=2e-4)


def test_a_failure_is_reported_before_the_other_ranks_are_left(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, left = folder_with(spec_of(data), tmp_path / "run"), []

    @contextmanager
    def together(*_: Any) -> Iterator[Ranks]:
        yield ALONE
        left.append(read_status(folder))  # from here on the others see that this one has gone

    def too_little(*_: Any) -> None:
        raise SmallerBatch("out of memory")

    monkeypatch.setattr(run, "joined", together)
    monkeypatch.setattr(Trainer, "train", too_little)
    assert run_here(folder, threading.Event()) == EXIT_SMALLER
    assert [status.state for status in left if status is not None] == ["smaller"]


def test_a_wrong_spec_and_a_failure_are_reported_in_the_status(data: Path, tmp_path: Path) -> None:
    wrong = folder_with(spec_of(data), tmp_path / "wrong")
    (wrong / SPEC).write_text('{"recipe": {}}')
    failing = folder_with(spec_of(data), tmp_path / "failing")
    (failing / CHECKPOINTS).write_text("a file in the way")
    for folder, code, state, said in (
        (wrong, EXIT_INVALID, "invalid", "spec.data is missing"),
        (failing, EXIT_FAILED, "failed", "cannot be written"),
    ):
        assert run_here(folder, threading.Event()) == code
        status = read_status(folder)
        assert status is not None
        assert status.state == state
        assert said in (status.error or "")
