"""Answer of a job that searches published models: the best model over all targets of a device, as measured so far."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.orm import Session

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models.published import described_models
from edgefront.core.architectures.published import (
    PublishedModel,
    format_loss,
    published_models,
    score_tables,
    stated_licence,
)
from edgefront.core.architectures.published_space import MODEL, PublishedSpace, same_architecture, unscored
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import ACTIVE_TARGETS, TargetState
from edgefront.core.common.units import MB, plain, rounded, rounded_up
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.variants import format_of, get_options, place_words
from edgefront.core.quality.shipped import family, law_named
from edgefront.core.schemas.jobs import NO_LIMITS, JobRequest, Limits
from edgefront.core.schemas.recommendations import (
    ChoicesView,
    ChoiceView,
    LimitMove,
    OtherChoiceView,
    OtherModelView,
    OwnTrainingView,
)
from edgefront.core.search.pareto import recommendation, sentences
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.search.pareto.options import Estimate, Option, OptionLimits
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.jobs.answers.candidates import candidate_view
from edgefront.core.services.jobs.answers.measured_models import (
    MAX_NEAR,
    check_times_measured,
    near_in_words,
    option_of,
    other_ways,
    time_of,
)
from edgefront.core.services.jobs.incumbents import grouped_by_answer
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.spaces import filter_of, space_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate, Job, Target

MEASURED = (
    "Times and memory were measured on the device with random weights in the model's shapes and in this format, so "
    "nothing was downloaded. `edgefront model get` downloads the published file and checks it."
)
UNKNOWN = "unknown"
LAW = "llama-dolma-cooled"
"""Name of the scaling law for models without a score, and for the user's own training. This scaling law was fitted to
finished trainings on text like the training data of published models.
"""


Unfinished = Literal["", "not finished", "cancelled"]


@dataclass(frozen=True)
class AnswerInputs:
    """Inputs of one answer: the measured models of all targets that have the same device and the same limits."""

    job_id: str
    device: str
    """Name of the device, with the target's name if the device has several answers; empty for a job with one answer."""
    request: JobRequest
    space: PublishedSpace
    unfinished: Unfinished
    """`not finished` or `cancelled` for a search without its last measurements; else empty."""
    limits: Limits
    choices: tuple[ChoiceView, ...]
    """Measured models of all targets of this answer, within the limits or not."""
    protocols: Mapping[str, MeasurementProtocol]
    """Target id → measurement protocol of the target."""
    device_options: Mapping[str, str]
    """Target id → value of `edgefront find --device` for the target: a device, or `class=NAME`."""
    near: tuple[ChoiceView, ...]
    """Models just beyond the limits, the nearest first."""
    deleted: tuple[str, ...]
    """Names of measured models that this release's catalogue does not contain."""
    devices: tuple[Document, ...]
    """Facts of the targets' devices."""

    def view(self) -> ChoicesView:
        """Computes the answer from these inputs, without a database session."""
        by_id = {choice.candidate.id: choice for choice in self.choices}
        limits = OptionLimits(**self.limits.model_dump())
        options = [_option(choice) for choice in self.choices]
        within = [option for option in options if limits.violation(option) == 0]
        order = recommendation.rank_published(within)
        best = order[0] if order else None
        surest = next((option for option in order if limits.surely_met(option)), None)
        others = recommendation.runners_up(best, order[1:], recommendation.PUBLISHED_RUNNERS_UP) if best else ()
        frontier = recommendation.published_frontier(order, Dominance(self.request.epsilon))
        named = {option.id for option in (best, *others, *frontier) if option is not None}
        rest = [choice for choice in self.choices if choice.candidate.id not in named]
        # Used only if no model is within the limits, for the sentence and the nearest models.
        fallback = recommendation.recommend([] if best else options, limits, "published_score")
        table = score_tables().get(self.space.score.table)
        chosen = None if best is None else by_id[best.id]
        filter_ = filter_of(self.request.space)
        without_score, same = unscored(self.space.score, filter_), same_architecture(self.space, filter_)
        scored = self.space.size() + len(same)
        models = f"{scored + len(without_score)} {'' if filter_.kind == 'any' else f'{filter_.kind} '}models"
        have = f"{scored} {'has' if scored == 1 else 'have'} this score"
        coverage = f"of {models} that fit the question {have}, {len(without_score)} could not be compared"
        if best is None:
            ways = other_ways(self.request, [*self.protocols.values()], self.devices)
            sentence = f"{fallback.sentence}{ways} {coverage[0].upper()}{coverage[1:]}."
        else:
            name = "" if surest is None else f"{surest.name}, {plain(surest.score)}"
            surely = sentences.surely_within(best, surest, limits, name)
            sentence = self._sentence(best, by_id[best.id], limits, coverage, surely)
        return ChoicesView(
            job_id=self.job_id,
            device=self.device,
            score=str(self.space.score),
            score_about="" if table is None else table.protocol,
            score_source="this service's own catalogue" if table is None else table.source,
            limits=self.limits,
            sentence=(f"{self.device}: " if self.device else "") + sentence,
            note=self._note(chosen),
            measured=MEASURED,
            recommended=chosen,
            surest=None if surest is None else by_id[surest.id],
            runners_up=tuple(
                OtherChoiceView(
                    choice=by_id[other.id],
                    trade=sentences.published_trade(other, best, limits, self.space.score.benchmark),
                )
                for other in others
                if best is not None
            ),
            frontier=tuple(by_id[option.id] for option in frontier),
            others=tuple(sorted(rest, key=lambda choice: (-choice.score, choice.model, choice.bits))),
            nearest=None if fallback.nearest is None else by_id[fallback.nearest.id],
            moves=tuple(
                LimitMove(limit=move.limit, to=move.to, candidate_id=move.option.id) for move in fallback.moves
            ),
            standings={option.id: limits.standings(option) for option in options},
            commands=() if chosen is None else (chosen.get,),
            own=None if chosen is None else self._own(chosen),
            unscored=_unmeasured(without_score, self.space),
            same_architecture=_unmeasured(same, self.space),
        )

    def _sentence(self, best: Option, choice: ChoiceView, limits: OptionLimits, coverage: str, surely: str) -> str:
        stands = {name: f", {stand}" for name, stand in limits.standings(best).items()}
        times = [f"{best.latency} ms{stands.get('latency_ms', '')}"]
        if best.first_token is not None and best.token is not None:
            times = [
                f"first token after {best.first_token} ms{stands.get('first_token_ms', '')}",
                f"{best.token} ms each further token ({rounded(1000 / best.token.value, 3)} tokens/s)"
                f"{stands.get('token_ms', '')}",
                *([f"{times[0]} in all"] if "latency_ms" in stands else []),
            ]
        better = [near for near in self.near if (near.score, near.bits) > (choice.score, choice.bits)]
        names = ((f"{near.model} {near.weights} {near.runtime}", near.candidate) for near in better)
        near = near_in_words(names, self.limits)
        memory = f"peak memory {Estimate(best.memory.value / MB, best.memory.spread)} MB{stands.get('memory_mb', '')}"
        within = sentences.within(limits)
        if self.unfinished:
            within = f"So far, {within[0].lower()}{within[1:]}"
        return (
            f"{within}, {best.conditions}, {best.name} "
            f"has the highest {self.space.score.benchmark} ({plain(choice.score)}, table {self.space.score.table}; "
            f"{coverage}): {'; '.join([*times, memory])}.{surely} {near}"
        ).strip()

    def _own(self, best: ChoiceView) -> OwnTrainingView | None:
        """Returns the perplexity that the best model's shape is predicted to reach in the user's own training, and the
        command of a search for better shapes. None if the scaling law does not cover the model.

        A scaling law predicts the perplexity of a shape after training, and a published score rates given weights. The
        two have no common scale, so a search for better shapes is a separate job.
        """
        architecture = described_models()[best.model]
        law = law_named(LAW)
        if family(architecture) != law.origin.family:
            return None
        predicted = law.predict(Shapes.of([architecture]))
        perplexity, low, high = (float(end[0]) for end in (predicted.perplexity, predicted.low, predicted.high))
        limits = self.limits.model_dump(exclude_none=True) or {
            "latency_ms": rounded_up(best.candidate.latency_ms or 0.0),
            "memory_mb": rounded_up((best.candidate.memory_bytes or 0) / MB),
        }
        options = [word for name, value in limits.items() for word in (f"--max-{name.replace('_', '-')}", plain(value))]
        device = place_words(self.device_options[best.target_id], self.protocols[best.target_id])
        return OwnTrainingView(
            sentence=(
                "After your own training, a model of this shape has a predicted perplexity of "
                f"{rounded(perplexity, 3)} ({rounded(low, 3)} to {rounded(high, 3)}; {law.label}). Published scores "
                "cannot be compared with perplexities, so only a search around this shape shows what a better shape "
                "within the limits gains by the same training."
            ),
            perplexity=perplexity,
            low=low,
            high=high,
            perplexity_of=law.label,
            command=shlex.join(["edgefront", "find", "--model", best.model, "--device", device, *options]),
        )

    def _note(self, best: ChoiceView | None) -> str:
        parts = []
        if self.unfinished:
            parts.append(f"The search is {self.unfinished}: a better model may not have been measured.")
        if best is not None and best.bits < 16:
            loss = best.format_loss
            what = "is not published" if loss == UNKNOWN else f"is published: {loss}"
            parts.append(f"The score is that of the published weights. The loss of score in {best.weights} {what}.")
        if self.request.space.published is not None and self.request.space.published.kind == "base":
            parts.append("Base models continue a text; kind instruct looks for an assistant.")
        if self.deleted:
            parts.append(f"Left out, because they are not in this release's catalogue: {', '.join(self.deleted)}.")
        return " ".join(parts)


