"""What a proxy is, described without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.spaces.architecture import Architecture

Cost = Callable[[Architecture, ProxySettings], int]
"""FLOPs (two for each multiply-accumulate) that one score takes."""


@dataclass(frozen=True)
class Proxy:
    """A score of an architecture. Its code is the module `core.proxies.<name>`, its `score` function.

    `uses` are the settings that its value depends on: others do not change it.
    """

    name: str
    title: str
    source: str
    needs_torch: bool
    higher_is_better: bool
    uses: tuple[str, ...]
    cost: Cost
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
