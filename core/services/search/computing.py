"""What a target's next step computes without a database session: proposals with costs and scores.

A computation takes from milliseconds to many seconds, so it holds no transaction or connection
(`core.services.search.advance`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome
from edgefront.core.search.depths import MAX_DEPTHS, Depth, next_depths
from edgefront.core.search.interface import Context, Probabilities, Proposal, ScoredCandidate, Snapshot
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.services.jobs.resolved import SearchPlan
from edgefront.core.services.search.proposing import BEFORE_SEARCH, Proposed
from edgefront.core.services.search.snapshots import DeviceData
from edgefront.core.services.search.supernets import wanted_supernet
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.lifecycle import SupernetRequest
from edgefront.core.store.sql import Document

STORE_BATCH = 100
"""Maximum number of proposals that one transaction stores. The transaction locks the target for less than a second."""
NO_TIME = "The remaining time is for further launches of the answer."


@dataclass(frozen=True)
class ComputeStep:
    """A computation for a target, with all its inputs."""

    target_id: str
    number: int
    """Number of the generation, or `BEFORE_SEARCH`."""
    plan: SearchPlan
    seed: int
    snapshot: Snapshot = field(default_factory=Snapshot)
    generation_id: str | None = None
    """Id of the database row with the snapshot; None for baselines and supernets."""
    most: int | None = None
    """Maximum number of candidates by the budget; None: unlimited. For baselines the maximum number of depths."""
    in_time: int | None = None
    """Number of launches of average models in the rest of the time, or of baselines; None: unlimited."""
    mean_flops: float | None = None
    """Mean FLOPs of the models measured so far; None if unknown."""
    device_data: DeviceData | None = None
    """Other data of the device; None if the algorithm needs no such data."""
    depths: Sequence[Depth] = ()
    """Depth and results of each measured baseline."""
    candidate_pool: Sequence[tuple[Genome, Document, float]] = ()
    """Genome, architecture and proxy of the job's candidates, for a target that was added later."""
    supernet: Sequence[Probabilities] = ()
    """The search supernet's block probabilities for each seed."""
    describes_supernet: ParSupernet | None = None
    """If set, the step computes the training request of this search's supernet instead of proposals."""

    def compute(self, settings: Settings | None = None) -> Computed:
        """Computes the step, deterministically. `settings` locate data; None reads them from the environment."""
        if self.describes_supernet is not None:
            asked = wanted_supernet(self.describes_supernet, self.snapshot, settings or Settings())
            return Computed(supernet=asked)
        if self.number == BEFORE_SEARCH:
            depths = next_depths(self.depths, self.plan.baselines(), self.plan.problem, self.most or MAX_DEPTHS)
            return Computed(self._with_figures([Proposal({}, depth, "baseline") for depth in depths[: self.in_time]]))
        snapshot = self.snapshot
        if self.device_data is not None:
            snapshot = self.device_data.known_to(snapshot, self.plan.protocol)
        offers = [
            ScoredCandidate(genome, Architecture.model_validate(described), proxy)
            for genome, described, proxy in self.candidate_pool
        ]
        answer = self.plan.algorithm.answer(Context(self.seed, self.number, snapshot, offers, self.supernet))
        proposed = self._with_figures(answer.proposals[: self.most])
        fitting = self._fitting(proposed)
        if not fitting and self.number == 0 and snapshot.incumbent is None:
            fitting = tuple(sorted(proposed, key=lambda each: each.costs.flops)[:1])
        return Computed(fitting, answer.note if fitting or not proposed else NO_TIME)

    def _fitting(self, proposed: tuple[Proposed, ...]) -> tuple[Proposed, ...]:
        """Returns the proposals that can be measured in time, by their FLOPs."""
        if self.in_time is None:
            return proposed
        left, fitting = float(self.in_time), list[Proposed]()
        for each in proposed:
            launches = max(1.0, each.costs.flops / (self.mean_flops or math.inf))
            if 2 * launches - 1 <= left:  # the answer is launched again
                fitting.append(each)
                left -= launches
        return tuple(fitting[:STORE_BATCH])

    def _with_figures(self, proposals: Sequence[Proposal]) -> tuple[Proposed, ...]:
        """Returns the proposals with costs, scores and predicted perplexities."""
        expected = self.plan.job.perplexities([proposal.architecture for proposal in proposals])
        return tuple(
            Proposed(
                proposal,
                self.plan.costs(proposal.architecture),
                self.plan.score(proposal.architecture),
                ({} if proposal.predicted is None else asdict(proposal.predicted)) | perplexity,
            )
            for proposal, perplexity in zip(proposals, expected, strict=True)
        )


@dataclass(frozen=True)
class Step:
    """What follows a step of a target: by default nothing, because the target waits for devices or has ended."""

    more: bool = False
    """Whether another step is possible at once."""
    compute: ComputeStep | None = None
    """The step that must be computed and stored first."""


WAIT, MORE = Step(), Step(more=True)


@dataclass(frozen=True)
class Computed:
    """Result of a computed step."""

    proposed: tuple[Proposed, ...] = ()
    """Proposed architectures; empty if the algorithm proposes nothing."""
    note: str = ""
    """The algorithm's reason for an empty proposal; may be empty."""
    supernet: SupernetRequest | None = None
    """The training that the search needs before it proposes anything."""