def read_inputs(session: Session, principal: Principal, job_id: str, limits: Limits = NO_LIMITS) -> list[AnswerInputs]:
    """Reads the inputs of a job's answers, one for each device and set of limits. `limits` replace the targets' limits.

    Raises `NotFound` if there is no such job, `InvalidInput` if the job does not search published models, or for a
    limit on a time that a target does not measure.
    """
    return _inputs_of(session, job_of(session, principal, job_id), limits)


def answer(inputs: Sequence[AnswerInputs]) -> ChoicesView:
    """Computes all answers, without a database session. Returns the first one, which has the others in `elsewhere`."""
    first, *others = (each.view() for each in inputs)
    return first.model_copy(update={"elsewhere": tuple(others)})


def _inputs_of(session: Session, job: Job, limits: Limits = NO_LIMITS) -> list[AnswerInputs]:
    request = JOB_REQUEST.read(job.request)
    space = space_of(request.space)
    if not isinstance(space, PublishedSpace):
        raise InvalidInput(
            f"job {job.id} searches the space {request.space.name}, not published models; read the recommendation of "
            "each target instead",
            field="job_id",
            value=job.id,
            allowed="a job with space.published",
        )
    groups = grouped_by_answer(job_queries.targets(session, [job.id]))
    inputs = []
    for group in groups:
        first, requested = group[0], request.targets[group[0].position]
        device = requested.device or requested.device_class or first.name
        if sum(other[0].device_key == first.device_key for other in groups) > 1:
            device = f"{device} ({first.name})"
        inputs.append(_group_inputs(session, job, request, space, group, limits, device if len(groups) > 1 else ""))
    return inputs


