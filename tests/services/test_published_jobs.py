"""Jobs among published models: a target for each runtime and format, and one answer over all of them."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent, by_generation, facts
from simulated_service import Service
from sqlalchemy import select

from edgefront.client.requests import parse_target
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.published import (
    PERMISSIVE_LICENCES,
    is_permitted,
    published_models,
    stated_licence,
)
from edgefront.core.architectures.published_space import Filter, PublishedSpace, published_space
from edgefront.core.common.errors import InvalidInput, SpaceError
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.jobs import JobRequest, JobView, Limits
from edgefront.core.schemas.published import PublishedRequest, Variants
from edgefront.core.schemas.recommendations import ChoiceView
from edgefront.core.search.pareto.options import Estimate
from edgefront.core.services.jobs.answers.candidates import get_candidate
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.jobs.resolve import resolve
from edgefront.core.services.prediction import comparing
from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.spaces import space_of
from edgefront.core.store.tables import Candidate

SCORE = "obsscaling_base:HellaSwag"
GENERATION = {"mode": "generate", "sequence_length": 64, "new_tokens": 8}


def asked(limits: dict[str, float], published: dict[str, Any] | None = None, **changes: Any) -> JobRequest:
    place = {
        "device_class": CLASS,
        "protocol": GENERATION,
        "limits": limits,
        "variants": {"runtimes": ["onnxruntime"], "formats": ["int8", "f32"]},
    }
    value: dict[str, Any] = {
        "goal": "best_within_limits" if limits else "frontier",
        "space": {"published": {"score": SCORE, **(published or {})}},
        "targets": [place],
        "budget": {"refinement": 0.0},
    }
    return JobRequest.model_validate(value | changes)


@pytest.fixture
def board(service: Service) -> SimulatedAgent:
    own = facts(memory_bytes=64 << 30, numbers=("float32", "int8"))
    return SimulatedAgent(service.database, measure=by_generation, device_facts=own)


def better_on(job: JobView, best: ChoiceView, token_ms: float, memory_mb: float, slower: float = 1.0) -> list[str]:
    """What this device would run within the limits, `slower` times as slowly, and has a higher score."""
    space = space_of(job.request.space)
    assert isinstance(space, PublishedSpace)
    better = []
    for genome in space.enumerate():
        architecture = space.architecture(genome)
        if space.scores[architecture.digest] > best.score:
            for target in job.targets:
                result = by_generation(architecture, target.protocol, 0, slower)
                assert result.generation is not None
                assert result.memory is not None
                if result.generation.token_ms[0] <= token_ms and result.memory.peak_bytes <= memory_mb * 10**6:
                    better.append(f"{genome} {target.name}")
    return better


def named(choice: ChoiceView) -> str:
    return f"{choice.model} in {choice.weights} with {choice.runtime}"


def test_the_highest_score_within_limits_over_all_formats(service: Service, board: SimulatedAgent) -> None:
    job = service.finish(board, asked({"token_ms": 40.0, "memory_mb": 1500.0}))
    assert [target.name for target in job.targets] == [f"{CLASS} onnxruntime int8", f"{CLASS} onnxruntime f32"]
    assert {target.protocol.weights for target in job.targets} == {"int8", "full"}
    assert job.request.proxy == "published_score"
    view = service.chosen(job)
    best = view.recommended
    assert best is not None
    assert best.candidate.token_ms is not None
    assert best.candidate.token_ms <= 40
    assert (best.candidate.memory_bytes or 0) <= 1500 * 10**6
    (score,) = [each for each in published_models()[best.model].scores if each.table == "obsscaling_base"]
    assert best.score == score.values["HellaSwag"] == best.candidate.proxy
    assert better_on(job, best, 40.0, 1500.0) == []
    assert best.model in view.sentence
    assert "HellaSwag" in view.sentence
    assert "measured with 1 thread in one launch, " in view.sentence
    counted = re.search(r"of (\d+) models that fit the question (\d+) have this score, (\d+) could not", view.sentence)
    assert counted is not None
    fit, scored, unscored = map(int, counted.groups())
    assert (fit, unscored) == (scored + unscored, len(view.unscored))
    assert (view.surest, "urely within" in view.sentence) == (best, False)
    answers = {target.id: target.answer for target in job.targets if target.answer}
    time = f"{Estimate.plus_minus(best.candidate.token_ms, best.candidate.token_half_width_ms)} ms a token"
    assert answers.pop(best.target_id) == f"{best.model} {best.weights}, {time}, HellaSwag {best.score:g}"
    assert len(answers) == len(job.targets) - 1
    limits = "1500 MB and 40 ms a further token"
    assert all(
        re.match(f"(within {limits}, but not better|not within {limits}): \\d+ models?$|nothing was measured: no", why)
        for why in answers.values()
    )
    (command,) = view.commands
    assert command.startswith(f"edgefront model get {best.model} ")
    assert f"--weights {'full' if best.weights == 'f32' else best.weights}" in command
    assert sum(board.launches.values()) <= 25
    named = [view.recommended, *(each.choice for each in view.runners_up), *view.frontier, *view.others]
    with service.database.read() as session:
        measured = set(session.scalars(select(Candidate.id).where(Candidate.latency_ms.is_not(None))))
    assert {each.candidate.id for each in named if each} == measured
    scores = [each.score for each in view.others]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("given", "kind", "table"),
    [
        ({}, "base", "mobilellm_r1_base"),
        ({"kind": "instruct"}, "instruct", "open_llm_leaderboard_v2"),
        ({"score": SCORE}, "any", "obsscaling_base"),
    ],
)
def test_a_kind_has_a_score_and_a_score_any_kind(given: dict[str, str], kind: str, table: str) -> None:
    request = PublishedRequest.model_validate(given)
    assert (request.kind, request.score.partition(":")[0]) == (kind, table)
    models = published_space(request.score, Filter(kind=request.kind)).ids
    assert len(models) >= 8
    assert kind == "any" or {published_models()[id_].kind for id_ in models} == {kind}


def test_an_unknown_licence_is_that_of_the_base_model_in_words_and_no_licence_to_a_filter() -> None:
    tuned = published_models()["HuggingFaceTB/SmolLM2-135M-Instruct"]
    assert stated_licence(tuned) == "of the base model: apache-2.0"
    assert not is_permitted(tuned, "permissive")
    assert stated_licence(published_models()["openai-community/gpt2"]) == "mit"
    assert stated_licence(published_models()["allenai/OLMo-2-0425-1B-Instruct"]) is None


FOUR = {"runtimes": ["onnxruntime", "pytorch"], "formats": ["int8", "f32"]}


def four(limits: dict[str, float]) -> JobRequest:
    place = {"device_class": CLASS, "protocol": GENERATION, "limits": limits, "variants": FOUR}
    return asked(limits, targets=[place], budget={})


@ON_BOTH
@pytest.mark.parametrize("limits", [(40.0, 1500.0), (10.0, 600.0), (100.0, 1e5)])
def test_targets_have_one_answer_together_and_so_need_few_launches(
    service: Service, board: SimulatedAgent, limits: tuple[float, float]
) -> None:
    token_ms, memory_mb = limits
    job = service.finish(board, four({"token_ms": token_ms, "memory_mb": memory_mb}))
    best = service.chosen(job).recommended
    assert best is not None
    assert better_on(job, best, token_ms, memory_mb) == []
    assert sum(board.launches.values()) <= 25
    assert best.candidate.launches >= 2
    # The same model in as many bits was measured in the other runtime, too: it may be faster there.
    with service.database.read() as session:
        where = session.scalars(select(Candidate.target_id).where(Candidate.digest == best.candidate.digest))
        by_id = {target.id: target.protocol for target in job.targets}
        tried = {by_id[id_].runtime for id_ in where if by_id[id_].weights == by_id[best.target_id].weights}
    assert tried == {"onnxruntime", "pytorch"}


@ON_BOTH
def test_a_target_goes_on_where_the_better_model_of_another_proves_to_be_beyond_the_limits(service: Service) -> None:
    slower = 1.12

    def lucky_at_first(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        return by_generation(architecture, protocol, before, slower if before else 1.0)

    own = facts(memory_bytes=64 << 30, numbers=("float32", "int8"))
    board = SimulatedAgent(service.database, measure=lucky_at_first, device_facts=own)

    def of(formats: list[str], token_ms: float, **budget: float) -> JobRequest:
        limits = {"token_ms": token_ms}
        targets = [
            {
                "device_class": CLASS,
                "protocol": GENERATION,
                "limits": limits,
                "variants": {"runtimes": ["onnxruntime"], "formats": [name]},
            }
            for name in formats
        ]
        return asked(limits, targets=targets, budget=budget)

    # One launch says that the best model is fast enough in f32; of int8 light models alone are known ...
    first = service.chosen(service.finish(board, of(["f32"], 1e3, refinement=0.0))).recommended
    assert first is not None
    assert first.candidate.token_ms is not None
    service.finish(board, of(["int8"], 1e3, refinement=0.0, candidates=3))
    # ... so the search in int8 looks for nothing, until the second launch says that it is not.
    limit = 1.03 * first.candidate.token_ms
    job = service.submit(of(["f32", "int8"], limit))
    assert "can be better here" in service.get(job.id).targets[1].note
    service.run(board)
    assert service.get(job.id).state == "finished"
    best = service.chosen(job).recommended
    assert best is not None
    assert best.model != first.model
    assert better_on(job, best, limit, 1e6, slower=slower) == []
    assert "the search went on" in service.get(job.id).targets[1].note


def test_a_comparison_has_names_scores_and_the_limited_time(service: Service, board: SimulatedAgent) -> None:
    job = service.finish(board, asked({"token_ms": 60.0}))
    view = comparing.compare(service.database, service.user, [], [job.id], Fits())
    assert view.score == SCORE
    assert {target.time for target in view.targets} == {"token_ms"}
    measured = 0
    for model in view.architectures:
        assert published_models()[model.model].scores
        assert model.score is not None
        for entry in model.entries:
            if entry is None or entry.candidate_id is None:
                # A latency of which nothing is known is not told, nor a time that is not predicted.
                assert entry is None or entry.time_ms is None
                continue
            with service.database.read() as session:
                candidate = get_candidate(session, service.user, entry.candidate_id)
            assert (entry.time_ms, model.model) == (candidate.token_ms, candidate.model)
            assert entry.time_half_width_ms == pytest.approx(candidate.token_half_width_ms)
            assert entry.standings.keys() == {"token_ms"}
            measured += 1
    assert measured > 2
    with service.database.read() as session:
        shown = frontier_view(session, service.user, job.id, limits=Limits(token_ms=1e-3 + 1e3))
    assert shown.score == SCORE
    assert {stand for each in shown.standings.values() for stand in each.values()} == {"within"}
    assert {point.id: point.model for point in shown.points}.keys() == shown.standings.keys()


def test_bits_and_models_are_never_compared_as_if_formats_cost_nothing(service: Service, board: SimulatedAgent) -> None:
    job = service.finish(board, asked({"token_ms": 60.0}))
    view = service.chosen(job)
    assert view.recommended is not None
    assert len({choice.bits for choice in view.frontier}) == 2
    order = [(choice.score, choice.bits) for choice in view.frontier]
    assert order == sorted(order, reverse=True)
    eight = next(choice for choice in view.frontier if choice.bits == 8)
    assert eight.format_loss == "unknown"
    for other in view.runners_up:
        if other.choice.model == view.recommended.model:
            assert "whose loss of quality is not known" in other.trade
    # Other limits are answered from what is known.
    view = service.chosen(job, Limits(token_ms=1e-6))
    assert view.recommended is None
    assert view.nearest is not None
    assert [move.limit for move in view.moves] == ["token_ms"]
    assert "Nothing that was measured is within" in view.sentence
    assert f"The nearest, {named(view.nearest)}, takes" in view.sentence
    assert f"raise the further-token limit to {view.moves[0].to:g} ms." in view.sentence
    assert "What else may fit: more threads (--threads 4), a part of a pretrained model" in view.sentence
    assert view.sentence.endswith("could not be compared.")
    assert view.commands == ()


def test_the_surest_stands_beside_the_best_that_one_launch_put_at_the_limit(
    service: Service, board: SimulatedAgent
) -> None:
    job = service.finish(board, asked({"token_ms": 60.0}))
    best = service.chosen(job).recommended
    assert best is not None
    assert best.candidate.token_ms is not None
    view = service.chosen(job, Limits(token_ms=1.001 * best.candidate.token_ms))
    assert view.recommended == best
    assert view.standings[best.candidate.id]["token_ms"] == "at the limit"
    surest = view.surest
    assert surest is not None
    sure = [
        choice
        for choice in (*view.frontier, *view.others, *(other.choice for other in view.runners_up))
        if view.standings[choice.candidate.id]["token_ms"] == "within"
    ]
    assert (surest.score, surest.bits) == max((choice.score, choice.bits) for choice in sure)
    time = Estimate.plus_minus(surest.candidate.token_ms or 0, surest.candidate.token_half_width_ms)
    assert f"Surely within: {named(surest)}, {surest.score:g}, {time} ms a further token." in view.sentence
    none = service.chosen(job, Limits(token_ms=1.001 * min(choice.candidate.token_ms or 0 for choice in sure)))
    assert none.surest is None
    assert "No measured model is surely within." in none.sentence


def test_a_time_that_a_target_does_not_measure_cannot_be_limited(service: Service) -> None:
    agent = SimulatedAgent(service.database, device_facts=facts(memory_bytes=64 << 30))
    place = {"device_class": CLASS, "variants": {"runtimes": ["onnxruntime"], "formats": ["f32"]}}
    job = service.finish(agent, asked({}, targets=[place]))
    with pytest.raises(InvalidInput, match="measures no generations") as refused:
        service.chosen(job, Limits(token_ms=50.0))
    assert refused.value.field == "max_token_ms"


def test_what_has_no_score_is_shown_apart(service: Service, board: SimulatedAgent) -> None:
    chosen = {"kind": "base", "licence": "permissive"}
    view = service.chosen(service.finish(board, asked({"token_ms": 60.0}, chosen)))
    measured = {choice.model for choice in view.frontier}
    unscored = {model.model: model for model in view.unscored}
    assert not measured & unscored.keys()
    assert all(published_models()[id_].kind == "base" for id_ in measured | unscored.keys())
    assert all(published_models()[id_].licence in PERMISSIVE_LICENCES for id_ in measured | unscored.keys())
    predicted = [model for model in view.unscored if model.perplexity is not None]
    assert predicted
    assert all(model.perplexity_of for model in predicted)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"space": {"published": {"score": "obs:x"}}}, "space.published.score", "no table of scores 'obs'"),
        ({"space": {"published": {"score": "obsscaling_base:H"}}}, "space.published.score", "HellaSwag, HumanEval"),
        (
            {"space": {"published": {"score": "pythia_repo_zero_shot:lambada_openai:ppl"}}},
            "space.published.score",
            "lower is better",
        ),
        (
            {"space": {"published": {"score": SCORE, "licence": "gpl-3.0"}}},
            "space.published.licence",
            "none of the",
        ),
        (
            {"space": {"published": {"score": SCORE, "min_context": 10**9}}},
            "space.published.min_context",
            "has min context 1000000000",
        ),
        ({"algorithm": {"name": "lts"}}, "algorithm.name", "published models need listed"),
        ({"baseline_layers": [2]}, "baseline_layers", "published models need no value"),
        ({"proxy": "decoder_parameters"}, "proxy", "published models need published_score"),
        ({"train_tokens": 10**9}, "train_tokens", "no scaling law"),
        (
            {"space": {"name": "llama"}, "proxy": "published_score"},
            "proxy",
            "the models of llama have no published scores",
        ),
        ({"space": {"name": "llama"}, "algorithm": {"name": "listed"}}, "algorithm.name", "lists of published models"),
    ],
)
def test_what_makes_no_sense_is_refused(service: Service, changes: dict[str, Any], field: str, words: str) -> None:
    SimulatedAgent(service.database)
    with pytest.raises(InvalidInput, match=words) as caught:
        resolve(service.database, service.user, asked({"token_ms": 40.0}, **changes)).checked()
    assert ".".join(caught.value.path) == field


def test_a_format_that_no_runtime_has_and_a_job_among_architectures(service: Service, board: SimulatedAgent) -> None:
    with pytest.raises(InvalidInput, match="searches the space lts-gpt2, not published models"):
        service.chosen(service.submit())
    request = asked({"token_ms": 40.0})
    variants = Variants(runtimes=("onnxruntime",), formats=("q8_0",))
    wrong = request.model_copy(update={"targets": (request.targets[0].model_copy(update={"variants": variants}),)})
    with pytest.raises(InvalidInput, match="onnxruntime cannot use weights in q8_0") as caught:
        service.submit(wrong)
    assert ".".join(caught.value.path) == "targets.0.variants.formats"
    assert "onnxruntime: f32, f16, bf16, int8, int4" in caught.value.allowed
    many = request.model_copy(update={"targets": request.targets * 9})
    with pytest.raises(InvalidInput, match="the variants make 18 targets"):
        service.submit(many)


def test_an_estimate_counts_launches_of_all_targets(service: Service, board: SimulatedAgent) -> None:
    view = estimate(service.database, service.user, asked({"token_ms": 40.0}), Fits())
    assert view.refusals == ()
    assert len(view.targets) == 2
    assert view.launches.expected <= 25
    assert all(target.baseline_launches == 0 for target in view.targets)


@pytest.mark.parametrize("limits", [{"token_ms": 40.0, "memory_mb": 1500.0}, {}])
def test_what_training_ones_own_would_be_is_another_search_around_the_answer(
    service: Service, board: SimulatedAgent, limits: dict[str, float]
) -> None:
    job = service.finish(board, asked(limits, {"score": "mobilellm_r1_base:CommonSense Avg", "licence": "apache-2.0"}))
    view = service.chosen(job)
    assert view.recommended is not None
    assert view.own is not None
    assert view.own.low < view.own.perplexity < view.own.high
    assert view.own.perplexity_of in view.own.sentence
    words = shlex.split(view.own.command)
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options.pop("--model") == view.recommended.model
    place = parse_target(options.pop("--device"))
    protocol = MeasurementProtocol.model_validate(place["protocol"])
    of_answer = next(each for each in job.targets if each.id == view.recommended.target_id)
    assert place["device_class"] == CLASS
    assert protocol.digest == of_answer.protocol.digest
    if limits:
        assert options == {"--max-token-ms": "40", "--max-memory-mb": "1500"}
    else:
        assert len(view.frontier) > 1
    assert all(published_models()[choice.model].licence == "apache-2.0" for choice in view.frontier)
    assert options.keys() <= {"--max-token-ms", "--max-latency-ms", "--max-memory-mb"}


@ON_BOTH
def test_a_law_that_does_not_cover_the_answer_says_nothing_of_training(service: Service, board: SimulatedAgent) -> None:
    view = service.chosen(service.finish(board, asked({"token_ms": 1e4}, {"licence": "mit"})))
    assert view.recommended is not None
    assert view.recommended.model == "microsoft/phi-1_5"  # of gpt2's family
    assert view.own is None


def test_a_kind_that_a_score_lacks_names_the_scores_that_have_it() -> None:
    with pytest.raises(SpaceError, match="has kind instruct") as caught:
        published_space("mobilellm_r1_base:CommonSense Avg", Filter(kind="instruct"))
    tables = caught.value.allowed.removeprefix("any, or a score of ").split(", ")
    assert "lfm2_card" in tables
    assert "llama32_card_quantized" not in tables  # its scores are of quantised weights alone
