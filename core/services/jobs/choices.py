"""The answer of a job among published models: over all its targets, from what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from edgefront.core.cost.parameters import count
from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.variants import format_of
from edgefront.core.number_formats import BITS
from edgefront.core.pareto import choices as pure
from edgefront.core.pareto import recommendation
from edgefront.core.pareto.choices import Measured
from edgefront.core.pareto.ratio import Figure
from edgefront.core.pareto.recommendation import MEMORY_SPREAD, Option, OptionLimits, with_interval
from edgefront.core.published import PublishedModel, format_loss, published_models, score_tables
from edgefront.core.quality.shipped import family, law_named
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.views import candidate_view
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.spaces.models.published import published_architecture
from edgefront.core.spaces.published import MODEL, Filter, PublishedSpace, same_architecture, unscored
from edgefront.core.states import ACTIVE_TARGETS
from edgefront.core.store.tables import Candidate, Target
from edgefront.core.units import MB, plain
from edgefront.core.wire.choices import ChoicesView, ChoiceView, OtherChoiceView, OtherModelView
from edgefront.core.wire.jobs import NO_LIMITS, JobRequest, Limits
from edgefront.core.wire.recommendations import LimitMove

MEASURED = (
    "Times and memory are of random weights in the model's shapes and in this format, measured on the device: nothing "
    "was downloaded. `edgefront measure` checks the published file."
)
UNKNOWN = "unknown"
LAW = "llama-dolma-cooled"
"""The law of what is known of a model without a score: of finished trainings, on text like that of published models."""


@dataclass(frozen=True)
class Known:
    """What was read of a job: all that its answer follows from."""

    job_id: str
    request: JobRequest
    space: PublishedSpace
    active: bool
    limits: Limits
    choices: tuple[ChoiceView, ...]
    """Measured, within the limits or not."""
    protocols: Mapping[str, MeasurementProtocol]
    """By target id."""

    def view(self) -> ChoicesView:
        """Computed without a session."""
        by_id = {choice.candidate.id: choice for choice in self.choices}
        limits = OptionLimits(**self.limits.model_dump())
        options = [_option(choice) for choice in self.choices]
        within = [_measured(by_id[option.id]) for option in options if limits.violation(option) == 0]
        order = pure.ranked(within)
        best = order[0] if order else None
        # Of nothing within the limits it says what comes nearest; of more it would compare with a stock model.
        fallback = recommendation.recommend([] if best else options, limits, "published_score")
        table = score_tables()[self.space.score.table]
        chosen = None if best is None else by_id[best.id]
        return ChoicesView(
            job_id=self.job_id,
            score=str(self.space.score),
            score_about=table.protocol,
            score_source=table.source,
            limits=self.limits,
            sentence=fallback.sentence if chosen is None else self._sentence(chosen, limits),
            note=self._note(chosen),
            measured=MEASURED,
            recommended=chosen,
            runners_up=tuple(
                OtherChoiceView(choice=by_id[other.id], trade=pure.trade(other, best, self.space.score.benchmark))
                for other in (pure.runners_up(order) if best else ())
                if best is not None
            ),
            frontier=tuple(by_id[option.id] for option in pure.frontier(within, self.request.epsilon)),
            nearest=None if fallback.nearest is None else by_id[fallback.nearest.id],
            moves=tuple(
                LimitMove(limit=move.limit, to=move.to, candidate_id=move.option.id) for move in fallback.moves
            ),
            commands=() if chosen is None else commands(chosen, self.protocols[chosen.target_id]),
            unscored=_others(unscored(self.space.score, self._filter), self.space),
            same_architecture=_others(same_architecture(self.space, self._filter), self.space),
        )

    @property
    def _filter(self) -> Filter:
        assert self.request.space.published is not None
        asked = self.request.space.published
        return Filter(asked.kind, asked.licence, asked.min_context)

    def _sentence(self, best: ChoiceView, limits: OptionLimits) -> str:
        within = f"Within {limits}" if str(limits) else "Without limits"
        latency = with_interval(_latency(best))
        times = [f"{latency} ms"]
        if best.candidate.token_ms is not None and best.candidate.first_token_ms is not None:
            times = [
                f"first token after {best.candidate.first_token_ms:.4g} ms",
                f"{best.candidate.token_ms:.4g} ms each further token ({1000 / best.candidate.token_ms:.3g} tokens/s)",
            ]
        memory = (best.candidate.memory_bytes or 0) / MB
        return (
            f"{within} {best.model} in {best.weights} with {best.runtime} has the highest {self.space.score.benchmark} "
            f"({plain(best.score)}, table {self.space.score.table}): {', '.join(times)}, peak memory {memory:.0f} MB."
        )

    def _note(self, best: ChoiceView | None) -> str:
        parts = ["The search is not finished: this is what is known by now."] if self.active else []
        if best is not None and best.bits < 16:
            loss = best.format_loss
            what = "is not published" if loss == UNKNOWN else f"is published: {loss}"
            parts.append(f"The score is of the published weights. What {best.weights} costs this model {what}.")
        return " ".join(parts)


def read(session: Session, principal: Principal, job_id: str, asked: Limits = NO_LIMITS) -> Known:
    """What is known of a job; limits that are not given are those of its first target.

    NotFound if there is no such job; InvalidInput where it is none among published models.
    """
    job = job_of(session, principal, job_id)
    request = JOB_REQUEST.read(job.request)
    space = space_of(request.space)
    if not isinstance(space, PublishedSpace):
        raise InvalidInput(
            f"job {job_id} searches the space {request.space.name}, not published models: it has a recommendation for "
            "each target",
            field="job_id",
            value=job_id,
            allowed="a job with space.published",
        )
    targets = job_rows.targets(session, [job.id])
    own = LIMITS.read(targets[0].limits)
    limits = own.model_copy(update=asked.model_dump(exclude_none=True))
    protocols = {target.id: PROTOCOL.read(target.protocol) for target in targets}
    return Known(
        job_id=job.id,
        request=request,
        space=space,
        active=any(target.state in ACTIVE_TARGETS for target in targets),
        limits=limits,
        choices=tuple(
            _choice(candidate, target, protocols[target.id])
            for target in targets
            for candidate in rows.measured(session, target.id)
        ),
        protocols=protocols,
    )


def commands(choice: ChoiceView, protocol: MeasurementProtocol) -> tuple[str, ...]:
    """What gets a model and checks it: download, conversion to the format that was measured, a measurement."""
    folder = choice.model.partition("/")[2]
    weights = "" if protocol.weights == "full" else f" --weights {protocol.weights}"
    fetch = f"huggingface-cli download {choice.model} --local-dir {folder}"
    if protocol.runtime != "llamacpp":
        return fetch, f"edgefront measure {folder} --runtime {protocol.runtime}{weights}{_pass(protocol)}"
    file = f"{folder}-{choice.weights}.gguf"
    return (
        fetch,
        f"edgefront model build {folder} --format gguf --weights {choice.weights} --output {file}",
        f"edgefront measure {file}{_pass(protocol)}",
        f"llama-cli -m {file}",
    )


def _pass(protocol: MeasurementProtocol) -> str:
    """The options that measure by this protocol."""
    if protocol.mode != "generate":
        return f" --mode {protocol.mode} --sequence-length {protocol.sequence_length} --threads {protocol.threads}"
    context = f" --context {protocol.memory_length}" if protocol.memory_length else ""
    cache = "" if protocol.kv_cache in (None, "f16") else f" --kv-cache {protocol.kv_cache}"
    return (
        f" --prompt {protocol.sequence_length} --new {protocol.new_tokens}{context}{cache} --threads {protocol.threads}"
    )


def _choice(candidate: Candidate, target: Target, protocol: MeasurementProtocol) -> ChoiceView:
    model = published_models()[str(candidate.genome[MODEL])]
    weights = format_of(protocol)
    bits = BITS[weights]
    loss = None if bits >= 16 else format_loss(model.id, bits)
    return ChoiceView(
        model=model.id,
        kind=model.kind,
        licence=model.licence,
        context_length=model.context_length,
        score=candidate.proxy,
        runtime=protocol.runtime,
        weights=weights,
        bits=bits,
        kv_cache=protocol.kv_cache,
        format_loss="none" if bits >= 16 else UNKNOWN if loss is None else f"{loss.what} ({loss.source})",
        target_id=target.id,
        target=target.name,
        candidate=candidate_view(candidate, None),
    )


def _measured(choice: ChoiceView) -> Measured:
    return Measured(
        choice.candidate.id,
        choice.model,
        choice.score,
        choice.bits,
        _latency(choice),
        Figure(float(choice.candidate.memory_bytes or 0), MEMORY_SPREAD),
    )


def _option(choice: ChoiceView) -> Option:
    candidate = choice.candidate
    return Option(
        id=candidate.id,
        stock=False,
        name=choice.model,
        parameters=candidate.total_parameters,
        score=choice.score,
        latency=_latency(choice),
        memory=Figure(float(candidate.memory_bytes or 0), MEMORY_SPREAD),
        first_token_ms=candidate.first_token_ms,
        token_ms=candidate.token_ms,
    )


def _latency(choice: ChoiceView) -> Figure:
    return Figure.plus_minus(choice.candidate.latency_ms or 0.0, choice.candidate.latency_half_width_ms)


def _others(models: Iterable[PublishedModel], space: PublishedSpace) -> tuple[OtherModelView, ...]:
    return tuple(sorted((_other(model, space) for model in models), key=lambda view: (-(view.score or 0), view.model)))


def _other(model: PublishedModel, space: PublishedSpace) -> OtherModelView:
    architecture = published_architecture(model)
    law = law_named(LAW)
    known = family(architecture) == law.origin.family
    return OtherModelView(
        model=model.id,
        licence=model.licence,
        context_length=model.context_length,
        parameters=count(architecture).total,
        score=space.score.of(model),
        perplexity=float(law.predict(Shapes.of([architecture])).perplexity[0]) if known else None,
        perplexity_of=law.label if known else "",
    )
