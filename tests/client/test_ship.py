"""`edgefront ship`: from a frontier to the better of the trained models, against the running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import edgefront
from running_client import BOARD, Running
from simulated_pool import DATA, prepare

from edgefront import exits

RECIPE = ("--data", DATA, "--set", "segment=8 schedule.warmup=0 checkpoint_every=2", "--steps", "4", "--licence", "mit")


@pytest.fixture
def pool(running: Running) -> Iterator[Running]:
    prepare(running.home / "data")
    yield running
    for training in running.client.trainings.list():
        running.client.trainings.delete(training.id)


def test_a_search_two_trainings_and_the_better_model_by_one_command(pool: Running, tmp_path: Path) -> None:
    search = ("--narrow", "n_layer=2..3 d_model=128,192 d_inner=256..640:64", "--target", f"class={BOARD}")
    folder = tmp_path / "model"
    probing = ("--probes", "2", "--candidates", "8")
    run = edgefront("ship", *search, *probing, *RECIPE, "--output", str(folder), "--json", home=pool.home)
    assert run.returncode == exits.OK, run.stderr
    told = json.loads(run.stdout)
    points = pool.client.frontier(told["job"]).points
    largest = sorted(points, key=lambda point: point.proxy)[-2:]
    assert {model["candidate"] for model in told["models"]} == {point.id for point in largest}
    assert sum(model["kept"] for model in told["models"]) == 1
    assert all(model["latency_ms"] > 0 and model["perplexity"] == 12.5 for model in told["models"])
    kept = next(model for model in told["models"] if model["kept"])
    assert kept["latency_ms"] == min(model["latency_ms"] for model in told["models"])  # they score alike
    assert (folder / "model.safetensors").exists()
    probe = pool.client.jobs.last_probe(told["job"])
    assert (probe.state, len(probe.trainings)) == ("done", 2)
    assert pool.client.jobs.law(told["job"]).law.law == probe.law
    assert told["predicted"]["candidate_id"] == kept["candidate"]
    assert told["predicted"]["low"] < told["predicted"]["predicted"] < told["predicted"]["high"]
    assert told["predicted"]["trained"] > 0
    trained = {training.training_id for training in probe.trainings} | {model["training"] for model in told["models"]}
    # The run is told what its model was measured at: the model's card shows it beside the perplexity.
    spec = json.loads((pool.home / "artifacts" / "trainings" / kept["training"] / "spec.json").read_text())
    assert spec["about"]["training"] == kept["training"]
    assert spec["about"]["licence"] == "mit"
    assert [item["latency_ms"] for item in spec["about"]["measurements"]] == [kept["latency_ms"]]

    again = edgefront("ship", "--job", told["job"], *RECIPE, "--output", str(tmp_path / "again"), home=pool.home)
    assert again.returncode == exits.OK, again.stderr
    assert "kept" in again.stdout
    assert "predicted " in again.stdout
    assert f"edgefront ship --job {told['job']} --train 2 --data {DATA}" in again.stderr  # after Ctrl-C
    assert {item.id for item in pool.client.trainings.list(job=told["job"])} == trained  # nothing was trained twice


def test_a_wrong_recipe_is_refused_before_anything_is_searched(pool: Running) -> None:
    before = len(list(pool.client.jobs.list()))
    for wrong, said in (
        (("--set", "steps"), "FIELD=VALUE"),
        (("--steps", "0"), "greater than or equal to 1"),
        (("--set", "steps=20"), "warmup"),
        (("--recipe", "quik"), "recipe must be one of"),
        (("--licence", "do as you like"), "licence"),
    ):
        run = edgefront("ship", "--data", DATA, *wrong, home=pool.home)
        assert run.returncode == exits.REFUSED, run.stderr
        assert said in run.stderr
    assert len(list(pool.client.jobs.list())) == before


def test_a_job_without_a_frontier_is_reported(pool: Running) -> None:
    run = edgefront("ship", "--job", pool.job.id, "--max-latency-ms", "0.000001", *RECIPE, home=pool.home)
    assert run.returncode == exits.REFUSED
    assert "is empty" in run.stderr
