"""`edgefront ship`: from a frontier to the better of the trained models, against the running service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import edgefront
from running_client import BOARD, Running
from simulated_pool import DATA, prepare

from edgefront import exits
from edgefront.core.wire.predictions import PredictedView
from edgefront.workflows.ship import Shipped, outcome

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
    said = rf"predicted \d+\.\d ± \d+\.\d, trained \d+\.\d \({DATA}, recipe modern, 4 steps; validation split\)"
    assert re.fullmatch(said, told["sentence"])
    trained = {training.training_id for training in probe.trainings} | {model["training"] for model in told["models"]}
    # The run is told what its model was measured at: the model's card shows it beside the perplexity.
    spec = json.loads((pool.home / "artifacts" / "trainings" / kept["training"] / "spec.json").read_text())
    assert spec["about"]["training"] == kept["training"]
    assert spec["about"]["licence"] == "mit"
    assert [item["latency_ms"] for item in spec["about"]["measurements"]] == [kept["latency_ms"]]

    again = edgefront("ship", "--job", told["job"], *RECIPE, "--output", str(tmp_path / "again"), home=pool.home)
    assert again.returncode == exits.OK, again.stderr
    assert "kept" in again.stdout
    assert again.stdout.splitlines()[-1] == told["sentence"]
    later = pool.client.jobs.law(told["job"]).law
    assert later is not None
    assert f"({later.label};" in told["sentence"]
    assert f"edgefront ship --job {told['job']} --train 2 --data {DATA}" in again.stderr  # after Ctrl-C
    assert {item.id for item in pool.client.trainings.list(job=told["job"])} == trained  # nothing was trained twice


def test_without_probes_the_end_says_what_is_known(pool: Running, tmp_path: Path) -> None:
    search = ("--narrow", "n_layer=2..3 d_model=128,192 d_inner=256..640:64", "--target", f"class={BOARD}")
    folder = tmp_path / "model"
    asked = ("--probes", "0", "--candidates", "6", "--seed", "5")
    run = edgefront("ship", *search, *asked, *RECIPE, "--output", str(folder), home=pool.home)
    assert run.returncode == exits.OK, run.stderr
    ratio = r"predicted \d+\.\d\d× \(\d+\.\d\d–\d+\.\d\d\)\*? gpt2-small's perplexity \(ratio, own data\)"
    assert re.fullmatch(
        rf"{ratio}, trained 12\.5 \({DATA}\); "
        r"against cnd_\w+ predicted \d\.\d\d×, trained 1\.00×; probes would tell the perplexity before \(--probes\)",
        run.stdout.splitlines()[-1],
    )


@pytest.mark.parametrize(
    ("predicted", "sentence"),
    [
        (None, "trained 31.4 (letters); no quality law is about such models, so nothing was predicted"),
        (
            PredictedView(perplexity=20.0, perplexity_low=19.0, perplexity_high=21.0, label="Dolma, 10B tokens"),
            "predicted 20.0 ± 1.0 (Dolma, 10B tokens), trained 31.4 (letters): not comparable, since the law is about "
            "other trainings",
        ),
    ],
)
def test_what_cannot_be_compared_is_said_to_be_so(
    pool: Running, predicted: PredictedView | None, sentence: str
) -> None:
    candidate = pool.client.frontier(pool.job.id).points[0].model_copy(update={"predicted": predicted})
    (training,) = pool.client.trainings.create({"model": "gpt2-small", "dataset": DATA})
    training = training.model_copy(update={"dataset": "letters"})
    assert outcome(pool.client, pool.job.id, [Shipped(candidate, training, 31.4, kept=True)]).sentence == sentence


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