def _group_inputs(
    session: Session,
    job: Job,
    request: JobRequest,
    space: PublishedSpace,
    targets: Sequence[Target],
    limits: Limits,
    device: str,
) -> AnswerInputs:
    for target in targets:
        check_times_measured(target, limits)
    limits = LIMITS.read(targets[0].limits).model_copy(update=limits.model_dump(exclude_none=True))
    protocols = {target.id: PROTOCOL.read(target.protocol) for target in targets}
    measured = [(target, row) for target in targets for row in candidate_queries.measured(session, target.id)]
    choices = {
        row.id: _choice(row, target, protocols[target.id])
        for target, row in measured
        if row.genome[MODEL] in published_models()
    }
    near = [
        choices[row.id]
        for target in targets
        for row in candidate_queries.just_beyond(session, target.id, limits, MAX_NEAR * len(targets), score=-math.inf)
        if row.id in choices
    ]
    requested = {target.id: request.targets[target.position] for target in targets}
    return AnswerInputs(
        job_id=job.id,
        device=device,
        request=request,
        space=space,
        unfinished=_unfinished({target.state for target in targets}),
        limits=limits,
        choices=tuple(choices.values()),
        near=tuple(near),
        devices=tuple(device.facts for device in job_queries.devices_of(session, targets[0].device_key)),
        deleted=tuple(sorted({str(row.genome[MODEL]) for _, row in measured} - published_models().keys())),
        protocols=protocols,
        device_options={id_: each.device or f"class={each.device_class}" for id_, each in requested.items()},
    )


