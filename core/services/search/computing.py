"""Computes the proposals, costs and scores of a target's next step, without a database session.

A computation takes from milliseconds to many seconds, so it holds no transaction or connection
(`core.services.search.advance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome
from edgefront.core.search.depths import MAX_DEPTHS, Depth, next_depths
from edgefront.core.search.interface import Context, Probabilities, ScoredCandidate, Snapshot
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.services.jobs.resolved import SearchPlan
from edgefront.core.services.quality.scoring import Scored, Scorer, scorer_of
from edgefront.core.services.search.proposing import BEFORE_SEARCH, Proposed
from edgefront.core.services.search.snapshots import DeviceData
from edgefront.core.services.search.supernets import wanted_supernet
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.lifecycle import SupernetRequest
from edgefront.core.store.sql import Document


@dataclass(frozen=True)
class ComputeStep:
    """A computation for a target, with all its inputs."""

    target_id: str
    number: int
    """Number of the generation, or `BEFORE_SEARCH`."""
    plan: SearchPlan
    seed: int
    proxy_data: str | None
    """Digest of the data that the target's scores use; None if unknown."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    generation_id: str | None = None
    """Id of the database row with the snapshot; None for baselines and supernets."""
    most: int | None = None
    """Maximum number of candidates by the budget; None: unlimited. For baselines the maximum number of depths."""
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
    owner: str = ""
    """Owner of the job, because workers take turns between owners."""

    def compute(self, settings: Settings | None = None) -> Computed | SupernetRequest:
        """Computes the step, deterministically. `settings` locate data; None reads them from the environment."""
        if self.describes_supernet is not None:
            return wanted_supernet(self.describes_supernet, self.snapshot, self.owner, settings or Settings())
        note = ""
        if self.number == BEFORE_SEARCH:
            depths = next_depths(self.depths, self.plan.baselines(), self.plan.problem, self.most or MAX_DEPTHS)
            proposed = [Proposed(depth, self.plan.costs(depth), "baseline") for depth in depths]
        else:
            snapshot = self.snapshot
            if self.device_data is not None:
                snapshot = self.device_data.known_to(snapshot, self.plan.protocol)
            offers = [
                ScoredCandidate(genome, Architecture.model_validate(described), proxy)
                for genome, described, proxy in self.candidate_pool
            ]
            answer = self.plan.algorithm.answer(Context(self.seed, self.number, snapshot, offers, self.supernet))
            note = answer.note
            proposed = [
                Proposed(
                    proposal.architecture,
                    self.plan.costs(proposal.architecture),
                    proposal.operator,
                    proposal.genome,
                    proposal.parents,
                    {} if proposal.predicted is None else asdict(proposal.predicted),
                )
                for proposal in answer.proposals[: self.most]
            ]
        scorer = scorer_of(self.plan.job.request, self.proxy_data, settings, self.plan.job.law)
        architectures = [proposal.architecture for proposal in proposed]
        expected = self.plan.job.perplexities(architectures)
        proposed = [
            replace(proposal, predicted={**proposal.predicted, **more})
            for proposal, more in zip(proposed, expected, strict=True)
        ]
        return Computed(tuple(proposed), scorer, scorer.at_once(architectures), note)


@dataclass(frozen=True)
class Computed:
    """Proposals of a step, with their scores."""

    proposed: tuple[Proposed, ...]
    """Proposed architectures; empty if the algorithm proposes nothing."""
    scorer: Scorer
    scores: Mapping[str, Scored] | None
    """Digest → score; None if workers compute the scores."""
    note: str = ""
    """The algorithm's reason for an empty proposal; may be empty."""
