"""Reliability of a job's proxy: published figures, and Spearman's ρ over the job's trained models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from edgefront.core.architectures.catalogue import spaces
from edgefront.core.schemas.jobs import JobRequest, LiveTrust, ProxyTrust
from edgefront.core.services.quality import laws
from edgefront.core.services.quality import queries as score_queries
from edgefront.core.services.quality.expected import law_note
from edgefront.core.store.tables import Job, Target
from edgefront.core.training.proxies.study import MIN_FOR_INTERVAL, MIN_PAIRS, interval, spearman
from edgefront.core.training.proxies.table import QUALITIES

_LOGS = "LTS's logs of fully trained models (arXiv 2203.02094, microsoft/archai), WikiText-103"
_LEFT_OUT = "LTS's logs of fully trained models (arXiv 2203.02094), WikiText-103; each predicted from the others"
_GOOD = 0.9
"""Lowest ρ over the best tenth of the models at which a proxy needs no warning."""
_PARAMETERS = ("decoder_parameters", "total_parameters")


@dataclass(frozen=True)
class PublishedRanking:
    """Published study of a proxy. `best_tenth`: ρ over the best tenth of the models."""

    space: str
    proxy: str
    spearman: float
    models: int
    source: str
    best_tenth: float | None = None


PUBLISHED: tuple[PublishedRanking, ...] = (
    PublishedRanking("lts-gpt2", "decoder_parameters", 0.967, 200, _LOGS, 0.574),
    PublishedRanking("lts-gpt2", "total_parameters", 0.737, 200, _LOGS, 0.556),
    PublishedRanking("lts-transformer-xl", "decoder_parameters", 0.974, 200, _LOGS, 0.713),
    PublishedRanking("lts-transformer-xl", "total_parameters", 0.261, 200, _LOGS, 0.099),
    PublishedRanking("lts-gpt2", "quality_law", 0.999, 200, _LEFT_OUT, 0.949),
    PublishedRanking("lts-transformer-xl", "quality_law", 0.999, 200, _LEFT_OUT, 0.967),
    PublishedRanking("bert", "decoder_parameters", 0.96, 300, "LTS (arXiv 2203.02094) Appendix J, Figure 18"),
    PublishedRanking("bert", "total_parameters", 0.98, 300, "LTS (arXiv 2203.02094) Appendix J, Figure 18"),
)


def trust_of(session: Session, job: Job, request: JobRequest, target: Target | None = None) -> ProxyTrust:
    """Returns published figures on a job's proxy in the job's space; for a `target`, also ρ of its trained models."""
    trained = [] if target is None else score_queries.trained(session, target.id)
    live = _live(trained)
    space = spaces().get(request.space.name)
    found = trust(request.space.name, request.proxy, "" if space is None else space.caveat, live)
    law = laws.readable_law_of(session, job, request) if request.proxy == "quality_law" else None
    note = law_note(request, law, {score.data for score in trained if live and score.dataset == live.dataset})
    return found.model_copy(update={"sentence": " ".join(text for text in (found.sentence, note) if text)})


def trained_of(session: Session, target_id: str, dataset: str | None = None) -> list[score_queries.Trained]:
    """Returns the newest perplexity of each trained candidate. `alike` is set for those of the largest group with equal
    data set (`dataset` if given), recipe, length and split; of equally large groups, the group evaluated on the test
    split. Trainings that are too short to rank models form a group only if there are no others.
    """
    scores = [score for score in score_queries.trained(session, target_id) if score.metric == "perplexity"]
    groups: dict[tuple[str, ...], dict[str, score_queries.Trained]] = {}
    for score in scores:
        if dataset in (None, score.dataset):
            key = score.dataset, score.recipe, score.split, score.comparability_key
            groups.setdefault(key, {}).setdefault(score.candidate_id, score._replace(alike=True))

    def order(group: tuple[str, ...]) -> tuple[object, ...]:
        short = any(score.too_short for score in groups[group].values())
        return not short, len(groups[group]), group[2] == "test", group

    found = groups[max(groups, key=order)] if groups else {}
    for score in sorted(scores, key=lambda score: (score.too_short, score.split != "test")):
        found.setdefault(score.candidate_id, score)
    return list(found.values())


def _live(trained: Iterable[score_queries.Trained]) -> LiveTrust | None:
    """Returns ρ over the largest group of models with equal training and evaluation, by each model's newest score."""
    groups: dict[tuple[str, ...], dict[str, score_queries.Trained]] = {}
    for score in trained:
        if score.metric in QUALITIES and not score.too_short:
            key = score.dataset, score.split, score.metric, score.recipe, score.comparability_key
            groups.setdefault(key, {}).setdefault(score.digest, score)
    for (dataset, _, metric, *_), models in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        sign = 1.0 if QUALITIES[metric] else -1.0
        proxies, values = zip(*((model.proxy, sign * model.value) for model in models.values()), strict=True)
        live = live_of(dataset, metric, proxies, values)
        if live is not None:
            return live
    return None


