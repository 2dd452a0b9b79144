"""The client against the real service."""

from __future__ import annotations

import csv
import hashlib
import json
import stat
from pathlib import Path

import onnx
import pyarrow.parquet
import pytest
from running_client import BOARD, SMALL, Running
from safetensors import safe_open

from edgefront import Client
from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.errors import (
    ArchitectureError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from edgefront.core.spaces.models import named_models
from edgefront.core.wire.jobs import JobRequest
from edgefront.follow import views


def test_it_finds_the_running_service_and_its_key(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFRONT_HOME", str(running.home))
    with Client() as client:
        assert client.url == running.service.url
        assert client.jobs.get(running.job.id).id == running.job.id
    monkeypatch.setenv("EDGEFRONT_URL", running.service.url)
    with Client() as client:  # the same server by its URL: its key still is the one at hand
        client.jobs.get(running.job.id)
    monkeypatch.setenv("EDGEFRONT_KEY", "efk_wrong")
    with Client() as client, pytest.raises(Unauthenticated):
        client.jobs.get(running.job.id)


def test_the_key_is_for_its_owner_alone(running: Running) -> None:
    for name in ("key", "server.json"):
        assert stat.S_IMODE((running.home / name).stat().st_mode) == 0o600


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="edgefront up"):
        Client(home=tmp_path)


def test_a_job_from_a_mapping_ends_with_a_frontier(running: Running) -> None:
    assert running.job.state == "finished"
    (target,) = running.job.targets
    frontier = running.client.frontier(running.job.id)
    assert len(frontier.points) == target.frontier_size > 0
    assert [point.role for point in frontier.baseline] == ["baseline"] * 3
    assert all(point.versus_baseline is not None for point in frontier.points)
    fast = running.client.frontier(running.job.id, target="board", max_latency_ms=frontier.points[0].latency_ms)
    assert {point.id for point in fast.points} < {point.id for point in frontier.points}
    with pytest.raises(NotFound, match="board"):
        running.client.frontier(running.job.id, target="nope")


def test_jobs_are_listed_over_pages_and_states(running: Running) -> None:
    client = running.client
    made = [client.jobs.create({**SMALL, "name": f"page {number}", "seed": number}) for number in range(3)]
    for job in made:
        client.jobs.wait(job.id, timeout_s=60)
    newest = [job.id for job in client.jobs.list(limit=2)]
    assert newest[:3] == [job.id for job in reversed(made)]
    assert running.job.id in newest
    assert list(client.jobs.list(state="failed")) == []


def test_the_same_idempotency_key_is_the_same_job(running: Running) -> None:
    request = JobRequest.model_validate({**SMALL, "name": "once"})
    first = running.client.jobs.create(request, idempotency_key="k-1")
    assert running.client.jobs.create(request, idempotency_key="k-1").id == first.id
    with pytest.raises(Conflict):
        running.client.jobs.create(request.model_copy(update={"seed": 1}), idempotency_key="k-1")
    running.client.jobs.wait(first.id, timeout_s=60)


def test_pause_resume_cancel_and_delete(running: Running) -> None:
    jobs = running.client.jobs
    running.client.devices.drain(running.board)
    job = jobs.create({**SMALL, "name": "waits", "seed": 123})
    assert jobs.pause(job.id).state == "paused"
    assert jobs.pause(job.id).state == "paused"
    assert jobs.resume(job.id).state == "running"
    with pytest.raises(TimeoutError):
        jobs.wait(job.id, timeout_s=0.05)
    assert jobs.cancel(job.id).state == "cancelled"
    assert jobs.wait(job.id).state == "cancelled"
    jobs.delete(job.id)
    with pytest.raises(NotFound):
        jobs.get(job.id)
    running.client.devices.activate(running.board)


def test_wrong_requests_name_the_field_on_either_side(running: Running) -> None:
    with pytest.raises(InvalidInput) as here:
        running.client.jobs.create({"targets": [{"device_class": BOARD}], "budget": {"minutes": -1}})
    assert here.value.field == "budget.minutes"
    with pytest.raises(InvalidInput) as there:
        running.client.jobs.create({**SMALL, "space": {"name": "lts-gpt2", "narrow": {"n_layer": [99]}}})
    assert "n_layer" in there.value.field
    with pytest.raises(NotFound, match="no-such-board"):
        running.client.jobs.create({**SMALL, "targets": [{"device": "no-such-board"}]})


def test_names_with_slashes_and_dots_stay_one_segment(running: Running) -> None:
    for name in ("../keys", "a/b", "a?b", ".."):
        with pytest.raises((NotFound, InvalidInput)):
            running.client.jobs.get(name)


def test_the_events_are_complete(running: Running) -> None:
    events = list(running.client.jobs.events(running.job.id))
    assert [event.number for event in events] == list(range(1, running.job.last_event + 1))
    assert {"job_state", "target_state", "generation", "candidate", "frontier"} <= {event.kind for event in events}
    later = list(running.client.jobs.events(running.job.id, after=events[4].number))
    assert later == events[5:]
    generations = list(running.client.jobs.events(running.job.id, kinds={"generation"}))
    assert generations == [event for event in events if event.kind == "generation"]


def test_views_follow_a_job_to_its_end(running: Running) -> None:
    job = running.client.jobs.create({**SMALL, "name": "followed", "seed": 99})
    seen = list(views(running.client, job.id))
    assert seen[-1].state == "finished"
    counts = [view.targets[0].settled for view in seen]
    assert counts == sorted(counts)


def test_candidates_come_over_all_pages_filtered_and_sorted(running: Running) -> None:
    listed = running.client.candidates.list
    everyone = list(listed(running.job.id, limit=4))
    (target,) = running.job.targets
    assert len({candidate.id for candidate in everyone}) == len(everyone) == target.candidates
    assert all(candidate.role == "baseline" for candidate in listed(running.job.id, role="baseline", target="board"))
    frontier = list(listed(running.job.id, on_frontier=True, sort="-decoder_parameters"))
    sizes = [candidate.decoder_parameters for candidate in frontier]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == target.frontier_size
    assert running.client.candidates.get(frontier[0].id) == frontier[0]
    assert list(listed(running.job.id, group="frontier", sort="-decoder_parameters")) == frontier
    assert [candidate.number for candidate in listed(running.job.id, text="#5")] == [5]


def test_a_number_can_be_traced_to_its_launches(running: Running) -> None:
    candidate = next(running.client.candidates.list(running.job.id, on_frontier=True))
    launches = running.client.candidates.launches(candidate.id)
    done = [launch.result for launch in launches if launch.result is not None]
    assert len(done) == candidate.launches
    assert all(result.latency and result.latency.samples_ms for result in done)


def test_candidates_are_exported_as_csv_and_parquet(running: Running, tmp_path: Path) -> None:
    as_csv = running.client.candidates.export(running.job.id, tmp_path / "all.csv")
    as_parquet = running.client.candidates.export(running.job.id, tmp_path / "all.parquet")
    with as_csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == running.job.targets[0].candidates == pyarrow.parquet.read_table(as_parquet).num_rows


def test_models_are_downloaded_whole(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[0]
    as_onnx = running.client.models.download(point.id, "onnx", tmp_path)
    assert as_onnx.suffix == ".onnx"
    onnx.checker.check_model(as_onnx)
    as_safetensors = running.client.models.download(point.id, "safetensors", tmp_path / "own-name.safetensors")
    with safe_open(as_safetensors, framework="numpy") as file:
        assert file.metadata()["digest"] == point.digest
    described = running.client.models.download(point.id, "architecture", tmp_path)
    assert json.loads(described.read_text(encoding="utf-8")) == point.architecture
    assert len(list(tmp_path.iterdir())) == 3


def test_a_model_is_downloaded_in_the_numbers_that_were_measured(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[0]
    full, small = (
        running.client.models.download(point.id, "onnx-decode", tmp_path, numbers=numbers)
        for numbers in ("float32", "int8")
    )
    assert small.name == full.name.replace("-decode", "-decode-int8")
    assert "MatMulInteger" in {node.op_type for node in onnx.load(small).graph.node}
    with pytest.raises(InvalidInput, match="numbers int8 is not for safetensors") as caught:
        running.client.models.download(point.id, "safetensors", tmp_path, numbers="int8")
    assert caught.value.field == "numbers"
    with pytest.raises(InvalidInput, match="GGUF cannot express") as caught:
        running.client.models.download(point.id, "gguf", tmp_path)
    assert caught.value.field == "format"


def test_the_two_files_that_generate_are_downloaded_beside_each_other(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[0]
    # What a broken download left is not taken for the file of another format, whose name begins alike.
    (tmp_path / f".edgefront-{point.id}-onnx-prefill-{'0' * 64}.part").write_bytes(b"some of it")
    whole = running.client.models.download(point.id, "onnx", tmp_path)
    prefill = running.client.models.download(point.id, "onnx-prefill", tmp_path)
    decode = running.client.models.download(point.id, "onnx-decode", tmp_path)
    stem = whole.name.removesuffix(".onnx")
    assert [prefill.name, decode.name] == [f"{stem}-prefill.onnx", f"{stem}-decode.onnx"]
    after = {output.name for output in onnx.load(prefill).graph.output}
    before = {value.name for value in onnx.load(decode).graph.input}
    assert after == {"logits", *(f"next.{name}" for name in before - {"tokens"})}
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(InvalidInput) as caught:
        running.client.models.download(point.id, "gguf", tmp_path)  # type: ignore[arg-type]
    assert caught.value.field == "format"


def test_a_download_from_the_real_server_resumes(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[-1]
    whole = running.client.models.download(point.id, "safetensors", tmp_path / "whole").read_bytes()
    checksum = hashlib.sha256(whole).hexdigest()
    part = tmp_path / f".edgefront-{point.id}-safetensors-{checksum}.part"
    part.write_bytes(whole[:100_000])
    told: list[int] = []
    again = running.client.models.download(
        point.id, "safetensors", tmp_path / "again", progress=lambda done, _: told.append(done)
    )
    assert again.read_bytes() == whole
    assert told[0] == 100_000


def test_devices_tokens_and_keys(running: Running) -> None:
    client = running.client
    assert [device.name for device in client.devices.list()] == [running.board]
    assert client.devices.drain(running.board).state == "draining"
    assert client.devices.activate(running.board).state == "active"
    token = client.tokens.create(name="lab", minutes=5, uses=2)
    assert token.token is not None
    assert token.uses_left == 2
    client.tokens.revoke(token.id)
    assert [item.revoked for item in client.tokens.list() if item.id == token.id] == [True]
    key = client.keys.create("ben", days=3)
    assert key.key is not None
    with Client(client.url, key.key) as ben:
        assert list(ben.jobs.list()) == []
        with pytest.raises(NotFound):
            ben.jobs.get(running.job.id)
        with pytest.raises(Forbidden):
            ben.tokens.create()
    client.keys.revoke(key.id)
    assert [item.revoked for item in client.keys.list() if item.id == key.id] == [True]
    with Client(client.url, key.key) as ben, pytest.raises(Unauthenticated):
        list(ben.jobs.list())


def test_the_catalogue_and_exact_costs(running: Running) -> None:
    catalogue = running.client.catalogue
    assert "lts-gpt2" in [space.name for space in catalogue.spaces()]
    assert catalogue.space("lts-opt").genes["n_layer"] == {"min": 3, "max": 29, "step": 1, "per_layer": False}
    assert "mislead" in catalogue.space("srupp").caveat
    assert catalogue.space("lts-gpt2").caveat == running.job.proxy_trust.caveat == ""
    assert {"surrogate", "listed", "lts", "random", "nsga2", "par-supernet"} == {
        algorithm.name for algorithm in catalogue.algorithms()
    }
    model = catalogue.model("gpt2-small")
    assert model in catalogue.models()
    architecture = named_models()["gpt2-small"].architecture
    found = running.client.describe(architecture, sequence_length=32, batch=3)
    assert found.model_dump() == costs(architecture, CostOptions(sequence_length=32, batch=3)).to_json()
    options = {"mode": "decode", "memory_length": 640, "logits": "last", "dtype": "float16"}
    for name in ("par-base", "srupp-base-k5", "srupp-iwslt"):
        decoded = catalogue.describe(catalogue.model(name).architecture, **options)
        assert decoded.model_dump() == costs(named_models()[name].architecture, CostOptions(**options)).to_json()
    published = catalogue.published()
    qwen = catalogue.published_model("Qwen/Qwen3-0.6B")
    assert qwen in published.models
    assert qwen.counted_parameters == 596_049_920
    assert {score.table for score in qwen.scores} <= {table.id for table in published.tables}
    with pytest.raises(InvalidInput, match="mode must be forward"):
        catalogue.describe(named_models()["bert-base"].architecture, mode="decode")
    with pytest.raises(ArchitectureError, match=r"blocks\.0\.n_head"):
        catalogue.describe(
            {"d_model": 8, "embedding": {"vocab_size": 9}, "blocks": [{"kind": "attention", "n_head": 3}]}
        )
    assert running.client.health().status == "ok"
