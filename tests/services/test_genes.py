"""Genes and objectives of a target's candidates as columns."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_agent import CLASS, SimulatedAgent, principal
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.errors import NotFound
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import genes
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.trainings.queries import trainings
from edgefront.core.store.tables import Candidate
from edgefront.core.wire.genes import GenesView
from edgefront.core.wire.jobs import JobRequest, JobView

NARROW = {"n_layer": [2, 3, 4], "d_model": {"min": 64, "max": 256, "step": 64}, "d_inner": {"min": 256, "max": 1024}}


def searched(service: Service, **changes: Any) -> JobView:
    request = {
        "space": {"name": "lts-gpt2", "narrow": NARROW},
        "targets": [{"device_class": CLASS}],
        "algorithm": {"name": "random"},
        "budget": {"candidates": 40, "refinement": 0.0},
        "seed": 3,
    }
    agent = SimulatedAgent(service.database)
    job = service.submit(JobRequest.model_validate(request | changes))
    service.run(agent)
    return service.get(job.id)


def genes_of(service: Service, job: JobView, by: Principal | None = None) -> GenesView:
    with service.database.read() as session:
        known = genes.read(session, by or service.user, job.id)
    return known.genes()


def test_columns_are_those_of_the_measured_candidates_and_importance_follows(sqlite_service: Service) -> None:
    job = searched(sqlite_service)
    view = genes_of(sqlite_service, job)
    with sqlite_service.database.read() as session:
        stored = session.scalars(select(Candidate).where(Candidate.role == "search").order_by(Candidate.number)).all()
    assert view.ids == tuple(candidate.id for candidate in stored)
    assert view.numbers == tuple(candidate.number for candidate in stored)
    assert view.measured == len(stored) == 40
    assert view.on_frontier == tuple(candidate.on_frontier for candidate in stored)
    columns = {objective.name: objective.values for objective in view.objectives}
    assert columns["latency"] == tuple(candidate.latency_ms for candidate in stored)
    assert columns["memory"] == tuple(candidate.memory_bytes / 1e6 for candidate in stored)
    assert set(columns) == {"perplexity", "latency", "memory"}
    by_name = {gene.name: gene for gene in view.genes}
    assert by_name["d_model"].values == tuple(float(candidate.genome["d_model"]) for candidate in stored)
    assert by_name["n_layer"].values == tuple(len(candidate.architecture["blocks"]) / 2 for candidate in stored)
    # On this board the memory is that of the weights, most of them in the embedding: d_model decides.
    shares = {gene.name: {each.objective: each for each in gene.importance} for gene in view.genes}
    assert max(shares, key=lambda name: shares[name]["memory"].share) == "d_model"
    assert shares["d_model"]["memory"].correlation > 0.5
    for objective in ("perplexity", "latency", "memory"):
        assert sum(share[objective].share for share in shares.values()) == pytest.approx(1.0)
    assert all(objective.explained is not None for objective in view.objectives)
    assert "Breiman 2001" in view.note


def test_times_of_a_generation_are_objectives_but_once(sqlite_service: Service) -> None:
    protocol = {"mode": "generate", "sequence_length": 32, "new_tokens": 8, "latency": "token"}
    targets = [{"device_class": CLASS, "protocol": protocol}]
    job = searched(sqlite_service, targets=targets, budget={"candidates": 6, "refinement": 0.0})
    view = genes_of(sqlite_service, job)
    assert [objective.name for objective in view.objectives] == ["perplexity", "latency", "memory", "first_token"]
    assert all(not gene.importance for gene in view.genes)
    assert "from 24 measured candidates on" in view.note


def test_of_many_an_even_spread_and_the_whole_frontier(sqlite_service: Service) -> None:
    job = searched(sqlite_service)
    with sqlite_service.database.read() as session:
        measured, found = rows.measured_genomes(session, job.targets[0].id, 10)
        frontier = {candidate.id for candidate in trainings.frontier(session, job.targets[0].id)}
    assert measured == 40
    assert frontier <= {candidate.id for candidate in found}
    spread = [candidate.number for candidate in found if candidate.id not in frontier]
    assert spread
    assert all(number % 4 == 0 for number in spread)


def test_before_anything_is_measured_it_is_empty_and_a_stranger_sees_nothing(sqlite_service: Service) -> None:
    agent = SimulatedAgent(sqlite_service.database)
    job = sqlite_service.submit(JobRequest.model_validate({"targets": [{"device": agent.name}]}))
    view = genes_of(sqlite_service, job)
    assert (view.ids, view.genes, view.objectives) == ((), (), ())
    with pytest.raises(NotFound):
        genes_of(sqlite_service, job, by=principal(sqlite_service.database, owner="eve"))
