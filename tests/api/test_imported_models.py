"""Models with their weights, imported over HTTP: checked, stored once, and used like any trained one."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from concurrency import at_once
from databases import ON_BOTH
from packages import DESCRIPTIONS, IMPORT_PATH, lively, package, packed, packed_model
from running_api import Service, problem
from simulated_pool import DATA, prepare
from trained_parent import trained_parent

from edgefront.client.client import Client
from edgefront.core.common.files import Archive
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.schemas.trainings import TrainingView
from edgefront.core.services.trainings import drafts
from edgefront.core.store.database import Database
from edgefront.core.training.evaluation.given_model import model_files
from edgefront.core.training.evaluation.package import read_package, write_package


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def nothing_is_left(service: Service, client: httpx.Client) -> None:
    assert client.get("/v1/trainings").json()["items"] == []
    assert files_below(service.settings.artifact_folder) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parent = {"name": "larger", "licence": "mit", "sha256": "0" * 64}
    facts = {
        "name": "mine",
        "licence": "apache-2.0",
        "dataset": "letters",
        "parent": parent,
        "cut": {"sentence": "d_inner 48 → 24", "d_inner": 24},
    }
    write_package(tmp_path / "mine", lively(DESCRIPTIONS["gpt2"]), ByteTokenizer(), facts)
    return tmp_path / "mine"


def test_an_imported_model_is_a_training_that_is_done(
    service: Service, client: httpx.Client, folder: Path, tmp_path: Path
) -> None:
    made = client.post(IMPORT_PATH, content=packed_model(folder), params={"name": "small one"})
    assert made.status_code == 201, made.text
    view = TrainingView.model_validate_json(made.content)
    assert (view.kind, view.state, view.name, view.owner, view.licence) == (
        "import", "done", "small one", "bob", "apache-2.0",
    )  # fmt: skip
    path = f"/v1/trainings/{view.id}"
    assert made.headers["location"] == path
    untrained = ("dataset", "dataset_digest", "recipe", "budget", "requires", "queue", "seed", "worker", "last_metric")
    for field in untrained:
        assert getattr(view, field) is None, field
    assert view.digest == read_package(folder).architecture.digest
    assert view.architecture == view.trained
    assert set(view.formats) >= {"onnx", "gguf", "transformers", "safetensors"}
    assert client.get(path).json() == client.get("/v1/trainings").json()["items"][0] == json.loads(made.content)

    files = {file["path"] for file in client.get(f"{path}/files").json()}
    names = ("model.safetensors", "architecture.json", "tokenizer.json", "README.md")
    assert files >= {f"result/{name}" for name in names}
    weights = client.get(f"{path}/files/result/model.safetensors").content
    assert weights == (folder / "model.safetensors").read_bytes()
    card = client.get(f"{path}/files/result/README.md").text
    assert "license: apache-2.0" in card
    for recorded in ("letters", "larger, weights of SHA-256 000", "its parent: mit", "d_inner 48 → 24"):
        assert recorded in card
    assert client.get(f"{path}/log").text == ""
    assert client.get(f"{path}/metrics").json()["items"] == []
    assert client.get(f"{path}/archive").status_code == 200
    for format_ in ("gguf", "onnx", "transformers"):
        assert client.get(f"{path}/model", params={"format": format_}).status_code == 200
    for verb in ("pause", "resume", "cancel"):
        document = problem(client.post(f"{path}/{verb}"), 409)
        assert "is an imported model, which is not trained: it cannot be" in document["detail"]
    assert client.delete(path).status_code == 204
    nothing_is_left(service, client)


@ON_BOTH
def test_the_same_weights_give_the_same_training(service: Service, folder: Path, tmp_path: Path) -> None:
    bob, eve = service.client("user", "bob"), service.client("user", "eve")
    first = bob.post(IMPORT_PATH, content=packed_model(folder))
    again = bob.post(IMPORT_PATH, content=packed_model(folder), params={"name": "other"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    hers = eve.post(IMPORT_PATH, content=packed_model(folder))
    assert hers.status_code == 201
    other = tmp_path / "other"
    write_package(other, lively(DESCRIPTIONS["gpt2"], seed=2), ByteTokenizer(), {})
    assert bob.post(IMPORT_PATH, content=packed_model(other)).json()["id"] != first.json()["id"]
    assert len(bob.get("/v1/trainings").json()["items"]) == 2
    stored = service.settings.artifact_folder
    assert len(list((stored / "trainings").iterdir())) == 3
    assert list((stored / "imports").iterdir()) == []


@ON_BOTH
def test_of_requests_at_once_one_makes_it(service: Service, folder: Path) -> None:
    clients, content = [service.client("user", "bob") for _ in range(4)], packed_model(folder)
    answers = at_once(*(partial(client.post, IMPORT_PATH, content=content) for client in clients))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(list((service.settings.artifact_folder / "trainings").iterdir())) == 1


def _changed(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The weights file with another header."""
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header[name])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def test_what_is_no_whole_model_is_refused_and_leaves_nothing(
    service: Service, client: httpx.Client, folder: Path, tmp_path: Path
) -> None:
    whole = {name: path.read_bytes() for name, path in model_files(folder).items()}
    weights, norm = whole["model.safetensors"], "blocks.0.norm.weight"
    assert norm in weights.decode("latin1")
    infinite = weights[:-4] + np.float32(np.inf).tobytes()
    other = package(tmp_path / "other", "sru").folder
    link = tarfile.TarInfo("architecture.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    linked = io.BytesIO()
    with tarfile.open(fileobj=linked, mode="w") as archive:
        archive.addfile(link)
    tokenizer = json.loads(whole["edgefront_tokenizer.json"])
    wrong: list[tuple[bytes, str]] = [
        (b"", "not a tar archive"),
        (b"{}" * 600, "not a tar archive"),
        (packed_model(folder)[:-40_000], "not a tar archive"),
        (packed({**whole, "../escaped": b""}), "'../escaped', which is not a model file"),
        (packed({**whole, "/etc/escaped": b""}), "'/etc/escaped', which is not a model file"),
        (linked.getvalue(), "architecture.json is not a regular file"),
        (packed({"model.safetensors": weights}), "architecture.json is missing"),
        (packed({"architecture.json": whole["architecture.json"]}), "model.safetensors is missing"),
        (packed({**whole, "model.safetensors": b"weights"}), "model.safetensors is not a safetensors file"),
        (packed({**whole, "model.safetensors": infinite}), "numbers in final_norm.bias that are not finite"),
        (
            packed({**whole, "model.safetensors": _changed(folder, norm, lambda entry: entry.update(dtype="F16"))}),
            f"has {norm} as F16",
        ),
        (
            packed({**whole, "model.safetensors": _changed(folder, norm, lambda entry: entry.update(shape=[4, 4]))}),
            f"has {norm} as F32 of [4, 4], not F32 of (16,)",
        ),
        (
            packed({**whole, "architecture.json": (other / "architecture.json").read_bytes()}),
            "architecture.json describes",
        ),
        (packed({**whole, "architecture.json": b"\xff"}), "not UTF-8"),
        (packed({**whole, "result.json": b"[]"}), "result.json"),
        (packed({**whole, "result.json": b'{"steps": "many"}'}), "result.json.steps"),
        (packed({**whole, "result.json": b'{"licence": "my own words"}'}), "result.json.licence"),
        (packed({**whole, "edgefront_tokenizer.json": b"{}"}), "edgefront_tokenizer.json is damaged"),
        (
            packed({**whole, "edgefront_tokenizer.json": json.dumps({**tokenizer, "bytes": [1, 2]}).encode()}),
            "has 2 tokens, but the model has 256",
        ),
        (packed({**whole, "cuts.safetensors": b"cuts"}), "cuts.safetensors is not a safetensors file"),
    ]
    for content, said in wrong:
        document = problem(client.post(IMPORT_PATH, content=content), 422)
        assert said in document["detail"], (said, document["detail"])
        assert str(service.settings.home) not in json.dumps(document)
        nothing_is_left(service, client)
    problem(client.post(IMPORT_PATH, content=packed_model(folder), params={"licence": "my own words"}), 422)
    problem(service.client("viewer", "bob").post(IMPORT_PATH, content=packed_model(folder)), 403)
    problem(service.agent().post(IMPORT_PATH, content=packed_model(folder)), 403)
    nothing_is_left(service, client)


def test_a_long_name_in_an_archive_is_not_read(client: httpx.Client) -> None:
    info = tarfile.TarInfo("name")
    info.type, info.size = tarfile.XHDTYPE, 3 << 20
    content = info.tobuf(tarfile.USTAR_FORMAT) + bytes(3 << 20)
    assert "header of an entry is too long" in problem(client.post(IMPORT_PATH, content=content), 422)["detail"]


@pytest.mark.slow
def test_a_study_of_cuts_comes_with_its_model(client: httpx.Client, folder: Path, tmp_path: Path) -> None:
    studied = trained_parent(tmp_path).package.folder
    cuts = studied / "cuts.safetensors"
    made = client.post(IMPORT_PATH, content=packed_model(studied)).json()["id"]
    assert client.get(f"/v1/trainings/{made}/files/result/cuts.safetensors").content == cuts.read_bytes()
    header = {"__metadata__": {"format": "edgefront-cuts", "law": "{}", "weights": "0"}}
    text = json.dumps(header).encode()
    for content, said in (
        (cuts.read_bytes(), "is about other weights"),
        ((folder / "model.safetensors").read_bytes(), "is not a pruning study"),
        (len(text).to_bytes(8, "little") + text, ""),
    ):
        (folder / "cuts.safetensors").write_bytes(content)
        assert said in problem(client.post(IMPORT_PATH, content=packed_model(folder)), 422)["detail"]
    cuts.unlink()
    assert client.post(IMPORT_PATH, content=packed_model(studied)).json()["id"] != made


def test_a_large_model_is_refused(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service], folder: Path
) -> None:
    content = packed_model(folder)
    os.environ["EDGEFRONT_DATA__MAX_IMPORT_BYTES"] = str(len(content) - 1)
    try:
        service = start_service(open_database(sqlite_url), max_body_bytes=1024)
    finally:
        del os.environ["EDGEFRONT_DATA__MAX_IMPORT_BYTES"]
    bob = service.client("user", "bob")
    whole = problem(bob.post(IMPORT_PATH, content=content), 413)
    in_parts = problem(bob.post(IMPORT_PATH, content=iter([content[:5000], content[5000:]])), 413)
    limit = f"{len(content) - 1} bytes, the limit of this endpoint"
    assert whole["detail"] == in_parts["detail"] == f"the body is larger than {limit}"
    nothing_is_left(service, bob)
    problem(bob.post("/v1/trainings", json={"name": "x" * 2000}), 413)
    (folder / "result.json").unlink()
    smaller = Archive(model_files(folder))
    assert smaller.size < len(content)
    assert bob.post(IMPORT_PATH, content=b"".join(smaller)).status_code == 201


