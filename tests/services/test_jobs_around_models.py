"""Jobs that start from a model, jobs for llama.cpp, and agents that do not know today's blocks."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_size
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput, SpaceError
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services.jobs.answers import recommendation
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.jobs.resolve import resolve, with_defaults
from edgefront.core.services.spaces import space_of
from edgefront.core.store.tables import Candidate

SMOL = named_model("smollm2-135m").architecture
_LAYER = [{"kind": "attention", "n_head": 3, "n_kv_head": 1, "bias": "none"}, {**SMOL.canonical["blocks"][1]}]
MINE = Architecture.parse({**SMOL.canonical, "d_model": 192, "embedding": {"vocab_size": 8192}, "blocks": _LAYER * 4})


def asked(**changes: Any) -> JobRequest:
    return JobRequest.model_validate(
        {
            "goal": "best_within_limits",
            "space": {"model": MINE.canonical},
            "targets": [{"device_class": CLASS, "limits": {"latency_ms": 1000.0}}],
            "algorithm": {"settings": {"initial": 4, "batch": 2, "population": 60, "steps": 2}},
            "budget": {"candidates": 8, "refinement": 0.0},
        }
        | changes
    )


def test_a_job_around_a_model_measures_it_first_and_then_its_neighbours(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = service.submit(asked())
    assert (job.request.space.name, job.request.space.model) == ("llama", MINE.canonical)
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "finished", job.targets[0].note
    with service.database.read() as session:
        first, *searched = session.scalars(select(Candidate).order_by(Candidate.number)).all()
        view = recommendation.read_inputs(session, service.user, job.id).recommendation()
        frontier = frontier_view(session, service.user, job.id)
    assert frontier.own_model
    assert "my model" in frontier.summary
    assert job.targets[0].summary == frontier.summary
    assert (first.role, first.digest) == ("baseline", MINE.digest)
    assert {row.role for row in searched} == {"search"}
    around = space_of(job.request.space)
    for row in searched:
        architecture = Architecture.parse(row.architecture)
        assert around.contains(architecture)
        assert architecture.embedding == MINE.embedding
        assert row.predicted["extrapolated"]
    assert view.own_model
    assert view.baseline is not None
    assert view.baseline.digest == MINE.digest
    assert "my model" in view.sentence
    assert "the baseline" not in view.sentence
    assert "No training data of the scaling law own-data-llama vary" in view.note


def test_a_model_that_no_space_has_is_refused_with_its_fields(service: Service) -> None:
    model = named_model("srupp-base").architecture.canonical
    with pytest.raises(SpaceError) as refused:
        resolve(service.database, service.user, asked(space={"model": model})).checked()
    assert refused.value.field == "space.model"
    assert refused.value.extra["errors"][0]["field"] == "model.blocks.0.kind"
    with pytest.raises(InvalidInput, match=r"space\.model\.d_model"):
        resolve(service.database, service.user, asked(space={"model": {**MINE.canonical, "d_model": 0}})).checked()
    with pytest.raises(InvalidInput, match=r"baseline_layers must be omitted with space\.model"):
        resolve(service.database, service.user, asked(baseline_layers=[2])).checked()


def llama_cpp(name: str, narrow: dict[str, Any] | None = None) -> JobRequest:
    targets = [{"device_class": CLASS, "limits": {"latency_ms": 1000.0}, "protocol": {"runtime": "llamacpp"}}]
    return asked(space={"name": name, "narrow": narrow or {}}, targets=targets, baseline_layers=[2])


def test_a_job_for_llama_cpp_is_narrowed_to_what_it_runs() -> None:
    assert with_defaults(llama_cpp("llama", {"n_layer": [2]})).space.narrow == {"n_layer": [2]}
    settled = with_defaults(llama_cpp("lfm")).space
    assert (settled.narrow["layers"], settled.narrow["window"]) == (["alike"], [0])
    with pytest.raises(SpaceError, match=r"space\.narrow\.window: llama\.cpp loads 0 only"):
        with_defaults(llama_cpp("lfm", {"window": [128]}))


@pytest.mark.parametrize("name", ["lts-gpt2", "bert", "hybrid"])
def test_a_space_that_llama_cpp_cannot_run_is_refused_with_those_that_it_can(service: Service, name: str) -> None:
    with pytest.raises(InvalidInput, match="GGUF cannot express") as refused:
        resolve(service.database, service.user, llama_cpp(name)).checked()
    assert refused.value.field == "targets.0.protocol.runtime"
    assert "the spaces llama, lfm" in str(refused.value.allowed)
