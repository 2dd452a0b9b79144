"""Reads candidates of a job for the API: as filtered and sorted pages, or a single candidate with its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, case, func, or_
from sqlalchemy.orm import Session

from edgefront.core.architectures.published_space import MODEL
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateRole, CandidateState
from edgefront.core.common.validation import one_of
from edgefront.core.measurement.figures import FIGURES
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import ends_ms
from edgefront.core.schemas.candidates import GROUPS, CandidatePage, CandidateView, Group, LaunchView, PagePlace
from edgefront.core.schemas.jobs import NO_LIMITS, Limits
from edgefront.core.schemas.predictions import PredictedView
from edgefront.core.search.pareto.baseline import Baseline
from edgefront.core.services import cursor as cursors
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, job_of, target_of
from edgefront.core.services.jobs.comparison import baseline_of, baselines_of, versus_baseline
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand, lists
from edgefront.core.services.jobs.queries.lists import Order
from edgefront.core.services.quality.expected import label_of
from edgefront.core.services.quality.trust import trained_of
from edgefront.core.services.stored import RowReader, described
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Candidate, Job, Launch, Target

_RESULT: TypeAdapter[LaunchResult | None] = TypeAdapter(LaunchResult | None)

MAX_PAGE = 1000
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class CandidateFilter:
    """Conditions on candidates, all of which must hold. `target` is an id or a name."""

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
    """Ids of the only candidates to return; empty: all candidates."""
    text: str | None = None
    """Search text: a number, the beginning or end of an id, the start of a digest or operator, or part of a reason."""


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
"""Columns by which candidates can be sorted; a leading `-` means descending. Unmeasured candidates always come last."""
DERIVED = ("group", "speedup", "memory_ratio", "perplexity")
"""More sort keys for lists of one target: group, comparison with the baseline, perplexity of trained candidates."""


@dataclass(frozen=True)
class PageRequest:
    """Requested page of a list. By default this is the first page; with `cursor` it is the page after the cursor.

    A cursor is opaque, stays valid while candidates are added, and belongs to one sort order. `offset` requests the
    page that begins after `offset` candidates. `around` requests the page, of pages of `limit` candidates, that
    contains the candidate with this id if the filters match it. With `offset` or `around`, the answer states the page's
    position in the list.
    """

    cursor: str | None = None
    limit: int = 100
    offset: int | None = None
    around: str | None = None

    @property
    def size(self) -> int:
        """Maximum number of candidates on the page."""
        return max(1, min(self.limit, MAX_PAGE))


def list_candidates(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
    page: PageRequest = PageRequest(),
) -> CandidatePage:
    """Returns one page of the job's candidates that match the filters.

    Raises:
        NotFound: the job or target does not exist, or belongs to another owner.
        InvalidInput: the sort column is unknown, or the cursor belongs to another sort order.
    """
    job = job_of(session, principal, job_id)
    filters = filters or CandidateFilter()
    conditions = conditions_of(session, job, filters)
    order = order_of(session, job, filters.target, sort)
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
        before = lists.position_of(session, conditions, order, page.around)
        offset = offset if before is None else before - before % limit
    everyone = conditions if filters.group is None else conditions_of(session, job, replace(filters, group=None))
    groups = lists.groups(session, everyone)
    total = sum(groups.values()) if filters.group is None else groups[filters.group]
    # A request beyond the final page gets the final page, because candidates may have left the group meanwhile.
    last = max(0, total - 1)
    return PagePlace(offset=min(offset, last - last % limit), total=total, groups=groups, numbers={})


def get_candidate(session: Session, principal: Principal, candidate_id: str) -> CandidateView:
    """Returns a candidate. Raises `NotFound` for an unknown candidate or another owner's candidate."""
    candidate, _ = candidate_of(session, principal, candidate_id)
    return candidate_view(candidate, baseline_of(session, candidate.target_id))


def list_launches(session: Session, principal: Principal, candidate_id: str) -> list[LaunchView]:
    """Returns every launch of a candidate's measurement with its raw result, oldest first."""
    candidate, _ = candidate_of(session, principal, candidate_id)
    if candidate.measurement_id is None:
        return []
    return [_launch_view(launch) for launch in demand.launches_of(session, candidate.measurement_id)]