def _unfinished(states: Collection[str]) -> Unfinished:
    if any(state in ACTIVE_TARGETS for state in states):
        return "not finished"
    return "cancelled" if TargetState.CANCELLED in states else ""


def short_answers(session: Session, job: Job) -> dict[str, str]:
    """Target id → answer in a few words: the recommended model on its target, elsewhere why there is none. Raises
    `InvalidInput` if this release lacks models of the job.
    """
    return {id_: text for inputs in _inputs_of(session, job) for id_, text in _short(inputs).items()}


def _short(inputs: AnswerInputs) -> dict[str, str]:
    view = inputs.view()
    best, limits = view.recommended, OptionLimits(**view.limits.model_dump())
    deleted = f"; no longer in the catalogue: {', '.join(inputs.deleted)}" if inputs.deleted else ""
    texts = {}
    for target_id in inputs.protocols:
        options = [_option(choice) for choice in inputs.choices if choice.target_id == target_id]
        within = [option for option in options if limits.violation(option) == 0]
        texts[target_id] = sentences.nothing_short(limits, len(options)) if options else "nothing was measured"
        if best is not None and not options:
            texts[target_id] += ": no model can be better here"
        if best is not None and within:
            texts[target_id] = f"within {limits}, but not better: {len(within)} model{'' if len(within) == 1 else 's'}"
    if best is None:
        first = next(iter(texts))
        return texts | {first: texts[first] + deleted}
    candidate = best.candidate
    token = time_of(candidate, "token")
    time = f"{time_of(candidate, 'latency')} ms" if token is None else f"{token} ms a token"
    score = f"{inputs.space.score.benchmark} {plain(best.score)}"
    return texts | {best.target_id: f"{best.model} {best.weights}, {time}, {score}{deleted}"}


def _choice(candidate: Candidate, target: Target, protocol: MeasurementProtocol) -> ChoiceView:
    model = published_models()[str(candidate.genome[MODEL])]
    weights = format_of(protocol)
    bits = BITS[weights]
    loss = None if bits >= 16 else format_loss(model.id, bits)
    return ChoiceView(
        model=model.id,
        kind=model.kind,
        licence=stated_licence(model),
        context_length=model.context_length,
        score=candidate.proxy,
        runtime=protocol.runtime,
        threads=protocol.threads,
        weights=weights,
        bits=bits,
        kv_cache=protocol.kv_cache,
        get=shlex.join(["edgefront", "model", "get", model.id, *get_options(protocol)]),
        format_loss="none" if bits >= 16 else UNKNOWN if loss is None else f"{loss.what} ({loss.source})",
        target_id=target.id,
        target=target.name,
        candidate=candidate_view(candidate, None),
    )


def _option(choice: ChoiceView) -> Option:
    name = f"{choice.model} in {choice.weights} with {choice.runtime}"
    return option_of(choice.candidate, None, "", choice.threads, name, choice.bits)


def _unmeasured(models: Sequence[PublishedModel], space: PublishedSpace) -> tuple[OtherModelView, ...]:
    """Returns views of models that were not measured, the highest score first."""
    if not models:
        return ()
    law = law_named(LAW)
    shapes = Shapes.of([described_models()[model.id] for model in models])
    covered = [row for row, model in enumerate(models) if family(described_models()[model.id]) == law.origin.family]
    predicted = (
        dict(zip(covered, law.predict(shapes.take(covered)).perplexity.tolist(), strict=True)) if covered else {}
    )
    views = [
        OtherModelView(
            model=model.id,
            licence=stated_licence(model),
            context_length=model.context_length,
            parameters=int(shapes.total_parameters[row]),
            score=space.score.of(model),
            perplexity=predicted.get(row),
            perplexity_of=law.label if row in predicted else "",
        )
        for row, model in enumerate(models)
    ]
    return tuple(sorted(views, key=lambda view: (-(view.score or 0), view.model)))
