"""Candidates of a job: filtered, sorted, paged and exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import orjson
from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, case, func, or_
from sqlalchemy.orm import Session

from edgefront.core.common.states import CandidateRole, CandidateState
from edgefront.core.common.validation import one_of
from edgefront.core.measurement.figures import FIGURES
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.candidates import GROUPS, CandidatePage, CandidateView, Group, LaunchView, PagePlace
from edgefront.core.schemas.jobs import NO_LIMITS, Limits
from edgefront.core.services import cursor as cursors
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, job_of, target_of
from edgefront.core.services.jobs.comparison import baseline_of, baselines_of, versus_baseline
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand, lists
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries.lists import Order
from edgefront.core.services.jobs.views import candidate_view, predicted_of
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.quality.trust import trained_of
from edgefront.core.services.stored import RowReader
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Candidate, Job, Launch, Target

_RESULT: TypeAdapter[LaunchResult | None] = TypeAdapter(LaunchResult | None)

MAX_PAGE = 1000
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class CandidateFilter:
    """All given conditions must hold. `target` is an id or a name."""

    target: str | None = None
    state: CandidateState | None = None
    role: CandidateRole | None = None
    on_frontier: bool | None = None
    generation: int | None = None
    limits: Limits = NO_LIMITS
    min_decoder_parameters: int | None = None
    max_decoder_parameters: int | None = None
    group: Group | None = None
    ids: tuple[str, ...] = ()
    """Only these candidates; empty: all."""
    text: str | None = None
    """A number, the beginning or end of an id, the beginning of a digest, an operator, or part of a reason."""


SORTABLE = (
    "number",
    "generation",
    "decoder_parameters",
    "total_parameters",
    "weight_bytes",
    "flops",
    "proxy",
    "predicted_perplexity",
    *FIGURES,
    "launches",
    "digest",
    "created_at",
    "measured_at",
)
"""Columns to sort by; a leading `-` sorts in descending order. Unmeasured candidates always come last."""
DERIVED = ("group", "speedup", "memory_ratio", "perplexity")
"""What else a list of one target is sorted by: the group, the comparison with the baseline, and the perplexity of those
that were trained."""

EXPORT_COLUMNS: tuple[tuple[str, str], ...] = (
    ("job_id", "id of the job"),
    ("target", "name of the target"),
    ("target_id", "id of the target"),
    ("number", "order of proposal within the target, from 0, baselines first"),
    ("id", "id of the candidate"),
    ("role", "baseline or search"),
    ("generation", "number of its generation, from 0; -1 for baselines"),
    ("operator", "how it was proposed"),
    ("parents", "ids of its parents, separated by spaces"),
    ("state", "waiting, measured, out_of_bounds, infeasible, failed or cancelled"),
    ("reason", "why it is not measured, not confirmed, or out of bounds"),
    ("digest", "SHA-256 of the canonical architecture"),
    ("decoder_parameters", "parameters of the blocks and the final norm"),
    ("total_parameters", "all parameters"),
    ("weight_bytes", "bytes of all weights"),
    ("flops", "floating-point operations of one forward pass"),
    ("proxy", "score used in place of quality; higher is better"),
    ("predicted_perplexity", "perplexity predicted when it was proposed; empty where nothing was"),
    ("predicted_perplexity_low", "lower end of its 95 % interval"),
    ("predicted_perplexity_high", "upper end of its 95 % interval"),
    ("predicted_relative_to", "the model by whose perplexity it is divided; empty: it is a perplexity"),
    ("predicted_train_tokens", "training tokens that it is predicted for; empty where the law knows one budget"),
    ("predicted_law", "the quality law that predicted it"),
    ("predicted_label", "what it is of, in about six words: whose data, how many training tokens, how trained"),
    ("predicted_latency_ms", "latency predicted when it was proposed, ms"),
    ("predicted_latency_low_ms", "lower end of its 95 % interval, ms"),
    ("predicted_latency_high_ms", "upper end of its 95 % interval, ms"),
    ("predicted_memory_bytes", "peak memory predicted when it was proposed, bytes"),
    ("predicted_memory_low_bytes", "lower end of its 95 % interval, bytes"),
    ("predicted_memory_high_bytes", "upper end of its 95 % interval, bytes"),
    *((name, figure.meaning) for name, figure in FIGURES.items()),
    ("launches", "launches measured"),
    ("marked", "whether one of them was measured under conditions out of the ordinary, or after the anchor moved"),
    ("on_frontier", "whether no other candidate of the target dominates it"),
    ("baseline_latency_ms", "the baseline's latency at an equal proxy, ms"),
    ("baseline_memory_bytes", "the baseline's peak memory at an equal proxy, bytes"),
    ("speedup", "baseline latency divided by its own"),
    ("speedup_low", "lower end of its 95 % interval; empty while that is not known"),
    ("speedup_high", "upper end of its 95 % interval"),
    ("memory_ratio", "baseline peak memory divided by its own"),
    ("extrapolated", "whether it lies outside the baseline's range of the proxy"),
    ("seed", "seed of its random weights"),
    ("genome", "value of each gene in its search space, JSON; of a gene per layer a list, also beyond its depth"),
    ("architecture", "canonical description, JSON"),
    ("created_at", "when it was proposed, UTC"),
    ("measured_at", "when it was last measured, UTC"),
)
"""Name and meaning (with the unit) of each column of the CSV and Parquet export, in order."""
VERSUS = {"latency_ms": "baseline_latency_ms", "memory_bytes": "baseline_memory_bytes"}
"""Fields of a `Versus` → columns that have other names."""
PREDICTED = {name: name.removeprefix("predicted_") for name, _ in EXPORT_COLUMNS if name.startswith("predicted_")}
"""Columns of what was predicted → the fields of a `PredictedView`."""


@dataclass(frozen=True)
class PageRequest:
    """Which page of a list: the first, or the one after `cursor`, which is opaque, stays valid while candidates are
    added, and belongs to one sort order.

    With `offset` the page begins after so many candidates instead; with `around` it is the page (of pages of `limit`)
    that has this candidate, if the filters let it through. Such a page knows its place.
    """

    cursor: str | None = None
    limit: int = 100
    offset: int | None = None
    around: str | None = None

    @property
    def size(self) -> int:
        """Candidates of the page at most."""
        return max(1, min(self.limit, MAX_PAGE))


def list_candidates(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
    page: PageRequest = PageRequest(),
) -> CandidatePage:
    """One page of a job's candidates that the filters let through.

    Raises:
        NotFound: no such job or target, or not yours.
        InvalidInput: unknown sort column, or a cursor of another order.
    """
    job = job_of(session, principal, job_id)
    filters = filters or CandidateFilter()
    conditions = _conditions(session, job, filters)
    order = _order(session, job, filters.target, sort)
    limit = page.size
    place = None
    if page.offset is not None or page.around is not None:
        place = _place(session, job, filters, conditions, order, page)
    after = None if page.cursor is None or place is not None else _after(page.cursor, sort)
    candidates = lists.page(
        session, conditions, order, after=after, offset=0 if place is None else place.offset, limit=limit + 1
    )
    shown = [candidate for candidate, _ in candidates[:limit]]
    baselines = baselines_of(session, sorted({candidate.target_id for candidate in shown}))
    following = None
    if len(candidates) > limit:
        value = candidates[limit - 1][1]
        following = cursors.encode([sort, value.isoformat() if isinstance(value, datetime) else value, shown[-1].id])
    if place is not None:
        numbers = candidate_queries.numbers(session, {id_ for candidate in shown for id_ in candidate.parents})
        place = place.model_copy(update={"numbers": numbers})
    items = tuple(candidate_view(candidate, baselines[candidate.target_id]) for candidate in shown)
    return CandidatePage(items=items, next_cursor=following, place=place)


def _place(
    session: Session,
    job: Job,
    filters: CandidateFilter,
    conditions: Sequence[ColumnElement[bool]],
    order: Order,
    page: PageRequest,
) -> PagePlace:
    offset, limit = page.offset or 0, page.size
    if page.around is not None:
        before = lists.place(session, conditions, order, page.around)
        offset = offset if before is None else before - before % limit
    everyone = conditions if filters.group is None else _conditions(session, job, replace(filters, group=None))
    groups = lists.groups(session, everyone)
    total = sum(groups.values()) if filters.group is None else groups[filters.group]
    # A page beyond the last one is the last one: candidates may have left the group meanwhile.
    last = max(0, total - 1)
    return PagePlace(offset=min(offset, last - last % limit), total=total, groups=groups, numbers={})


def get_candidate(session: Session, principal: Principal, candidate_id: str) -> CandidateView:
    """NotFound if there is none or it is another owner's."""
    candidate, _ = candidate_of(session, principal, candidate_id)
    return candidate_view(candidate, baseline_of(session, candidate.target_id))


