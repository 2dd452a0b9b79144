"""Recommendations of real jobs on a simulated device: from rows to the answer, for any limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from databases import ON_BOTH
from job_rows import evaluation
from simulated_agent import CLASS, SimulatedAgent, done, facts, principal
from simulated_service import SMALL, Service
from sqlalchemy import select, update

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.units import MB
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import RuntimeFacts
from edgefront.core.schemas.jobs import JobRequest, Limits
from edgefront.core.services.jobs.answers import recommendation
from edgefront.core.services.quality.expected import law_note
from edgefront.core.services.quality.laws import scaling_law_of_request
from edgefront.core.store.tables import Candidate

pytestmark = pytest.mark.slow

NARROW = {**SMALL, "div": [1, 2, 4], "d_embed": ["d_model", 128]}


def by_work(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
    """A device whose latency and memory follow what a pass does; launches differ by 2 %."""
    found = protocol_costs(architecture, protocol)
    latency = 0.5 + found.flops / 1e9 + 0.05 * len(architecture.blocks)
    return done(latency * (1 + 0.02 * (before % 2)), int(found.weight_bytes * 1.1) + 5 * MB)


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, measure=by_work)


def asked(latency_ms: float = 1.34, memory_mb: float = 36.0, **changes: Any) -> JobRequest:
    return JobRequest.model_validate(
        {
            "goal": "best_within_limits",
            "space": {"name": "lts-gpt2", "narrow": NARROW},
            "targets": [{"device_class": CLASS, "limits": {"latency_ms": latency_ms, "memory_mb": memory_mb}}],
            "algorithm": {"settings": {"initial": 6, "batch": 3, "population": 100, "steps": 3}},
            "budget": {"candidates": 15, "refinement": 0.5},
            "seed": 7,
        }
        | changes
    )


def test_the_best_measured_model_within_the_limits(service: Service, agent: SimulatedAgent) -> None:
    job = service.finish(agent, asked(budget={"candidates": 15, "refinement": 0.0}))
    view = service.recommended(job)
    with service.database.read() as session:
        rows = session.scalars(select(Candidate).where(Candidate.latency_ms.is_not(None))).all()
        within = [row for row in rows if row.latency_ms <= 1.34 and row.memory_bytes <= 36 * MB]  # type: ignore[operator]
        best = max((one for one in within if one.on_frontier), key=lambda one: one.proxy)
        stock = [candidate for candidate in within if candidate.role == "baseline"]
        largest = max((candidate.decoder_parameters for candidate in stock), default=None)
    assert view.recommended is not None
    assert view.recommended.id == best.id
    assert (view.by, view.proxy) == ("predicted", "quality_law")
    assert view.recommended.launches == 1
    assert view.baseline is not None
    assert view.baseline.decoder_parameters == largest
    assert view.baseline.architecture["embedding"].get("div") == 4  # the stock model keeps its own embedding
    assert view.recommended.predicted is not None
    assert view.recommended.predicted.perplexity == pytest.approx(math.exp(-view.recommended.proxy))
    assert view.perplexity_of.startswith("perplexity by that of gpt2-small, your own data")
    assert view.sentence.startswith("Within 1.34 ms and 36 MB, measured with 1 thread in one launch: ")
    assert view.standings[view.recommended.id]["memory_mb"] in ("within", "probably within", "at the limit")
    assert "predicted perplexity" in view.sentence, "against the stock model"
    assert len(view.runners_up) == 3
    shown = [runner_up.candidate for runner_up in view.runners_up]
    assert {candidate.id for candidate in shown}.isdisjoint({best.id})
    for candidate in shown:
        assert candidate.latency_ms is not None
        assert candidate.memory_bytes is not None
        assert candidate.latency_ms <= 1.34
        assert candidate.memory_bytes <= 36 * MB
        assert candidate.proxy <= view.recommended.proxy + 0.01  # as good, within the frontier's ε
    assert all("predicted perplexity" in runner_up.trade for runner_up in view.runners_up)


def test_other_limits_are_answered_from_what_is_known(service: Service, agent: SimulatedAgent) -> None:
    job = service.finish(agent, asked())
    launches = agent.launches.total()
    tight = service.recommended(job, max_latency_ms=1.0)
    assert tight.limits.latency_ms == 1.0
    assert tight.limits.memory_mb == 36.0  # the target's own
    assert "The search looked within 1.34 ms and 36 MB" in tight.note
    shown = tight.recommended or tight.nearest
    assert shown is not None
    wide = service.recommended(job, max_latency_ms=1e6, max_memory_mb=1e6)
    assert wide.recommended is not None
    assert wide.recommended.latency_ms > 1.34 or wide.recommended.memory_bytes > 36 * MB  # type: ignore[operator]
    assert agent.launches.total() == launches
    with service.database.write() as session:
        session.execute(update(Candidate).values(latency_half_width_ms=2.0))
    assert "difference in latency not known: 0." in service.recommended(job).sentence, "its intervals enter the claims"

    best = service.recommended(job).recommended
    assert best is not None

    def trained(digest: str) -> None:
        with service.database.write() as session:
            session.add(evaluation(digest, 3.0, best.created_at))

    trained(best.digest)
    alone = service.recommended(job)
    assert alone.by == "predicted", "one training has nothing to be compared with"
    assert [score.candidate_id for score in alone.trained] == [best.id]
    trained(alone.runners_up[0].candidate.digest)
    assert service.recommended(job).by == "trained"


def test_a_law_of_other_data_says_so(service: Service, agent: SimulatedAgent) -> None:
    law = {"law": "lts-gpt2-wikitext103"}
    job = service.finish(agent, asked(proxy="quality_law", proxy_settings=law))
    best = service.recommended(job).recommended
    assert best is not None
    with service.database.write() as session:
        session.add(evaluation(best.digest, 3.0, service.database.now(session), dataset="letters"))
    said = "models trained on WikiText-103 (scaling law lts-gpt2-wikitext103), not on letters"
    assert said in service.recommended(job).note

    def note(request: JobRequest, datasets: Sequence[str] = ()) -> str:
        with service.database.read() as session:
            return law_note(request, scaling_law_of_request(session, "ann", request), datasets)

    for agrees in ((), ("wikitext-103", "WikiText103_bpe")):
        assert note(asked(proxy="quality_law", proxy_settings=law), agrees) == ""
    ask_words = note(asked(proxy="quality_law", proxy_settings=law), ["words", "letters", "wikitext-103"])
    assert "not on letters, words:" in ask_words
    assert note(asked(), ["words"]) == "", "the default law is about any data"
    other = note(asked(proxy="quality_law", proxy_settings={"law": "lts-transformer-xl-wikitext103"}))
    assert "fitted to models of the family transformer-xl" in other
    assert note(asked(space={"name": "bert"}), ["letters"]) == "", "no law is about encoders"


@ON_BOTH
def test_while_a_job_runs_and_before_anything_is_measured(service: Service, agent: SimulatedAgent) -> None:
    job = service.submit(asked())
    view = service.recommended(job)
    assert view.sentence == "Nothing has been measured yet."
    assert "not finished" in view.note
    agent.step(3)
    assert service.recommended(job).sentence != view.sentence
    with service.database.read() as session:
        with pytest.raises(NotFound):
            recommendation.read_inputs(session, principal(service.database, owner="eve"), job.id)
        with pytest.raises(NotFound):
            recommendation.read_inputs(session, service.user, job.id, "elsewhere")
        with pytest.raises(InvalidInput, match="measures no generations") as refused:
            recommendation.read_inputs(session, service.user, job.id, limits=Limits(token_ms=50.0))
    assert refused.value.field == "max_token_ms"


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ({}, "--format onnx"),
        ({"weights": "int8"}, "--format onnx"),
        ({"runtime": "llamacpp"}, "--format gguf"),
        ({"runtime": "llamacpp", "weights": "q8_0"}, "--format gguf"),
    ],
)
def test_the_file_to_download_is_the_one_that_is_measured(
    service: Service, protocol: dict[str, Any], options: str
) -> None:
    numbers = {"cpu": ("float32", "int8", "q8_0")}
    runtimes = [
        RuntimeFacts(
            runtime=name,
            version="1",
            providers=("cpu",),
            memory_methods=("anonymous",),
            numbers=numbers,
            kv_caches=("f16",) if name == "llamacpp" else (),
        )
        for name in ("onnxruntime", "llamacpp")
    ]
    SimulatedAgent(service.database, device_facts=facts().model_copy(update={"runtimes": tuple(runtimes)}))
    target = {"device_class": CLASS, "limits": {"latency_ms": 1000.0}, "protocol": protocol}
    space = {"name": "llama", "narrow": {"n_layer": [2]}}
    job = service.submit(asked(space=space, targets=[target], baseline_layers=[2]))
    assert service.recommended(job).download == options
