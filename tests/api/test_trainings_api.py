"""Trainings over HTTP: submitted once, steered, followed, downloaded; seen by their owner only."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from databases import ON_BOTH
from httpx_sse import EventSource
from packages import lively
from running_api import Service, problem
from simulated_agent import SimulatedAgent
from simulated_pool import ARCHITECTURE, DATA, Pool, prepare, settings_for
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, Tokenizer
from edgefront.core.schemas.messages import Event
from edgefront.core.schemas.trainings import MetricPage, TrainingPage, TrainingView
from edgefront.core.services.trainings.claims import TrainingClaim
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.store.tables import Target, Training
from edgefront.core.training.evaluation.package import write_package
from edgefront.core.training.recipes.catalogue import recipes as all_recipes
from edgefront.core.training.run_folder import RESULT
from edgefront.workers.training.supervisor import Supervisor

OVERRIDES = {"title": "", "steps": 5, "checkpoint_every": 2, "segment": 8, "schedule": {"warmup": 0}}


def training(**changes: Any) -> dict[str, Any]:
    return {"architecture": ARCHITECTURE, "dataset": DATA, "overrides": OVERRIDES, **changes}


def train(service: Service) -> None:
    """Runs the oldest queued training in this process, as a worker does."""
    url = service.database.url.render_as_string(hide_password=False)
    settings = settings_for(url, service.settings.home)
    claim = Pool(service.database, settings).claim()
    assert isinstance(claim, TrainingClaim)
    Supervisor(service.database, settings, claim.training_id, claim.fence).run()


@pytest.fixture
def client(service: Service) -> httpx.Client:
    prepare(service.settings.data_folder)
    return service.client("user", "bob")


@ON_BOTH
def test_submit_train_follow_and_download(service: Service, client: httpx.Client, tmp_path: Path) -> None:
    made = client.post("/v1/trainings", json=training(name="small"), headers={"Idempotency-Key": "one"})
    assert made.status_code == 201
    (view,) = TrainingPage.model_validate_json(made.content).items
    assert (view.owner, view.state, view.name, view.queue) == ("bob", "queued", "small", "train-cpu")
    assert "waits for a worker that serves train-cpu" in view.note
    path = f"/v1/trainings/{view.id}"
    assert made.headers["location"] == path
    again = client.post("/v1/trainings", json=training(name="small"), headers={"Idempotency-Key": "one"})
    assert again.json()["items"][0]["id"] == view.id
    problem(client.post("/v1/trainings", json=training(seed=1), headers={"Idempotency-Key": "one"}), 409)
    assert client.get(f"{path}/files").json() == []
    assert client.get(f"{path}/log").text == ""
    assert "has no result yet" in problem(client.get(f"{path}/archive"), 409)["detail"]
    longer = problem(client.post("/v1/trainings", json=training(budget={"steps": 3000})), 422)
    assert longer["detail"].startswith("budget.steps 3,000 is above the 5 steps of the recipe")

    train(service)
    done = TrainingView.model_validate_json(client.get(path).content)
    assert (done.state, done.step, done.evaluations[0].value) == ("done", 5, 12.5)
    for params, count in (({"state": "done"}, 1), ({"state": "queued"}, 0), ({"digest": view.digest}, 1)):
        assert len(client.get("/v1/trainings", params=params).json()["items"]) == count

    first = MetricPage.model_validate_json(client.get(f"{path}/metrics", params={"limit": 3}).content)
    rest = MetricPage.model_validate_json(client.get(f"{path}/metrics", params={"after": first.next_step}).content)
    assert [item.step for item in (*first.items, *rest.items)] == [1, 2, 3, 4, 5]
    assert rest.next_step is None

    with client.stream("GET", f"{path}/events", headers={"Last-Event-ID": "1"}) as response:
        told = []
        for event in EventSource(response).iter_sse():
            if event.data:
                told.append(Event.model_validate_json(event.data))
                if told[-1].number == done.last_event:
                    break
    assert [event.number for event in told] == list(range(2, done.last_event + 1))
    assert told[-1].data["state"] == "done"
    problem(client.get(f"{path}/events", params={"after": 10_000}), 422)

    files = client.get(f"{path}/files").json()
    assert {file["path"] for file in files} == {
        *("result/architecture.json", "result/model.safetensors", "result/result.json"),
        *("checkpoints/step-000000004/model.safetensors", "tensorboard/events"),
    }
    downloaded = client.get(f"{path}/files/result/model.safetensors")
    assert downloaded.content == b"weights " * 100
    etag = downloaded.headers["etag"]
    assert etag == f'"{hashlib.sha256(downloaded.content).hexdigest()}"'
    url = f"{path}/files/result/model.safetensors"
    assert client.get(url, headers={"If-None-Match": etag}).status_code == 304
    part = client.get(url, headers={"Range": "bytes=5-90", "If-Range": etag})
    assert (part.status_code, part.content) == (206, downloaded.content[5:91])
    assert part.headers["content-range"] == "bytes 5-90/800"
    archived = client.get(f"{path}/archive")
    assert archived.headers["content-disposition"] == f'attachment; filename="{view.id}.tar"'
    assert archived.headers["content-length"] == str(len(archived.content))
    with tarfile.open(fileobj=io.BytesIO(archived.content)) as archive:
        sent = {info.name: archive.extractfile(info).read() for info in archive}
    results = [file["path"].removeprefix("result/") for file in files if file["path"].startswith("result/")]
    assert sent == {f"{view.id}/{name}": client.get(f"{path}/files/result/{name}").content for name in results}
    assert client.delete(path).status_code == 204
    problem(client.get(path), 404)
    assert not (service.settings.artifact_folder / "trainings" / view.id).exists()


def test_only_what_is_listed_can_be_downloaded(service: Service, client: httpx.Client) -> None:
    made = client.post("/v1/trainings", json=training()).json()["items"][0]["id"]
    folder = service.settings.artifact_folder / "trainings" / made
    (folder / "result").mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    (folder.parent / "secret").write_text("secret")
    (folder / "result" / "link").symlink_to(folder.parent / "secret")
    (folder / "result" / "kept").write_text("kept")
    assert [file["path"] for file in client.get(f"/v1/trainings/{made}/files").json()] == ["result/kept"]
    for path in (
        *("spec.json", "result", "result/link", "result/../spec.json", "result/%2e%2e/spec.json", "%2e%2e/secret"),
        *("result//kept", "/etc/passwd", "result/../../secret", "..%2fsecret"),
    ):
        answer = client.get(f"{service.url}/v1/trainings/{made}/files/{path}")
        assert answer.status_code in (404, 422), (path, answer.text)
    assert client.get(f"/v1/trainings/{made}/files/result/kept").text == "kept"


def test_the_last_lines_of_the_log(service: Service, client: httpx.Client) -> None:
    made = client.post("/v1/trainings", json=training()).json()["items"][0]["id"]
    folder = service.settings.artifact_folder / "trainings" / made
    folder.mkdir(parents=True)
    (folder / "log.txt").write_bytes(b"\xff" + b"x" * (2 << 20) + b"\nfirst\nlast\n")
    answer = client.get(f"/v1/trainings/{made}/log", params={"tail": 2})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "first\nlast\n"
    assert client.get(f"/v1/trainings/{made}/log", params={"tail": 1}).text == "last\n"


def test_points_of_a_frontier_are_trained(service: Service, client: httpx.Client) -> None:
    agent = SimulatedAgent(service.database)
    job = service.submit(client)
    service.measure(agent)
    points = client.get(f"/v1/jobs/{job['id']}/frontier").json()["points"]
    assert len(points) > 2
    asked = {"dataset": DATA, "overrides": OVERRIDES, "frontier": {"job": job["id"], "count": 2}}
    made = client.post("/v1/trainings", json=asked).json()["items"]
    assert [item["candidate_id"] for item in made] == [points[0]["id"], points[-1]["id"]]
    assert made[0]["measured"]["latency_ms"] == points[0]["latency_ms"]
    assert made[0]["digest"] == points[0]["digest"]
    assert len(client.get("/v1/trainings", params={"job": job["id"]}).json()["items"]) == 2
    eve = service.client("user", "eve")
    problem(eve.post("/v1/trainings", json=asked), 404)
    nothing = {**asked, "frontier": {"job": job["id"], "max_latency_ms": 1e-6}}
    assert problem(client.post("/v1/trainings", json=nothing), 422)["field"] == "frontier"
    assert client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    left = client.get(f"/v1/trainings/{made[0]['id']}").json()
    assert (left["job_id"], left["candidate_id"], left["measured"]) == (None, None, None)
    assert left["architecture"] == points[0]["architecture"]


def test_recipes_and_data_sets_are_listed(client: httpx.Client, service: Service) -> None:
    recipes = {view["name"]: view for view in client.get("/v1/catalogue/recipes").json()}
    assert set(recipes) == set(all_recipes())
    assert recipes["quick"]["recipe"] == all_recipes()["quick"].model_dump(mode="json")
    assert recipes["quick"]["tokens"] == 300 * 8 * 128
    assert recipes["quick"]["dataset"] == "python"
    (service.settings.data_folder / ("0" * 64)).mkdir()  # prepared by halves: not offered
    sets = client.get("/v1/datasets").json()
    assert [(view["name"], view["level"], view["parallel"]) for view in sets] == [
        (DATA, "characters", False),
        ("python", "bpe", False),
    ]
    assert sets[0]["digest"] == hashlib.sha256(DATA.encode()).hexdigest()
    assert sets[1]["digest"] is None


def trained_in_earnest(service: Service, made: str, vocabulary: int | None = None) -> Tokenizer:
    """Puts a real result where the one is that the pool's tests make."""
    with service.database.read() as session:
        row = session.get(Training, made)
        assert row is not None
        architecture = Architecture.parse(row.trained)
    tokenizer = ByteTokenizer(range(vocabulary or architecture.embedding.vocab_size))
    write_package(
        service.settings.artifact_folder / "trainings" / made / "result",
        lively(architecture.canonical),
        tokenizer,
        {"name": "small", "level": "bytes"},
    )
    return tokenizer