def list_launches(session: Session, principal: Principal, candidate_id: str) -> list[LaunchView]:
    """Every launch of a candidate's measurement, oldest first, with its raw result."""
    candidate, _ = candidate_of(session, principal, candidate_id)
    if candidate.measurement_id is None:
        return []
    return [_launch_view(launch) for launch in demand.launches_of(session, candidate.measurement_id)]


def _launch_view(launch: Launch) -> LaunchView:
    reader = RowReader()
    result = reader.read(lambda: _RESULT.validate_python(launch.result))
    own = {name: getattr(launch, name) for name in LaunchView.model_fields if name not in ("result", "reason")}
    return LaunchView(**own, reason=reader.note(launch.reason), result=result)


def export_rows(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
) -> Iterator[Document]:
    """Rows of scalars under `EXPORT_COLUMNS`, fetched in batches. Errors as in `list_candidates`, before the first."""
    job = job_of(session, principal, job_id)
    conditions = _conditions(session, job, filters or CandidateFilter())
    order = _order(session, job, (filters or CandidateFilter()).target, sort)
    targets = {target.id: target.name for target in job_queries.targets(session, [job.id])}
    baselines = baselines_of(session, list(targets))

    def generate() -> Iterator[Document]:
        for candidate in lists.stream(session, conditions, order):
            versus = versus_baseline(candidate, baselines[candidate.target_id])
            row = {name: getattr(candidate, name, None) for name, _ in EXPORT_COLUMNS}
            predicted = predicted_of(candidate.predicted)
            row |= {name: predicted.get(field) for name, field in PREDICTED.items()}
            row["predicted_label"] = label_of(predicted) or None
            row |= {
                "target": targets[candidate.target_id],
                "parents": " ".join(candidate.parents),
                "genome": orjson.dumps(candidate.genome).decode() if candidate.genome else None,
                "architecture": orjson.dumps(candidate.architecture, option=orjson.OPT_SORT_KEYS).decode(),
            }
            against = {} if versus is None else versus.model_dump()
            yield row | {VERSUS.get(name, name): value for name, value in against.items()}

    return generate()