def test_a_full_disk_leaves_nothing(
    service: Service, client: httpx.Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for place, name in ((drafts, "unpack"), (drafts.os, "fsync")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, full)
            assert "the disk is full" in problem(client.post(IMPORT_PATH, content=packed_model(folder)), 503)["detail"]
        nothing_is_left(service, client)


def test_a_body_that_breaks_off_leaves_nothing(service: Service, client: httpx.Client, folder: Path) -> None:
    content, imports = packed_model(folder), service.settings.artifact_folder / "imports"
    broken = threading.Event()

    def parts() -> Any:
        yield content[:20_000]
        while not (imports.exists() and list(imports.iterdir())):
            pass
        broken.set()
        raise OSError("the line is cut")

    with pytest.raises(OSError, match="the line is cut"):
        client.post(IMPORT_PATH, content=parts(), headers={"Content-Length": str(len(content))})
    assert broken.is_set()
    while list(imports.iterdir()):
        pass
    nothing_is_left(service, client)


def test_what_a_killed_process_left_is_removed_by_the_next(
    service: Service, client: httpx.Client, folder: Path
) -> None:
    artifacts = service.settings.artifact_folder
    kept = client.post(IMPORT_PATH, content=packed_model(folder)).json()["id"]
    for training_id in (kept, "trn_gone"):  # one was killed after its row was stored, one before
        (artifacts / "imports" / training_id).mkdir(parents=True)
        (artifacts / "imports" / f"{training_id}.lock").touch()
        (artifacts / "imports" / training_id / "placed").touch()
    shutil.copytree(artifacts / "trainings" / kept, artifacts / "trainings" / "trn_gone")
    live = drafts.Draft(service.settings, service.database)
    problem(client.post(IMPORT_PATH, content=b""), 422)
    assert [path.name for path in (artifacts / "trainings").iterdir()] == [kept]
    assert {path.name.partition(".")[0] for path in (artifacts / "imports").iterdir()} == {live.training_id}
    live.close()
    assert list((artifacts / "imports").iterdir()) == []


def test_the_client_sends_a_folder(service: Service, folder: Path) -> None:
    with Client(service.url, service.key("user", "bob")) as client:
        made = client.trainings.import_model(folder)
        assert (made.kind, made.name, made.licence) == ("import", "mine", "apache-2.0")
        assert client.trainings.import_model(folder, name="again", licence="mit").id == made.id
        assert client.trainings.wait(made.id).state == "done"
    archive = Archive(model_files(folder))
    assert sum(map(len, archive)) == archive.size


def test_a_training_starts_from_an_import_of_its_owner_with_the_same_tokens(
    service: Service, client: httpx.Client, folder: Path, tmp_path: Path
) -> None:
    prepare(service.settings.data_folder)
    made = client.post(IMPORT_PATH, content=packed_model(folder)).json()
    asked = {
        "architecture": made["architecture"],
        "dataset": DATA,
        "recipe": "quick",
        "overrides": {"segment": 8, "evaluation": {"segment": 8}},
        "start": made["id"],
    }
    document = problem(client.post("/v1/trainings", json=asked), 422)
    assert document["field"] == "start"
    assert (
        "prepare the data with the training's tokenizer (`edgefront data prepare NAME --level bytes`)"
        in document["detail"]
    )
    assert document["detail"] == problem(client.post("/v1/trainings/estimate", json=asked), 422)["detail"]
    for path in folder.glob("*tokenizer*"):
        path.unlink()
    asked["start"] = client.post(IMPORT_PATH, content=packed_model(folder)).json()["id"]
    assert asked["start"] != made["id"]
    (training,) = client.post("/v1/trainings", json=asked).json()["items"]
    assert (training["start"], training["licence"]) == (asked["start"], "apache-2.0")
    (own,) = client.post("/v1/trainings", json={**asked, "licence": "mit"}).json()["items"]
    assert own["licence"] == "mit"
    wider = {**made["architecture"], "d_model": 32}
    different = problem(client.post("/v1/trainings", json={**asked, "architecture": wider}), 422)
    assert "a different architecture" in different["detail"]
    eve = service.client("user", "eve")
    problem(eve.post("/v1/trainings", json=asked), 404)
