"""A run's folder: what it tells while it searches, what it leaves, and how it goes on after any end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from tiny_supernets import settings

from edgefront.core.common.errors import Diverged, InvalidInput, Unavailable
from edgefront.core.data.prepared.preparation import Preparation, prepare
from edgefront.core.schemas.trainings import TrainingBudget
from edgefront.core.search.supernet_settings import SupernetResult
from edgefront.core.training.recipes.recipe import Recipe
from edgefront.core.training.run import run as training_run
from edgefront.core.training.run_folder import (
    EXIT_DONE,
    EXIT_INVALID,
    EXIT_STOPPED,
    METRICS,
    RESULT,
    SPEC,
    RunSpec,
    read_metrics,
    read_status,
)
from edgefront.core.training.supernet.run import run
from edgefront.core.training.supernet.search import Search

TINY = {
    "name": "tiny",
    "steps": 24,
    "rows": 4,
    "segment": 8,
    "memory": 8,
    "clip": 1.0,
    "dropout": {"hidden": 0.1, "embedding": 0.1},
    "optimizer": {"name": "adam", "lr": 5e-3},
    "schedule": {"warmup": 4},
    "checkpoint_every": 10,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("data")
    text = home / "text.txt"
    text.write_text("".join(f"line {number} says {number * 7 % 13} to all.\n" for number in range(300)))
    return prepare(str(text), home / "prepared", settings=Preparation(level="characters")).folder


def spec(data: Path, *, recipe: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    chosen = settings(layers=2, seeds=2, weight_steps=6, cycle_steps=4, records=5)
    return RunSpec(
        kind="supernet",
        data=str(data),
        recipe=Recipe.parse({**TINY, **(recipe or {})}).model_dump(mode="json"),
        supernet=chosen.model_dump(mode="json"),
        **{"seed": 11, **changes},
    )


def after(steps: int) -> Callable[[], bool]:
    asked = iter(range(steps))
    return lambda: next(asked, None) is None


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics without what a clock says."""
    clock = {"seconds", "tokens_per_s"}
    return [metric.model_dump(exclude=clock) for metric in read_metrics(folder / METRICS)]


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    assert run(spec(data), folder) == EXIT_DONE
    return folder


def test_it_leaves_the_architecture_of_each_seed(done: Path) -> None:
    result = SupernetResult.parse((done / RESULT / "supernet.json").read_bytes())
    assert [search.seed for search in result.searches] == [11, 12]
    for search in result.searches:
        assert len(search.probabilities) == 2
        assert search.records[-1].probabilities == search.probabilities
        assert search.loss is not None
    summary = json.loads((done / RESULT / "result.json").read_text())
    assert SupernetResult.parse(summary).searches[0].records == ()
    assert summary["searches"][0]["pattern"] == result.searches[0].pattern


def test_it_reports_each_step_and_the_probabilities(done: Path) -> None:
    metrics = lines(done)
    result = SupernetResult.parse((done / RESULT / "supernet.json").read_bytes())
    total = sum(search.steps for search in result.searches)
    assert [metric["step"] for metric in metrics] == list(range(1, total + 1))
    assert metrics[-1]["tokens"] == total * 4 * 8
    assert {metric["extra"]["phase"] for metric in metrics} == {"weights", "tuning"}
    first, last = metrics[0]["extra"], metrics[-1]["extra"]
    assert (first["seed"], last["seed"]) == (11, 12)
    assert last["probabilities"] == [list(row) for row in result.searches[-1].probabilities]
    assert last["pattern"] == result.searches[-1].pattern
    status = read_status(done)
    assert status is not None
    assert (status.state, status.step, status.steps, status.seconds_left) == ("done", total, total, 0.0)


