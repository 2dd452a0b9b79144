"""How far a proxy can be trusted in a search space: what is published, and what this service has trained itself.

Numbers are Spearman's ρ between the proxy and quality over models that were trained to the end, higher being better on
both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgefront.core.proxies.correlation import MIN_FOR_INTERVAL, MIN_PAIRS, interval, spearman

_LOGS = "LTS's logs of fully trained models (arXiv 2203.02094, microsoft/archai), WikiText-103"
_LEFT_OUT = "LTS's logs of fully trained models (arXiv 2203.02094), WikiText-103; each predicted from the others"
_FIGURE_5 = "LTS (arXiv 2203.02094) Figure 5, WikiText-103"
_GOOD = 0.9
"""ρ over the best tenth from which a proxy needs no warning."""
_PARAMETERS = ("decoder_parameters", "total_parameters")


@dataclass(frozen=True)
class Known:
    """A published study. `best_tenth` is ρ over the best tenth of the models; `at_least`: ρ is a lower bound."""

    space: str
    proxy: str
    spearman: float
    models: int
    source: str
    best_tenth: float | None = None
    at_least: bool = False


KNOWN: tuple[Known, ...] = (
    Known("lts-gpt2", "decoder_parameters", 0.967, 200, _LOGS, 0.574),
    Known("lts-gpt2", "total_parameters", 0.737, 200, _LOGS, 0.556),
    Known("lts-transformer-xl", "decoder_parameters", 0.974, 200, _LOGS, 0.713),
    Known("lts-transformer-xl", "total_parameters", 0.261, 200, _LOGS, 0.099),
    Known("lts-gpt2", "quality_law", 0.999, 200, _LEFT_OUT, 0.952),
    Known("lts-transformer-xl", "quality_law", 0.999, 200, _LEFT_OUT, 0.967),
    # "Even the lowest performing relu_log_det has > 0.8": the figure's other values are not printed.
    *(
        Known("lts-transformer-xl", proxy, 0.8, 200, _FIGURE_5, at_least=True)
        for proxy in ("grad_norm", "snip", "grasp", "fisher", "synflow", "jacob_cov", "relu_log_det")
    ),
    Known(
        "lts-transformer-xl",
        "partial_training",
        0.92,
        1200,
        "LTS (arXiv 2203.02094) Table 1: 500 of 40,000 steps on WikiText-103",
    ),
    Known("bert", "decoder_parameters", 0.96, 300, "LTS (arXiv 2203.02094) Appendix J, Figure 18"),
    Known("bert", "total_parameters", 0.98, 300, "LTS (arXiv 2203.02094) Appendix J, Figure 18"),
)


@dataclass(frozen=True)
class Live:
    """ρ over models of one job that were trained in the same way, with its 95 % interval where there are enough."""

    dataset: str
    metric: str
    models: int
    spearman: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Trust:
    """How reliable a proxy is in a space; `sentence` summarises it for people."""

    proxy: str
    known: Known | None
    live: Live | None
    caveat: str
    """Why the proxy is known to mislead there; empty where that is not known."""
    sentence: str


def trust(space: str, proxy: str, caveat: str = "", live: Live | None = None) -> Trust:
    """What is known of a proxy in the space of this name.

    `caveat` is the space's, which is about numbers of parameters: other proxies have none.
    """
    if proxy == "published_score":
        return Trust(proxy, None, live, "", "Scores are as published, of the weights as they were published.")
    published = next((entry for entry in KNOWN if entry.space == space and entry.proxy == proxy), None)
    warned = caveat if proxy in _PARAMETERS else ""
    said = [_live_sentence(proxy, live)] if live is not None else []
    if warned:
        said.append(warned)
    elif published is not None:
        said.append(_known_sentence(published))
    elif live is None:
        said.append(f"How well {_name(proxy)} {_verb(proxy)} models of this space is not known: train some of them.")
    return Trust(proxy, published, live, warned, " ".join(said))


def live_of(dataset: str, metric: str, proxies: Sequence[float], quality: Sequence[float]) -> Live | None:
    """ρ of the proxies with the quality of trained models (higher is better in both); None below three of them."""
    if len(proxies) < MIN_PAIRS:
        return None
    rho = spearman(proxies, quality)
    if rho != rho:  # all alike
        return None
    low_high = interval(proxies, quality)
    low, high = low_high if low_high is not None else (None, None)
    return Live(dataset, metric, len(proxies), rho, low, high)


def _known_sentence(published: Known) -> str:
    more = "more than " if published.at_least else ""
    text = (
        f"{_begin(published.proxy)} ranked {published.models} fully trained models of this space with Spearman's ρ "
        f"of {more}{_two(published.spearman)}"
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


def _live_sentence(proxy: str, live: Live) -> str:
    between = f" (no interval: fewer than {MIN_FOR_INTERVAL} models)"
    if live.low is not None and live.high is not None:
        between = f" (95 %: {live.low:.2f} to {live.high:.2f})"
    return (
        f"{_begin(proxy)} {_verb(proxy)} the {live.models} models of this job that were trained on "
        f"{live.dataset} with Spearman's ρ of {live.spearman:.2f}{between} by {live.metric.replace('_', ' ')}."
    )


def _two(value: float) -> str:
    """Formats a value with two digits; it is never 1.00 where some pairs are in the other order."""
    return f"{min(value, 0.99) if value < 1 else value:.2f}"


def _name(proxy: str) -> str:
    """Name of the proxy inside a sentence."""
    return proxy.replace("_", " ") if proxy in _PARAMETERS else proxy


def _begin(proxy: str) -> str:
    """Name of the proxy at the beginning of a sentence; names that are code stay as they are."""
    return _name(proxy).capitalize() if proxy in _PARAMETERS else proxy


def _verb(proxy: str) -> str:
    return "rank" if proxy in _PARAMETERS else "ranks"
