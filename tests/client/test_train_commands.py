"""`edgefront train …` and `client.trainings` against the running service, whose pool runs `tiny_run`."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import edgefront
from packages import lively
from running_client import Running
from simulated_pool import ARCHITECTURE, DATA, VOCABULARY, prepare

from edgefront.cli import exits
from edgefront.client import requests
from edgefront.core.common.errors import Conflict, InvalidInput, NotFound
from edgefront.core.common.validation import checked
from edgefront.core.data.tokenizers.tokenizers import CharacterTokenizer
from edgefront.core.schemas.trainings import TrainingRequest
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.services.trainings.lifecycle import SupernetRequest
from edgefront.core.store.database import Database
from edgefront.core.training.evaluation.package import write_package

RECIPE = ("--data", DATA, "--set", "segment=8 schedule.warmup=0 checkpoint_every=2", "--steps", "4")


@pytest.fixture
def pool(running: Running) -> Iterator[Running]:
    prepare(running.home / "data")
    yield running
    for training in running.client.trainings.list():
        running.client.trainings.delete(training.id)


def test_two_models_of_a_frontier_from_the_submission_to_the_download(pool: Running, tmp_path: Path) -> None:
    job = pool.job.id
    done = edgefront("train submit --count 2 --watch", "--frontier", job, *RECIPE, home=pool.home, code=exits.OK)
    assert done.stdout.count(": done: step 4/4, ") == 2
    assert "perplexity 12.5, measured" in done.stdout
    listed = edgefront("train list", "--job", job, home=pool.home)
    trainings = list(pool.client.trainings.list(job=job, state="done"))
    assert len(trainings) == 2
    assert all(training.id in listed.stdout for training in trainings)
    training = trainings[0]
    shown = edgefront("train show", training.id, home=pool.home).stdout
    assert "valid perplexity 12.5" in shown
    assert "MB on board" in shown
    events = edgefront("train watch --json", training.id, home=pool.home).stdout.splitlines()
    assert [json.loads(line)["number"] for line in events] == list(range(1, training.last_event + 1))
    folder = tmp_path / "mine"
    fetched = edgefront("train download", training.id, "--output", str(folder), home=pool.home)
    assert fetched.stdout.strip() == str(folder)
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "architecture.json", "result.json"}
    assert json.loads((folder / "architecture.json").read_text()) == training.trained
    assert [item.step for item in pool.client.trainings.metrics(training.id)] == [1, 2, 3, 4]
    (weights,) = pool.client.trainings.download(training.id, tmp_path / "step", checkpoint=True)
    assert weights.read_bytes() == b"after 4"
    edgefront("train download --tensorboard", training.id, "-o", str(tmp_path / "runs"), home=pool.home, code=exits.OK)
    assert [path.read_bytes() for path in (tmp_path / "runs").iterdir()] == [b"1 2 3 4 "]


def test_a_trained_model_is_downloaded_for_llama_cpp_and_transformers(pool: Running, tmp_path: Path) -> None:
    (training,) = pool.client.trainings.create(
        {"architecture": ARCHITECTURE, "dataset": DATA, "overrides": {"segment": 8, "schedule": {"warmup": 0}},
         "budget": {"steps": 2}}
    )  # fmt: skip
    done = pool.client.trainings.wait(training.id, timeout_s=60)
    assert done.trained is not None
    model = lively(done.trained)
    tokens = CharacterTokenizer("".join(map(chr, range(97, 97 + model.architecture.embedding.vocab_size))))
    write_package(training_folder(Settings(home=pool.home), training.id) / "result", model, tokens, {})
    asked = ("train", "download", training.id, "--format", "gguf", "--weights", "float16", "--json")
    made = edgefront(*asked, home=pool.home, cwd=tmp_path, code=exits.OK)
    (path,) = json.loads(made.stdout)["files"]
    assert path.endswith("-trained-float16.gguf")
    assert (tmp_path / path).read_bytes()[:4] == b"GGUF"
    fetched = edgefront(
        "train download --format transformers", training.id, "-o", str(tmp_path / "a.tar"), home=pool.home
    )
    assert fetched.stdout.strip() == str(tmp_path / "a.tar")
    assert tarfile.is_tarfile(tmp_path / "a.tar")
    asked = ("train", "download", training.id, "--format", "transformers", "-o", str(tmp_path / "folder"))
    fetched = edgefront(*asked, home=pool.home)
    assert fetched.stdout.strip() == str(tmp_path / "folder")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        file.name for file in (tmp_path / "folder").iterdir()
    }
    assert "Replace it with --force" in edgefront(*asked, home=pool.home).stderr
    for words, said in (
        (("--numbers", "q8_0"), "numbers needs --format"),
        (("--format", "gguf", "--checkpoint"), "cannot be combined with --checkpoint"),
        (("--format", "gguf", "--numbers", "q8_0"), "d_model 16: q8_0"),
    ):
        refused = edgefront("train download", training.id, *words, home=pool.home, cwd=tmp_path, code=exits.REFUSED)
        assert said in refused.stderr
    assert {file.suffix for file in tmp_path.iterdir()} == {".gguf", ".tar", ""}


def test_steered_from_the_command_line(pool: Running, tmp_path: Path) -> None:
    request: dict[str, Any] = {
        "architecture": ARCHITECTURE,
        "dataset": DATA,
        "overrides": {"title": "wait", "segment": 8, "schedule": {"warmup": 0}},
    }
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request))
    submitted = edgefront("train submit", str(file), home=pool.home, code=exits.OK)
    training = submitted.stdout.strip()
    assert f"edgefront train watch {training}" in submitted.stderr
    with pytest.raises(Conflict, match="no result: wait"):
        pool.client.trainings.download(training, tmp_path)
    for event in pool.client.trainings.events(training, kinds=("metric",)):
        assert event.data["step"] == 1
        break
    early = edgefront("train submit", "--start", training, *RECIPE, home=pool.home, code=exits.REFUSED)
    assert f"start: training {training}" in early.stderr
    assert edgefront("train pause", training, home=pool.home).stdout.startswith(training)
    for event in pool.client.trainings.events(training, kinds=("state",)):
        if event.data["state"] == "paused":
            break
    cancelled = json.loads(edgefront("train cancel --json", training, home=pool.home).stdout)
    assert cancelled["state"] == "cancelled"
    assert pool.client.trainings.wait(training).checkpoint == 1
    with pytest.raises(Conflict):
        pool.client.trainings.resume(training)
    assert pool.client.trainings.log(training) == ""
    assert edgefront("train delete", training, home=pool.home).returncode == exits.OK
    with pytest.raises(NotFound):
        pool.client.trainings.get(training)


def test_recipes_and_data_sets_are_listed(pool: Running) -> None:
    listed = edgefront("train recipes", home=pool.home)
    assert {recipe.name for recipe in pool.client.catalogue.recipes()} >= {"quick", "srupp-enwik8-base"}
    assert "srupp-enwik8-base" in listed.stdout
    described = json.loads(edgefront("train recipes quick --json", home=pool.home).stdout)
    assert described["recipe"]["optimizer"]["name"] == "adamw"
    unknown = edgefront("train recipes quik", home=pool.home)
    assert unknown.returncode != exits.OK
    assert "quick" in unknown.stderr
    assert DATA in edgefront("train data", home=pool.home).stdout
    assert {dataset.name: dataset.digest for dataset in pool.client.trainings.datasets()}["python"] is None


def test_the_probabilities_of_a_supernets_layers(pool: Running) -> None:
    extra = {"seed": 3, "phase": "tuning", "temperature": 1.0, "pattern": "s(f)", "probabilities": [[0.8, 0.2, 0.0]]}
    database = Database(f"sqlite:///{pool.home / 'edgefront.db'}")
    with database.write() as session:
        now = database.now(session)
        request = SupernetRequest(pool.job.owner, "layers", DATA, "quick", seed=3)
        training = trainings.create_supernet(session, request, Settings(home=pool.home), now)
        training.state = "paused"  # nobody is to train it
        metric = {"step": 4, "tokens": 64, "seconds": 1.0, "extra": extra}
        training_queries.put_metrics(session, training.id, [metric])
        training_id = training.id
    database.dispose()
    further = edgefront("train submit", "--start", training_id, *RECIPE, home=pool.home)
    assert "has no model to train further yet (supernet, paused)" in further.stderr
    shown = edgefront("train layers", training_id, home=pool.home, code=exits.OK)
    assert "80%" in shown.stdout
    (search,) = pool.client.trainings.probabilities(training_id).searches
    assert search.records[-1].probabilities == ((0.8, 0.2, 0.0),)


def test_a_request_from_flags() -> None:
    assert requests.parse_settings(["steps=5 optimizer.lr=0.1", "optimizer.name=adamw"]) == {
        "steps": 5,
        "optimizer": {"lr": 0.1, "name": "adamw"},
    }
    for given in ("steps", "=5", "steps=", "optimizer=1 optimizer.lr=2", "a..b=1"):
        with pytest.raises(InvalidInput):
            requests.parse_settings([given])
    pick = {"count": 2}
    points = requests.training_subject(None, None, "job_1", pick, has_start=False)
    assert points == {"frontier": {"job": "job_1", "count": 2}}
    for starts in (False, True):
        assert requests.training_subject("gpt2-small", None, None, {}, has_start=starts) == {"model": "gpt2-small"}
        with pytest.raises(InvalidInput, match="name the models to train"):
            requests.training_subject("gpt2-small", "cnd_1", None, {}, has_start=starts)
        with pytest.raises(InvalidInput, match="--count"):
            requests.training_subject("gpt2-small", None, None, pick, has_start=starts)
    assert requests.training_subject(None, None, None, {}, has_start=True) == {}
    with pytest.raises(InvalidInput, match="or --start alone; given: none"):
        requests.training_subject(None, None, None, {}, has_start=False)
    with pytest.raises(InvalidInput, match="--count"):
        requests.training_subject(None, None, None, pick, has_start=True)
    with pytest.raises(InvalidInput) as caught:
        checked(TrainingRequest, {"candidate": "cnd_1", "budget": {"steps": 0}})
    assert caught.value.field == "budget.steps"


def test_a_model_is_imported_and_a_training_starts_from_it(pool: Running, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    model = lively({**ARCHITECTURE, "embedding": {"vocab_size": VOCABULARY}})
    write_package(folder, model, CharacterTokenizer("".join(map(chr, range(97, 97 + VOCABULARY)))), {"name": "mine"})
    for path in folder.glob("*tokenizer*"):
        path.unlink()  # the pool's data has none
    made = edgefront("train import --licence cc-by-4.0", str(folder), home=pool.home, code=exits.OK)
    imported = pool.client.trainings.get(made.stdout.strip())
    assert (imported.kind, imported.name, imported.licence) == ("import", "mine", "cc-by-4.0")
    listed = edgefront("train list", home=pool.home).stdout
    assert imported.id in listed
    assert "imported" in listed
    shown = edgefront("train show", imported.id, home=pool.home).stdout
    assert re.search(r"^recipe +imported$", shown, re.MULTILINE)
    paused = edgefront("train pause", imported.id, home=pool.home, code=exits.REFUSED)
    assert "is an imported model" in paused.stderr
    asked = ("train", "submit", "--architecture", str(folder), "--start", str(folder), *RECIPE, "--watch")
    done = edgefront(*asked, home=pool.home, code=exits.OK)
    assert f"imported mine as {imported.id}" in done.stderr
    (training,) = (item for item in pool.client.trainings.list() if item.id != imported.id)
    assert (training.start, training.licence, training.state) == (imported.id, "cc-by-4.0", "done")
    own = edgefront(*asked[:-1], "--start", imported.id[:16], "--licence", "mit", "--json", home=pool.home)
    assert json.loads(own.stdout)[0]["licence"] == "mit", own.stderr
    part = edgefront(*asked[:-1], "--inherit", "--recipe", "distil", "--json", home=pool.home)
    (view,) = json.loads(part.stdout)
    assert (view["start"], view["inherit"], view["recipe"]["name"]) == (imported.id, True, "distil"), part.stderr
    shown = edgefront("train show", view["id"], home=pool.home).stdout
    assert re.search(rf"^begins with +a submodel of {imported.id}$", shown, re.MULTILINE)
    for start in (str(folder), imported.id[:16]):
        further = edgefront("train submit --json", "--start", start, *RECIPE, home=pool.home)
        (view,) = json.loads(further.stdout)
        assert (view["start"], view["inherit"]) == (imported.id, False), further.stderr
        assert view["architecture"] == imported.trained
    whole = edgefront("train submit --inherit", "--start", imported.id, *RECIPE, home=pool.home, code=exits.REFUSED)
    assert "--inherit trains a submodel of --start: name the submodel" in whole.stderr
    without = edgefront("train import", str(folder / "architecture.json"), home=pool.home)
    assert "has no weights" in without.stderr
