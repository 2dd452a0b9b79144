"""What a target's next step has to compute: read under the target's lock, computed without a session, stored after.

Asking an algorithm takes from milliseconds to many seconds, and planning, costs and scores come on top of it. None of
that holds a transaction or a connection: `advance` reads a `ComputeStep`, `ComputeStep.compute` takes no session, and
`advance.store` writes the result if the target still waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgefront.core.search.interface import Snapshot
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.services.jobs.plan import SearchPlan
from edgefront.core.services.quality.scoring import Scored, Scorer, scorer_of
from edgefront.core.services.search.proposing import Proposed
from edgefront.core.services.search.supernets import WantedSupernet, wanted_supernet
from edgefront.core.services.settings import Settings

BASELINES = -1
"""Number of the step that proposes a target's baselines; generations count from 0."""


@dataclass(frozen=True)
class ComputeStep:
    """What is to be computed for a target, with all that the result depends on."""

    target_id: str
    number: int
    """The generation, or `BASELINES`."""
    plan: SearchPlan
    seed: int
    proxy_data: str | None
    """Digest of the data that the target's scores are taken on, once it is known."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    generation_id: str | None = None
    """The row in which the snapshot is stored, claimed for whoever computes; None: nothing is claimed."""
    most: int | None = None
    """The budget leaves so many candidates; None: any number."""
    needs_supernet: bool = False
    """The search's supernet is to be described, not a generation."""

    def compute(self, settings: Settings | None = None) -> Computed | WantedSupernet:
        """The same step gives the same result. `settings` say where data is; the environment's if absent."""
        algorithm = self.plan.algorithm
        if self.needs_supernet and isinstance(algorithm, ParSupernet):
            return wanted_supernet(algorithm, self.snapshot, settings or Settings())
        if self.number == BASELINES:
            proposed = [Proposed(one, self.plan.costs(one), "baseline") for one in self.plan.baselines()]
        else:
            proposed = [
                Proposed(one.architecture, self.plan.costs(one.architecture), one.operator, one.genome, one.parents)
                for one in algorithm.ask(self.seed, self.number, self.snapshot)[: self.most]
            ]
        scorer = scorer_of(self.plan.request, self.proxy_data, settings)
        return Computed(tuple(proposed), scorer, scorer.at_once([one.architecture for one in proposed]))


@dataclass(frozen=True)
class Computed:
    """What is to be proposed, with its scores."""

    proposed: tuple[Proposed, ...]
    """Empty: nothing permitted is left."""
    scorer: Scorer
    scores: Mapping[str, Scored] | None
    """Digest → score; None where workers compute them."""