@pytest.mark.parametrize("stops", [[7], [24, 3], [10, 10, 10]])
def test_a_run_that_is_stopped_resumes_as_if_it_had_not_been(
    data: Path, done: Path, tmp_path: Path, stops: list[int]
) -> None:
    for steps in stops:
        assert run(spec(data), tmp_path, after(steps)) == EXIT_STOPPED
        status = read_status(tmp_path)
        assert status is not None
        assert status.state == "stopped"
        torch.manual_seed(steps)
    assert run(spec(data), tmp_path) == EXIT_DONE
    assert lines(tmp_path) == lines(done)
    for name in ("supernet.json", "result.json"):
        assert (tmp_path / RESULT / name).read_bytes() == (done / RESULT / name).read_bytes()


def test_a_run_that_was_killed_resumes_from_its_last_checkpoint(
    data: Path, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, made = Search.step, iter(range(17))

    def killed(search: Search) -> Any:
        if next(made, None) is None:
            raise KeyboardInterrupt
        return step(search)

    with monkeypatch.context() as patched:
        patched.setattr(Search, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            run(spec(data), tmp_path)
    with (tmp_path / METRICS).open("ab") as file:
        file.write(b'{"step": 18, "tok')
    assert run(spec(data), tmp_path) == EXIT_DONE
    assert lines(tmp_path) == lines(done)


def test_out_of_memory_takes_fewer_rows_at_a_time(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_pass = Search._pass

    def short(search: Search, *given: Any) -> float:
        if search.micro_rows > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch_pass(search, *given)

    monkeypatch.setattr(Search, "_pass", short)
    assert run(spec(data, budget=TrainingBudget(steps=8)), tmp_path) == EXIT_DONE
    status = read_status(tmp_path)
    assert status is not None
    assert status.micro_rows == 1
    assert "with 4 rows at a time; now 1" in status.note


def test_it_is_a_run_like_any_other(data: Path, done: Path, tmp_path: Path) -> None:
    """By `core.training.run`, with what that tells of the end."""
    (tmp_path / SPEC).write_text(spec(data).model_dump_json())
    assert training_run(tmp_path, Event()) == EXIT_DONE
    assert lines(tmp_path) == lines(done)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / SPEC).write_text(spec(data, recipe={"precision": "float16"}).model_dump_json())
    assert training_run(broken, Event()) == EXIT_INVALID
    status = read_status(broken)
    assert status is not None
    assert status.state == "invalid"
    assert "cannot be trained in float16" in str(status.error)
    stopped, stop = tmp_path / "stopped", Event()
    stop.set()
    stopped.mkdir()
    (stopped / SPEC).write_text(spec(data).model_dump_json())
    assert training_run(stopped, stop) == EXIT_STOPPED


def test_another_searchs_checkpoint_is_refused(data: Path, tmp_path: Path) -> None:
    run(spec(data), tmp_path, after(3))
    with pytest.raises(InvalidInput, match="checkpoint of another search"):
        run(spec(data, seed=12), tmp_path)


def test_a_loss_that_is_no_number_is_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="take a lower learning rate"):
        run(spec(data, recipe={"optimizer": {"name": "adam", "lr": 1e6}, "clip": None}), tmp_path)


def test_hours_that_are_over_too_early_are_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="before the first architecture step"):
        run(spec(data, budget=TrainingBudget(hours=1e-9)), tmp_path)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"task": "masked"}, "requires an encoder"),
        ({"precision": "float16"}, "cannot be trained in float16"),
        ({"rows": 10_000}, "one batch of 10000 rows"),
    ],
)
def test_incompatible_settings_are_refused_before_the_first_step(
    data: Path, tmp_path: Path, recipe: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        run(spec(data, recipe=recipe), tmp_path)


def test_damaged_results_are_reported(done: Path, tmp_path: Path) -> None:
    shutil.copy(done / RESULT / "supernet.json", tmp_path)
    text = (tmp_path / "supernet.json").read_text()
    with pytest.raises(InvalidInput, match="not JSON"):
        SupernetResult.parse(text[:100])
    with pytest.raises(InvalidInput, match=r"supernet result\.searches\.0\.seed"):
        SupernetResult.parse(text.replace('"seed": 11', '"seed": "x"'))
