"""What a proxy is, described without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.spaces.architecture import Architecture

Cost = Callable[[Architecture, ProxySettings], int]
"""FLOPs (two for each multiply-accumulate) that one score takes."""


def _nothing(*_: object) -> int:
    return 0


@dataclass(frozen=True)
class Proxy:
    """A score of an architecture (`core.proxies.score`).

    `uses` are the settings that its value depends on: others do not change it.
    """

    name: str
    title: str
    source: str
    needs_torch: bool = True
    higher_is_better: bool = True
    uses: tuple[str, ...] = ("rows", "length", "data")
    cost: Cost = _nothing
    needs_data: bool = False
    """It has no value without a prepared data set."""
    logarithmic: bool = False
    """Its score is a logarithm: equal differences of it are equal ratios of quality."""

    def oriented(self, value: float) -> float:
        """The score as an objective: higher is better."""
        return value if self.higher_is_better else -value

    def relevant(self, settings: ProxySettings) -> ProxySettings:
        """The settings with everything that does not concern this proxy at its default."""
        return ProxySettings(**{name: getattr(settings, name) for name in self.uses})


def scorable(architecture: Architecture) -> Architecture:
    """The architecture with an output over its vocabulary, which the losses of proxies need.

    An encoder that is measured with another output (BERT's pooler) is scored as the masked language model that it is
    trained as, a decoder without one as a language model.
    """
    if architecture.output.kind in ("tokens", "masked_tokens"):
        return architecture
    kind = "tokens" if architecture.causal else "masked_tokens"
    return Architecture.parse({**architecture.canonical, "output": {"kind": kind}})