def _launch_view(launch: Launch) -> LaunchView:
    reader = RowReader()
    result = reader.read(lambda: _RESULT.validate_python(launch.result))
    own = {name: getattr(launch, name) for name in LaunchView.model_fields if name not in ("result", "reason")}
    return LaunchView(**own, reason=reader.note(launch.reason), result=result)


def conditions_of(session: Session, job: Job, filters: CandidateFilter) -> list[ColumnElement[bool]]:
    conditions = [Candidate.job_id == job.id]
    if filters.target is not None:
        # The target belongs to the job, so the index of targets suffices.
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
        # Numbers outside the column's range are replaced by a bound that no row has.
        conditions.append(Candidate.generation == max(-2, min(filters.generation, (1 << 31) - 1)))
    conditions += [column <= limit for column, limit in candidate_queries.bounds(filters.limits)]
    if filters.min_decoder_parameters is not None:
        conditions.append(Candidate.decoder_parameters >= _bounded(filters.min_decoder_parameters))
    if filters.max_decoder_parameters is not None:
        conditions.append(Candidate.decoder_parameters <= _bounded(filters.max_decoder_parameters))
    return conditions


def _bounded(value: float) -> int:
    return int(max(-1.0, min(value, _LARGEST - 1024)))


def order_of(session: Session, job: Job, target: str | None, sort: str) -> Order:
    name = sort.removeprefix("-")
    one_of("sort", name, (*SORTABLE, *DERIVED))
    figure = getattr(Candidate, name) if name in SORTABLE else _derived(session, name, target_of(session, job, target))
    return Order(figure, sort.startswith("-"))


def _derived(session: Session, name: str, target: Target) -> lists.Figure:
    if name == "group":
        return lists.group_rank()
    if name == "perplexity":
        scores = {score.candidate_id: score.value for score in trained_of(session, target.id) if score.alike}
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


def candidate_view(candidate: Candidate, baseline: Baseline | None) -> CandidateView:
    """Returns the view of a candidate, with the comparison to the baseline if the candidate is measured and not a
    baseline.

    Rows were validated when they were written, and validating thousands of rows again would be slow. An architecture or
    prediction of the wrong form is left out of the view, and `reason` names the error.
    """
    reader = RowReader()

    def parents() -> tuple[str, ...]:
        if not isinstance(candidate.parents, list) or not all(isinstance(id_, str) for id_ in candidate.parents):
            raise InvalidInput("parents must be a list of identifiers", field="parents")
        return tuple(candidate.parents)

    low, high = ends_ms(candidate.latency_ms, candidate.latency_half_width_ms)
    return CandidateView.model_construct(
        latency_low_ms=low,
        latency_high_ms=high,
        **{name: getattr(candidate, name) for name in _AS_STORED},
        architecture=reader.read(lambda: described(candidate.architecture)) or {},
        predicted=reader.read(lambda: _predicted(candidate.predicted)),
        parents=reader.read(parents) or (),
        state=CandidateState(candidate.state),
        reason=reader.note(candidate.reason),
        versus_baseline=versus_baseline(candidate, baseline),
        model=str(document_of(candidate.genome).get(MODEL, "")),
    )


_DERIVED = {"architecture", "predicted", "parents", "state", "versus_baseline", "reason", "model"}
_DERIVED |= {"latency_low_ms", "latency_high_ms"}
_AS_STORED = tuple(CandidateView.model_fields.keys() - _DERIVED)


def document_of(stored: Document | None) -> Document:
    """Returns a stored document, such as a prediction or a genome; empty if it is missing or unreadable."""
    return stored if isinstance(stored, dict) else {}


def _predicted(stored: Document | None) -> PredictedView | None:
    if stored is None:
        return None
    if unknown := stored.keys() - PredictedView.model_fields.keys():
        raise InvalidInput(f"predicted has unknown fields: {', '.join(sorted(unknown))}", field="predicted")
    return PredictedView.model_construct(**{**stored, "label": label_of(stored)})
