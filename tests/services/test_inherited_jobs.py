"""Jobs whose models are parts of an imported one: what is searched, by which law, and what is answered."""

from __future__ import annotations

import io
import math
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inherited_models import ROTARY, write_parent
from packages import lively
from simulated_agent import CLASS, SimulatedAgent, by_size
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.nn.model import LanguageModel
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.schemas.predictions import PredictionRequest
from edgefront.core.schemas.trainings import TrainingRequest, TrainingView
from edgefront.core.services.jobs.answers import recommendation
from edgefront.core.services.jobs.resolve import resolve
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.prediction.predictions import predict
from edgefront.core.services.quality import laws
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings.imports import begin_import, import_model
from edgefront.core.services.trainings.plan import read_selection
from edgefront.core.store.tables import Candidate, Job, OwnerLaw
from edgefront.core.training.evaluation.given_model import model_files

LAYER = [
    {"kind": "attention", "n_head": 4, "n_kv_head": 2, "d_head": 32, "bias": "none"},
    {"kind": "feed_forward", "d_inner": 512, "gated": True, "bias": False},
]


def model(seed: int = 1) -> LanguageModel:
    return lively({"d_model": 192, **ROTARY, "blocks": LAYER * 4}, seed=seed, spread=0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_parent(tmp_path / "parent", model())
    return tmp_path / "parent"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(artifacts=str(tmp_path / "artifacts"))


def imported(service: Service, settings: Settings, folder: Path) -> TrainingView:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, path in model_files(folder).items():
            tar.add(path, name)
    draft = begin_import(service.database, service.user, settings)
    try:
        draft.write(archive.getvalue())
        return import_model(service.database, service.user, draft, settings)[0]
    finally:
        draft.close()


def asked(parent: str, **changes: Any) -> JobRequest:
    return JobRequest.model_validate(
        {
            "goal": "best_within_limits",
            "space": {"inherit": parent},
            "targets": [{"device_class": CLASS, "limits": {"latency_ms": 1000.0}}],
            "algorithm": {"settings": {"initial": 4, "batch": 2, "population": 60, "steps": 2}},
            "budget": {"candidates": 8, "refinement": 0.0},
        }
        | changes
    )


def test_a_job_searches_the_parts_and_answers_what_the_cut_costs(
    service: Service, settings: Settings, folder: Path
) -> None:
    agent = SimulatedAgent(service.database, by_size())
    parent = imported(service, settings, folder)
    job = service.submit(asked(parent.id))
    assert job.request.space.name == "llama"
    assert job.request.space.model == parent.trained
    assert job.request.proxy == "quality_law"
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "finished", job.targets[0].note
    whole = Architecture.parse(parent.trained or {})
    with service.database.read() as session:
        rows = session.scalars(select(Candidate).order_by(Candidate.number)).all()
        law = laws.law_of(session, session.get_one(Job, job.id), job.request)
        fastest = min(row.latency_ms for row in rows if row.role == "search")
        view = recommendation.read_inputs(
            session,
            service.user,
            job.id,
            limits=job.request.targets[0].limits.model_copy(update={"latency_ms": fastest}),
        ).recommendation()
    assert isinstance(law, PruningPredictor)
    first, *searched = rows
    assert (first.role, first.digest) == ("baseline", whole.digest)
    assert 7 <= len(searched) <= 8
    parts = [Architecture.parse(row.architecture) for row in searched]
    assert law.table.align(Shapes.of(parts)).is_part.all()
    assert all(part.d_model <= 192 and len(part.blocks) <= 8 for part in parts)
    for row, part in zip(searched, parts, strict=True):
        assert row.predicted["perplexity"] == pytest.approx(law.predict(Shapes.of([part])).perplexity[0])
        assert row.predicted["law"] == law.origin.name
    assert view.recommended is not None
    assert "a part of my model is" in view.sentence
    assert "My model itself is beyond the limits." in view.sentence
    assert "× as fast (latency), perplexity" in view.sentence
    assert "before healing" in view.sentence
    assert "random submodels were evaluated" in view.note

    def predicted(**changes: Any) -> float | None:
        model, of = {**whole.canonical, **changes}, {"device_class": CLASS, "law": law.origin.name}
        request = PredictionRequest.model_validate({**of, "architectures": [model]})
        (found,) = predict(service.database, service.user, request, Fits()).predictions
        return found.predicted.perplexity

    assert predicted() == pytest.approx(math.exp(law.parent_log_perplexity))
    for changes in ({"activation": "relu"}, {"output": {"logits_scaling": 8}}, {"norm_eps": "1e-1"}):
        with pytest.raises(InvalidInput, match="no part of its parent"):
            predicted(**changes)


def test_what_cannot_be_inherited_is_refused_by_name(service: Service, settings: Settings, folder: Path) -> None:
    (folder / "cuts.safetensors").rename(folder / "kept")
    without = imported(service, settings, folder)
    (folder / "kept").rename(folder / "cuts.safetensors")
    parent = imported(service, settings, folder)
    assert parent.id != without.id
    wrong: list[tuple[JobRequest, str, str]] = [
        (asked(without.id), "space.inherit", "has no study of its cuts"),
        (asked("trn_none"), "space.inherit", "no training"),
        (
            asked(parent.id, space={"inherit": parent.id, "model": {"d_model": 64}}),
            "space.model",
            "not the architecture",
        ),
        (asked(parent.id, proxy_settings={"law": "own-data-llama"}), "proxy_settings.law", "scaling law of its cuts"),
        (asked(parent.id, train_tokens=10**9), "train_tokens", "one training budget"),
    ]
    for request, field, words in wrong:
        with pytest.raises(InvalidInput, match=words) as refused:
            resolve(service.database, service.user, request).checked()
        assert refused.value.field == field
    unnamed = asked(parent.id, space={"name": "llama"}, proxy="quality_law", proxy_settings={"law": "none"})
    with pytest.raises(InvalidInput, match="own-data-llama") as refused:
        resolve(service.database, service.user, unnamed).checked()
    assert "cuts-" not in str(refused.value)
    for request in (
        asked(parent.id, space={"name": "llama"}, proxy="quality_law", proxy_settings={"law": _law(service)}),
        asked(parent.id, space={"model": parent.trained}, proxy_settings={"law": _law(service)}),
    ):
        with pytest.raises(InvalidInput, match="submodels of one model"):
            resolve(service.database, service.user, request).checked()


def test_a_job_goes_on_without_its_parent_and_a_training_says_that_it_was_deleted(
    service: Service, settings: Settings, folder: Path
) -> None:
    agent = SimulatedAgent(service.database, by_size())
    parent = imported(service, settings, folder)
    job = service.submit(asked(parent.id, budget={"candidates": 2, "refinement": 0.0}))
    with service.database.write() as session:
        trainings.delete_training(session, service.user, parent.id)
    service.run(agent)
    assert service.get(job.id).state == "finished"
    with service.database.read() as session:
        candidate = session.scalars(select(Candidate).where(Candidate.role == "search")).first()
        assert candidate is not None
        assert candidate.predicted["perplexity"] > 0
        request = TrainingRequest(candidate=candidate.id, inherit=True)
        with pytest.raises(InvalidInput, match=f"start is missing: {parent.id} was deleted"):
            read_selection(session, service.user, request)
    again = imported(service, settings, folder)
    with service.database.read() as session:
        start = read_selection(session, service.user, request.model_copy(update={"start": again.id})).start
    assert start is not None
    assert start.id == again.id != parent.id


def test_another_owner_s_model_is_none(service: Service, settings: Settings, folder: Path) -> None:
    SimulatedAgent(service.database, by_size())
    parent = imported(service, settings, folder)
    stranger = replace(service.user, owner="stranger")
    resolution = resolve(service.database, stranger, asked(parent.id))
    with pytest.raises(InvalidInput, match=f"no training '{parent.id}'"):
        resolution.checked()
    assert [getattr(fault, "field", "") for fault in resolution.errors] == ["space.inherit"]


def test_the_same_study_is_one_law_and_a_study_of_other_weights_is_refused(
    service: Service, settings: Settings, folder: Path, tmp_path: Path
) -> None:
    first = imported(service, settings, folder)
    assert imported(service, settings, folder).id == first.id
    with service.database.read() as session:
        assert len(session.scalars(select(OwnerLaw)).all()) == 1
    write_parent(tmp_path / "other", model(seed=2))
    (tmp_path / "other" / "cuts.safetensors").replace(folder / "cuts.safetensors")
    with pytest.raises(InvalidInput, match="about other weights"):
        imported(service, settings, folder)


def _law(service: Service) -> str:
    with service.database.read() as session:
        return session.scalars(select(OwnerLaw.name)).one()
