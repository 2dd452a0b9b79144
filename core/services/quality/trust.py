"""How reliable a job's proxy is: published and measured rank correlations."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from edgefront.core.proxies.table import QUALITIES
from edgefront.core.proxies.trust import Live, Trust, live_of, trust
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.services.quality import laws
from edgefront.core.services.quality import queries as rows
from edgefront.core.services.quality.expected import law_note
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.store.tables import Job, Target
from edgefront.core.wire.jobs import JobRequest, LiveTrust, ProxyTrust, SpaceRequest


def trust_of(session: Session, job: Job, request: JobRequest, target: Target | None = None) -> ProxyTrust:
    """Published figures on the proxy in the job's space; of a target also the rank correlation over its candidates
    that were trained.
    """
    live = None if target is None else _live(rows.trained(session, target.id))
    trusted = trust(request.space.name, request.proxy, caveat_of(request.space), live)
    law = laws.known_law_of(session, job, request) if request.proxy == "quality_law" else None
    return _view(trusted, request, law)


def trained_of(session: Session, target_id: str, dataset: str | None = None) -> list[rows.Trained]:
    """Perplexities of the target's candidates that were trained in the same way: data set, recipe, length and split.

    It is the largest such group (on `dataset` if given), preferably on the test split; the newest score per model.
    """
    groups: dict[tuple[str, str, str, str], dict[str, rows.Trained]] = {}
    for score in rows.trained(session, target_id):
        if score.metric == "perplexity" and dataset in (None, score.dataset):
            groups.setdefault((score.dataset, score.recipe, score.split, score.comparability_key), {}).setdefault(
                score.candidate_id, score
            )
    largest = max(groups.items(), key=lambda item: (len(item[1]), item[0][2] == "test", item[0]), default=None)
    return [] if largest is None else list(largest[1].values())


def caveat_of(request: SpaceRequest) -> str:
    """Why the proxy misleads in the space of a request; empty for a space that this release does not have."""
    space = spaces().get(request.name)
    return space.caveat if space else ""


def _live(trained: Iterable[rows.Trained]) -> Live | None:
    """The largest group of models that were trained and evaluated in the same way; the newest score per model."""
    groups: dict[tuple[str, str, str, str, str], dict[str, rows.Trained]] = {}
    for score in trained:
        if score.metric in QUALITIES:
            groups.setdefault(
                (score.dataset, score.split, score.metric, score.recipe, score.comparability_key), {}
            ).setdefault(score.digest, score)
    for key, models in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        dataset, _, metric, *_ = key
        sign = 1.0 if QUALITIES[metric] else -1.0
        live = live_of(
            dataset,
            metric,
            [model.proxy for model in models.values()],
            [sign * model.value for model in models.values()],
        )
        if live is not None:
            return live
    return None


def _view(trusted: Trust, request: JobRequest, law: PerplexityPredictor | None) -> ProxyTrust:
    published, live = trusted.known, trusted.live
    note = law_note(request, law, () if live is None else (live.dataset,))
    return ProxyTrust(
        proxy=trusted.proxy,
        sentence=" ".join(text for text in (trusted.sentence, note) if text),
        caveat=trusted.caveat,
        spearman=None if published is None else published.spearman,
        best_tenth=None if published is None else published.best_tenth,
        models=None if published is None else published.models,
        source="" if published is None else published.source,
        live=None
        if live is None
        else LiveTrust(
            dataset=live.dataset,
            metric=live.metric,
            models=live.models,
            spearman=live.spearman,
            low=live.low,
            high=live.high,
        ),
    )