def test_a_trained_model_is_downloaded_as_one_file(service: Service, client: httpx.Client) -> None:
    made = client.post("/v1/trainings", json=training()).json()["items"][0]["id"]
    path = f"/v1/trainings/{made}"
    refused = problem(client.get(f"{path}/model", params={"format": "gguf"}), 409)
    assert "has no result yet" in refused["detail"]
    train(service)
    result = training_folder(service.settings, made) / RESULT
    result.rename(result.with_name("away"))
    for lost in ("archive", "model?format=gguf"):  # a database restored without its artifacts
        assert (
            "is done, but its result is not in the service's folder"
            in problem(client.get(f"{path}/{lost}"), 409)["detail"]
        )
    result.with_name("away").rename(result)
    trained_in_earnest(service, made)
    formats = client.get(path).json()["formats"]
    assert {"gguf", "transformers", "onnx", "onnx-decode", "safetensors"} <= set(formats)
    downloaded = client.get(f"{path}/model", params={"format": "gguf", "numbers": "float16"})
    assert (downloaded.status_code, downloaded.content[:4]) == (200, b"GGUF")
    assert b"untrained" not in downloaded.content
    assert downloaded.headers["etag"] == f'"{hashlib.sha256(downloaded.content).hexdigest()}"'
    assert downloaded.headers["content-disposition"].endswith('-trained-float16.gguf"')
    part = client.get(f"{path}/model?format=gguf&numbers=float16", headers={"Range": "bytes=4-9"})
    assert (part.status_code, part.content) == (206, downloaded.content[4:10])
    folder = client.get(f"{path}/model")
    with tarfile.open(fileobj=io.BytesIO(folder.content)) as archive:
        assert {Path(name).name for name in archive.getnames()} >= {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
        }
    assert problem(client.get(f"{path}/model?format=gguf&numbers=int8"), 422)["field"] == "numbers"
    assert problem(client.get(f"{path}/model?format=gguf&numbers=q9"), 422)["field"] == "numbers"

    def name(**params: str) -> str:
        answer = client.get(f"{path}/model", params={"format": "onnx", **params}).raise_for_status()
        return answer.headers["content-disposition"].rpartition("-trained")[2]

    assert (name(), name(logits="last"), name(logits="all")) == ('.onnx"', '-last.onnx"', '.onnx"')
    SimulatedAgent(service.database)
    service.submit(client)
    with service.database.write() as session:  # of a candidate, which was measured with logits of the last position
        session.get_one(Training, made).target_id = session.scalars(select(Target.id)).first()
    assert name() == '-last.onnx"'
    kept = service.settings.artifact_folder / "trainings" / made / "models"
    assert sorted(file.name.rpartition("-trained-")[2] for file in kept.glob("*/*-trained-*")) == [
        "float16.gguf",
        "last.onnx",
        "transformers.tar",
    ]
    folders = {file["path"].split("/")[0] for file in client.get(f"{path}/files").json()}
    assert folders == {"result", "checkpoints", "tensorboard"}
    assert client.delete(path).status_code == 204
    assert not kept.exists()


def test_a_damaged_result_leaves_no_file(service: Service, client: httpx.Client) -> None:
    made = client.post("/v1/trainings", json=training()).json()["items"][0]["id"]
    train(service)
    trained_in_earnest(service, made, vocabulary=40)
    refused = problem(client.get(f"/v1/trainings/{made}/model?format=gguf"), 422)
    assert "has 40 tokens, but the model" in refused["detail"]
    kept = service.settings.artifact_folder / "trainings" / made / "models"
    assert [file for file in kept.rglob("*") if file.is_file() and file.name != ".lock"] == []