def _conditions(session: Session, job: Job, filters: CandidateFilter) -> list[ColumnElement[bool]]:
    conditions = [Candidate.job_id == job.id]
    if filters.target is not None:
        # The target is the job's, so an index of targets suffices.
        conditions = [Candidate.target_id == target_of(session, job, filters.target).id]
    if filters.group is not None:
        conditions.append(lists.in_group(one_of("group", filters.group, GROUPS)))
    if filters.ids:
        conditions.append(any_of(Candidate.id, filters.ids))
    if filters.text and filters.text.strip():
        conditions.append(_matches(filters.text))
    if filters.state is not None:
        conditions.append(Candidate.state == one_of("state", filters.state, tuple(CandidateState)))
    if filters.role is not None:
        conditions.append(Candidate.role == one_of("role", filters.role, tuple(CandidateRole)))
    if filters.on_frontier is not None:
        conditions.append(Candidate.on_frontier == filters.on_frontier)
    if filters.generation is not None:
        # Numbers outside the column's range are replaced by its bound: no row has them.
        conditions.append(Candidate.generation == max(-2, min(filters.generation, (1 << 31) - 1)))
    conditions += [column <= limit for column, limit in candidate_queries.bounds(filters.limits)]
    if filters.min_decoder_parameters is not None:
        conditions.append(Candidate.decoder_parameters >= _bounded(filters.min_decoder_parameters))
    if filters.max_decoder_parameters is not None:
        conditions.append(Candidate.decoder_parameters <= _bounded(filters.max_decoder_parameters))
    return conditions


def _bounded(value: float) -> int:
    return int(max(-1.0, min(value, _LARGEST - 1024)))


def _order(session: Session, job: Job, target: str | None, sort: str) -> Order:
    name = sort.removeprefix("-")
    one_of("sort", name, (*SORTABLE, *DERIVED))
    figure = getattr(Candidate, name) if name in SORTABLE else _derived(session, name, target_of(session, job, target))
    return Order(figure, sort.startswith("-"))


def _derived(session: Session, name: str, target: Target) -> lists.Figure:
    if name == "group":
        return lists.group_rank()
    if name == "perplexity":
        scores = {score.candidate_id: score.value for score in trained_of(session, target.id)}
        return case(scores, value=Candidate.id) if scores else lists.NOTHING
    return lists.against(baseline_of(session, target.id), "latency" if name == "speedup" else "memory")


def _after(cursor: str, sort: str) -> lists.After:
    name = sort.removeprefix("-")
    moment = name in ("created_at", "measured_at")
    kinds: tuple[type, ...] = (str, type(None)) if moment or name == "digest" else (int, float, type(None))
    made_for, value, id_ = cursors.decode(cursor, (str, kinds, str))
    if made_for != sort:
        raise cursors.invalid_cursor(cursor)
    if moment and value is not None:
        value = cursors.moment(value, cursor)
    return value, id_


def _matches(text: str) -> ColumnElement[bool]:
    needle = text.strip().lower()
    number = needle.removeprefix("#")
    conditions = [
        Candidate.id.startswith(needle, autoescape=True),
        Candidate.id.endswith(needle, autoescape=True),
        Candidate.digest.startswith(needle, autoescape=True),
        Candidate.operator.startswith(needle, autoescape=True),
        func.lower(Candidate.reason).contains(needle, autoescape=True),
    ]
    if number.isdecimal() and number.isascii() and len(number) < 10:
        conditions.append(Candidate.number == int(number))
    return or_(*conditions)
