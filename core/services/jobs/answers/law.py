"""Views of the scaling laws of a job, and of the agreement of predicted perplexities with the owner's trainings.

All predictions are read from the database. Predictions for the trainings that a scaling law was fitted to are stored
with the scaling law; predictions for other candidates are stored with the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from sqlalchemy.orm import Session

from edgefront.core.architectures.formatting import stack_in_words
from edgefront.core.quality.predictor import PerplexityPredictor, Prediction
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.schemas.service import AgreementRow, JobLawView, LawAgreement, LawChoice
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.quality import laws
from edgefront.core.services.quality import queries as score_queries
from edgefront.core.services.quality.learning import SPLIT, LeftOut
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Job, OwnerLaw
from edgefront.core.training.proxies.law_study import prediction_accuracy


def job_law_view(database: Database, principal: Principal, job_id: str) -> JobLawView:
    """Returns the job's scaling laws. Raises `NotFound` for an unknown job or another owner's job."""
    with database.read() as session:
        return _view(session, job_of(session, principal, job_id))


def _view(session: Session, job: Job) -> JobLawView:
    request = JOB_REQUEST.read(job.request)
    targets = {target.id: target for target in job_queries.targets(session, [job.id])}
    trained = [score for id_ in targets for score in score_queries.trained(session, id_)]
    searched = laws.readable_law_of(session, job, request)
    law, row = laws.law_of_answers(session, job, request, {score.training_id for score in trained})
    found = None
    if law is not None and not isinstance(law, PruningPredictor):  # its predictions are for models before training
        left_out = {} if row is None else {each["training_id"]: cast(LeftOut, each) for each in row.left_out}
        alike = _comparable(trained, left_out)
        candidates = {
            each.id: each for each in candidate_queries.by_ids(session, {score.candidate_id for score in alike})
        }
        names = {id_: targets[each.target_id].name for id_, each in candidates.items()}
        found = _agreement(alike, left_out, candidates, names)
    return JobLawView(
        job_id=job.id,
        law=None if searched is None else _choice(searched, None),
        answers=None if law is None else _choice(law, row),
        agreement=found,
    )


def _comparable(trained: Sequence[Trained], left_out: Mapping[str, LeftOut]) -> list[Trained]:
    """Returns the trainings that the scaling law was fitted to. If there are none, returns the largest group of
    trainings with equal recipe and evaluation. Of each architecture only the newest training is returned.
    """
    groups: dict[tuple[object, ...], dict[str, Trained]] = {}
    for score in trained:
        if score.metric == "perplexity" and score.value > 0 and np.isfinite(score.value):
            taught = score.training_id in left_out and score.split == SPLIT
            group = (taught, score.split == SPLIT, score.dataset, score.recipe, score.split)
            groups.setdefault((*group, "" if taught else score.comparability_key), {}).setdefault(score.digest, score)
    best = max(groups.items(), key=lambda item: (item[0][0], len(item[1]), *map(str, item[0])), default=None)
    return [] if best is None else list(best[1].values())


def _agreement(
    alike: Sequence[Trained],
    left_out: Mapping[str, LeftOut],
    candidates: Mapping[str, Candidate],
    targets: Mapping[str, str],
) -> LawAgreement | None:
    """Returns the agreement of predicted and trained perplexities; None if no training has a predicted perplexity.
    Predictions of a ratio of perplexities are skipped.
    """
    rows, is_fitted = [], False
    for score in alike:
        candidate, taught = candidates[score.candidate_id], left_out.get(score.training_id or "")
        predicted = (taught["predicted"], taught["low"], taught["high"]) if taught is not None else _stored(candidate)
        if None in predicted:
            continue
        middle, low, high = (float(value or 0.0) for value in predicted)
        is_fitted |= taught is not None
        rows.append(
            AgreementRow(
                candidate_id=candidate.id,
                target=targets[candidate.id],
                number=candidate.number,
                name=stack_in_words(candidate.architecture["blocks"]),
                training_id=score.training_id,
                predicted=middle,
                low=low,
                high=high,
                trained=score.value,
                held=low <= score.value <= high,
                learnt_from=taught is not None,
            )
        )
    if not rows:
        return None
    logs, lows, highs, reached = np.log([(each.predicted, each.low, each.high, each.trained) for each in rows]).T
    agreed, first = prediction_accuracy(reached, Prediction(logs, (highs - lows) / 2, np.zeros(len(rows)))), alike[0]
    return LawAgreement(
        dataset=first.dataset,
        split=first.split,
        recipe=first.recipe,
        alike=is_fitted,
        models=agreed.models,
        held=sum(row.held for row in rows),
        ratio=agreed.ratio,
        held_after_shift=round(agreed.held_after_shift * agreed.models),
        spearman=agreed.spearman,
        rows=tuple(sorted(rows, key=lambda row: (row.trained, row.candidate_id))),
    )


def _stored(candidate: Candidate) -> tuple[float | None, float | None, float | None]:
    """Returns the perplexity that was predicted when the candidate was proposed, and its lower and upper bound. All
    three are None if there is no prediction, or if a ratio of perplexities was predicted.
    """
    predicted = candidate.predicted or {}
    if predicted.get("relative_to") is not None:
        return None, None, None
    return predicted.get("perplexity"), predicted.get("perplexity_low"), predicted.get("perplexity_high")


def _choice(law: PerplexityPredictor, row: OwnerLaw | None) -> LawChoice:
    of = law.origin
    return LawChoice(
        law=of.name,
        models=law.models,
        data=of.data,
        split=of.split,
        trained=of.trained,
        label=law.label,
        relative_to=law.relative_to,
        updated_at=None if row is None else row.updated_at,
    )
