"""Candidates as rows of a table: the columns of the CSV and Parquet export."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from sqlalchemy.orm import Session

from edgefront.core.measurement.figures import FIGURES
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.jobs.candidates import CandidateFilter, conditions_of, order_of, predicted_of
from edgefront.core.services.jobs.comparison import baselines_of, versus_baseline
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries import lists
from edgefront.core.services.quality.expected import label_of
from edgefront.core.store.sql import Document

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


def export_rows(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
) -> Iterator[Document]:
    """Rows of scalars under `EXPORT_COLUMNS`, fetched in batches. Errors as in `list_candidates`, before the first."""
    job = job_of(session, principal, job_id)
    conditions = conditions_of(session, job, filters or CandidateFilter())
    order = order_of(session, job, (filters or CandidateFilter()).target, sort)
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