def trust(space: str, proxy: str, caveat: str = "", live: LiveTrust | None = None) -> ProxyTrust:
    """Returns published figures on a proxy in a space. `caveat` is the space's warning about parameter counts."""
    if proxy == "published_score":
        return ProxyTrust(
            proxy=proxy, sentence="Scores are published benchmark results of the published weights.", live=live
        )
    published = next((entry for entry in PUBLISHED if entry.space == space and entry.proxy == proxy), None)
    warned = caveat if proxy in _PARAMETERS else ""
    said = [_live_sentence(proxy, live)] if live is not None else []
    if warned:
        said.append(warned)
    elif published is not None:
        said.append(_published_sentence(published))
    elif live is None:
        said.append(f"How well {_name(proxy)} {_verb(proxy)} models of this space is not known: train some of them.")
    return ProxyTrust(
        proxy=proxy,
        sentence=" ".join(said),
        caveat=warned,
        spearman=None if published is None else published.spearman,
        best_tenth=None if published is None else published.best_tenth,
        models=None if published is None else published.models,
        source="" if published is None else published.source,
        live=live,
    )


def live_of(dataset: str, metric: str, proxies: Sequence[float], quality: Sequence[float]) -> LiveTrust | None:
    """Returns Spearman's ρ of trained models' proxies and qualities (higher is better); None for fewer than three."""
    if len(proxies) < MIN_PAIRS:
        return None
    rho = spearman(proxies, quality)
    if rho != rho:  # NaN: all values are equal
        return None
    low_high = interval(proxies, quality)
    low, high = low_high if low_high is not None else (None, None)
    return LiveTrust(dataset=dataset, metric=metric, models=len(proxies), spearman=rho, low=low, high=high)


def _published_sentence(published: PublishedRanking) -> str:
    text = (
        f"{_begin(published.proxy)} ranked {published.models} fully trained models of this space with Spearman's ρ "
        f"of {_two(published.spearman)}"
    )
    if published.best_tenth is not None:
        if published.best_tenth >= _GOOD:
            text += f", and the best tenth of them with {_two(published.best_tenth)}"
        else:
            only = "only " if published.best_tenth < published.spearman else ""
            text += (
                f", but the best tenth of them with {only}{_two(published.best_tenth)}: train those you choose between"
            )
    return f"{text} ({published.source})."


def _live_sentence(proxy: str, live: LiveTrust) -> str:
    between = f" (no interval: fewer than {MIN_FOR_INTERVAL} models)"
    if live.low is not None and live.high is not None:
        between = f" (95 %: {live.low:.2f} to {live.high:.2f})"
    return (
        f"{_begin(proxy)} {_verb(proxy)} the {live.models} models of this job that were trained on "
        f"{live.dataset} with Spearman's ρ of {live.spearman:.2f}{between} by {live.metric.replace('_', ' ')}."
    )


def _two(value: float) -> str:
    """Formats a value with two decimals; never 1.00 for a value below 1."""
    return f"{min(value, 0.99) if value < 1 else value:.2f}"


def _name(proxy: str) -> str:
    """Name of the proxy inside a sentence."""
    return proxy.replace("_", " ") if proxy in _PARAMETERS else proxy


def _begin(proxy: str) -> str:
    """Name of the proxy at the beginning of a sentence; identifiers are not capitalised."""
    return _name(proxy).capitalize() if proxy in _PARAMETERS else proxy


def _verb(proxy: str) -> str:
    return "rank" if proxy in _PARAMETERS else "ranks"
