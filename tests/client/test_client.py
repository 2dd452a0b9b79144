"""The client against the real service."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from running_client import BOARD, SMALL, Running

from edgefront import Client
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.models import named_models
from edgefront.core.common.errors import ArchitectureError, InvalidInput, NotFound, Unauthenticated, Unavailable


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


def test_jobs_are_listed_over_pages_and_states(running: Running) -> None:
    client = running.client
    made = [client.jobs.create({**SMALL, "name": f"page {number}", "seed": number}) for number in range(3)]
    for job in made:
        client.jobs.wait(job.id, timeout_s=60)
    newest = [job.id for job in client.jobs.list(limit=2)]
    assert newest[:3] == [job.id for job in reversed(made)]
    assert running.job.id in newest
    assert list(client.jobs.list(state="failed")) == []


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


def test_the_catalogue_and_exact_costs(running: Running) -> None:
    catalogue = running.client.catalogue
    assert "lts-gpt2" in [space.name for space in catalogue.spaces()]
    assert catalogue.space("lts-opt").genes["n_layer"] == {"min": 3, "max": 29, "step": 1, "per_layer": False}
    assert catalogue.model("gpt2-small") in catalogue.models()
    assert catalogue.published_model("Qwen/Qwen3-0.6B") in catalogue.published().models
    architecture = named_models()["par-base"].architecture
    options = {"mode": "decode", "memory_length": 640, "logits": "last", "dtype": "float16"}
    found = catalogue.describe(architecture, **options)
    assert found.model_dump() == costs(architecture, CostOptions(**options)).model_dump()
    with pytest.raises(ArchitectureError, match=r"blocks\.0\.n_head"):
        catalogue.describe(
            {"d_model": 8, "embedding": {"vocab_size": 9}, "blocks": [{"kind": "attention", "n_head": 3}]}
        )
    assert running.client.health().status == "ok"
