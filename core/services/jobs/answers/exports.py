"""Export of a job's candidates as rows of a CSV or Parquet table."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from sqlalchemy.orm import Session

from edgefront.core.measurement.figures import FIGURES
from edgefront.core.measurement.statistics import ends_ms
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.jobs.answers.candidates import CandidateFilter, conditions_of, document_of, order_of
from edgefront.core.services.jobs.comparison import baselines_of, versus_baseline
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries import lists
from edgefront.core.services.quality.expected import label_of
from edgefront.core.store.sql import Document

EXPORT_COLUMNS: tuple[tuple[str, str], ...] = (
    ("job_id", "id of the job"),
    ("target", "name of the target"),
    ("target_id", "id of the target"),
    ("number", "position of the candidate in the target's order of proposal, from 0, baselines first"),
    ("id", "id of the candidate"),
    ("role", "role of the candidate: baseline or search"),
    ("generation", "number of the candidate's generation, from 0; -1 for baselines"),
    ("operator", "search operator that proposed the candidate"),
    ("parents", "ids of the candidate's parents, separated by spaces"),
    ("state", "state of the candidate: waiting, measured, out_of_bounds, infeasible, failed or cancelled"),
    ("reason", "why the candidate is not measured, not confirmed, or out of bounds"),
    ("digest", "SHA-256 of the canonical architecture"),
    ("decoder_parameters", "number of parameters of the blocks and the final norm"),
    ("total_parameters", "number of parameters of the whole model"),
    ("weight_bytes", "size of all weights, bytes"),
    ("flops", "floating-point operations of one forward pass"),
    ("proxy", "proxy score, which stands for quality; higher is better"),
    ("predicted_perplexity", "perplexity predicted when the candidate was proposed; empty without a prediction"),
    ("predicted_perplexity_low", "lower end of the 95 % interval of the predicted perplexity"),
    ("predicted_perplexity_high", "upper end of the 95 % interval of the predicted perplexity"),
    ("predicted_relative_to", "model whose perplexity divides the predicted one; empty if it is not divided"),
    ("predicted_train_tokens", "training tokens that the prediction is for; empty if the scaling law has one budget"),
    ("predicted_law", "scaling law that predicted the perplexity"),
    ("predicted_label", "training that the perplexity is predicted for, in about six words: data, tokens, method"),
    ("predicted_latency_ms", "latency predicted when the candidate was proposed, ms"),
    ("predicted_latency_low_ms", "lower end of the 95 % interval of the predicted latency, ms"),
    ("predicted_latency_high_ms", "upper end of the 95 % interval of the predicted latency, ms"),
    ("predicted_memory_bytes", "peak memory predicted when the candidate was proposed, bytes"),
    ("predicted_memory_low_bytes", "lower end of the 95 % interval of the predicted peak memory, bytes"),
    ("predicted_memory_high_bytes", "upper end of the 95 % interval of the predicted peak memory, bytes"),
    *((name, figure.meaning) for name, figure in FIGURES.items()),
    ("latency_low_ms", "lower end of the 95 % interval of the latency, ms"),
    ("latency_high_ms", "upper end of the 95 % interval of the latency, ms"),
    ("launches", "number of measured launches"),
    ("marked", "whether a launch was measured under conditions out of the ordinary, or after the anchor moved"),
    ("on_frontier", "whether no other candidate of the target dominates this one"),
    ("baseline_latency_ms", "the baseline's latency at an equal proxy, ms"),
    ("baseline_memory_bytes", "the baseline's peak memory at an equal proxy, bytes"),
    ("speedup", "latency of the baseline divided by that of the candidate, at an equal proxy"),
    ("speedup_low", "lower end of the 95 % interval of the speed-up; empty while unknown"),
    ("speedup_high", "upper end of the 95 % interval of the speed-up"),
    ("memory_ratio", "peak memory of the baseline divided by that of the candidate, at an equal proxy"),
    ("extrapolated", "whether the candidate lies outside the baseline's range of the proxy"),
    ("seed", "seed of the candidate's random weights"),
    ("genome", "value of each gene in the search space, JSON; a gene per layer has a list, which may exceed the depth"),
    ("architecture", "canonical description of the architecture, JSON"),
    ("created_at", "when the candidate was proposed, UTC"),
    ("measured_at", "when the candidate was last measured, UTC"),
)
"""Name and meaning (with the unit) of each column of the CSV and Parquet export, in order."""
_ENDS = ("latency_low_ms", "latency_high_ms")
VERSUS = {"latency_ms": "baseline_latency_ms", "memory_bytes": "baseline_memory_bytes"}
"""Field of `Versus` → name of the export column, for fields with a column of another name."""
PREDICTED = {name: name.removeprefix("predicted_") for name, _ in EXPORT_COLUMNS if name.startswith("predicted_")}
"""Export columns of predictions → fields of `PredictedView`."""


def export_rows(
    session: Session,
    principal: Principal,
    job_id: str,
    filters: CandidateFilter | None = None,
    sort: str = "number",
) -> Iterator[Document]:
    """Returns an iterator over candidates as rows with the keys `EXPORT_COLUMNS`. Same errors as `list_candidates`."""
    job = job_of(session, principal, job_id)
    conditions = conditions_of(session, job, filters or CandidateFilter())
    order = order_of(session, job, (filters or CandidateFilter()).target, sort)
    targets = {target.id: target.name for target in job_queries.targets(session, [job.id])}
    baselines = baselines_of(session, list(targets))

    def generate() -> Iterator[Document]:
        for candidate in lists.stream(session, conditions, order):
            versus = versus_baseline(candidate, baselines[candidate.target_id])
            row = {name: getattr(candidate, name, None) for name, _ in EXPORT_COLUMNS}
            predicted = document_of(candidate.predicted)
            row |= {name: predicted.get(field) for name, field in PREDICTED.items()}
            row["predicted_label"] = label_of(predicted) or None
            row |= {
                **dict(zip(_ENDS, ends_ms(candidate.latency_ms, candidate.latency_half_width_ms), strict=True)),
                "target": targets[candidate.target_id],
                "parents": " ".join(candidate.parents),
                "genome": orjson.dumps(candidate.genome).decode() if candidate.genome else None,
                "architecture": orjson.dumps(candidate.architecture, option=orjson.OPT_SORT_KEYS).decode(),
            }
            against = {} if versus is None else versus.model_dump()
            yield row | {VERSUS.get(name, name): value for name, value in against.items()}

    return generate()
