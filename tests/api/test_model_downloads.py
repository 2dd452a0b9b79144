"""Models for download: named by their hash, resumable, and honest about their weights."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import httpx
import pytest
from running_api import Service, problem

from edgefront.core.architectures.architecture import Architecture


@pytest.fixture
def path(service: Service, client: httpx.Client) -> str:
    service.enrol("board", "simulated board")
    made = service.submit(client)
    [candidate, *_] = client.get(f"/v1/jobs/{made['id']}/candidates").json()["items"]
    return f"/v1/candidates/{candidate['id']}/model"


@pytest.mark.parametrize("format_", ["onnx", "safetensors"])
def test_whole_file(client: httpx.Client, path: str, format_: str) -> None:
    response = client.get(path, params={"format": format_})
    assert response.status_code == 200
    assert response.headers["etag"] == f'"{hashlib.sha256(response.content).hexdigest()}"'
    assert response.headers["x-edgefront-weights"] == "untrained-random"
    assert "untrained" in response.headers["content-disposition"]
    assert response.headers["content-disposition"].startswith('attachment; filename="')
    assert response.headers["accept-ranges"] == "bytes"
    assert int(response.headers["content-length"]) == len(response.content)
    head = client.head(path, params={"format": format_})
    assert head.headers["etag"] == response.headers["etag"]
    assert head.headers["content-length"] == response.headers["content-length"]


def test_architecture(client: httpx.Client, path: str) -> None:
    response = client.get(path, params={"format": "architecture"})
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-edgefront-weights"] == "none"
    assert Architecture.parse(response.content).d_model


def test_ranges(client: httpx.Client, path: str) -> None:
    whole = client.get(path)
    size, etag = len(whole.content), whole.headers["etag"]

    def part(value: str, **headers: str) -> httpx.Response:
        return client.get(path, headers={"Range": value, **headers})

    for value, expected in (
        ("bytes=0-99", whole.content[:100]),
        ("bytes=100-", whole.content[100:]),
        ("bytes=-7", whole.content[-7:]),
        (f"bytes={size - 1}-{size + 500}", whole.content[-1:]),
    ):
        response = part(value)
        assert response.status_code == 206, value
        assert response.content == expected
        assert response.headers["content-range"].endswith(f"/{size}")
        assert response.headers["etag"] == etag
    assert part("bytes=5-9", **{"If-Range": etag}).status_code == 206
    assert part("bytes=5-9", **{"If-Range": '"other"'}).content == whole.content
    assert part("bytes=5-9", **{"If-Range": f"W/{etag}"}).content == whole.content
    for ignored in ("bytes=9-5", "lines=1-2", "bytes=a-b", "bytes=0-1,5-6", "bytes=-", "bytes"):
        response = part(ignored)
        assert (response.status_code, len(response.content)) == (200, size), ignored
    refused = part(f"bytes={size}-")
    assert problem(refused, 416)["kind"] == "range-not-satisfiable"
    assert refused.headers["content-range"] == f"bytes */{size}"


def test_a_file_that_the_client_has_is_not_sent_again(client: httpx.Client, path: str) -> None:
    etag = client.get(path).headers["etag"]
    for value in (etag, f'"x", W/{etag}', "*"):
        response = client.get(path, headers={"If-None-Match": value})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == etag
    assert client.get(path, headers={"If-None-Match": '"x"'}).status_code == 200


def test_unknown_format_and_candidate(client: httpx.Client, path: str) -> None:
    assert problem(client.get(path, params={"format": "gguf"}), 422)["field"] == "format"
    problem(client.get("/v1/candidates/cnd_unknown/model"), 404)


def test_a_model_that_transformers_has_comes_as_its_folder(service: Service, client: httpx.Client, path: str) -> None:
    refused = problem(client.get(path, params={"format": "transformers"}), 422)
    assert (refused["kind"], refused["field"]) == ("invalid-input", "format")
    assert "embedding.cutoffs" in refused["detail"]
    narrow = {"n_layer": [3], "d_model": [512], "n_head": [2], "d_inner": [1024]}
    made = service.submit(client, space={"name": "lts-opt", "narrow": narrow}, baseline_layers=[3])
    [candidate, *_] = client.get(f"/v1/jobs/{made['id']}/candidates").json()["items"]
    path = f"/v1/candidates/{candidate['id']}/model"
    response = client.get(path, params={"format": "transformers"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-tar"
    assert response.headers["content-disposition"].endswith('-transformers.tar"')
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        files = {Path(member.name).name: member for member in archive}
        folder = f"edgefront-{candidate['digest'][:12]}"
        assert {Path(member.name).parent.name for member in files.values()} == {folder}
        config = json.load(archive.extractfile(files["config.json"]))  # type: ignore[arg-type]
    assert sorted(files) == ["README.md", "config.json", "generation_config.json", "model.safetensors"]
    assert config["model_type"] == "opt"


def test_a_config_json_becomes_a_description(client: httpx.Client) -> None:
    config = {
        "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97,
    }  # fmt: skip
    response = client.post("/v1/models/import", json=config)
    assert response.status_code == 200
    architecture = Architecture.parse(response.json()["architecture"])
    assert architecture.digest == response.json()["digest"]
    assert architecture.blocks[0].kind == "attention"
    wrong = {**config, "rope_scaling": {"rope_type": "yarn", "factor": 4}, "hidden_size": None}
    refused = problem(client.post("/v1/models/import", json=wrong), 422)
    assert sorted(error["field"] for error in refused["errors"]) == ["hidden_size", "rope_scaling.rope_type"]
    assert refused["field"] == refused["errors"][0]["field"]
    assert "yarn" in refused["detail"]
    problem(client.post("/v1/models/import", json=[1]), 422)
    for number in ("1e999", "NaN", "1" + 400 * "0"):
        text = json.dumps(config)[:-1] + f', "rope_theta": {number}}}'
        answer = client.post("/v1/models/import", content=text, headers={"Content-Type": "application/json"})
        assert "rope_theta" in problem(answer, 422)["detail"]
    problem(client.post("/v1/models/import", json={"model_type": "mixtral"}), 422)
