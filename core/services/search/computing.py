"""The computation of a target's next step: read under its lock, computed without a session, then stored.

Calling an algorithm takes from milliseconds to many seconds, in addition to planning, costs and scores. No transaction
or connection is held during that: `advance` reads a `ComputeStep`, `ComputeStep.compute` takes no session, and
`advance.store` writes the result if the target still waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome
from edgefront.core.search.depths import MOST_DEPTHS, Depth, next_depths
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
    """A computation for a target, with all inputs that the result depends on."""

    target_id: str
    number: int
    """The generation, or `BEFORE_SEARCH`."""
    plan: SearchPlan
    seed: int
    proxy_data: str | None
    """Digest of the data that the target's scores use, once it is known."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    generation_id: str | None = None
    """The row in which the snapshot is stored; None: of baselines, and of supernets."""
    most: int | None = None
    """Number of candidates that the budget leaves; None: unlimited. Of baselines how many depths there are to be."""
    device_data: DeviceData | None = None
    """What else is known of the device; None if the algorithm does not learn from it."""
    depths: Sequence[Depth] = ()
    """The baselines that were measured before."""
    candidate_pool: Sequence[tuple[Genome, Document, float]] = ()
    """Genome, architecture and proxy of the job's candidates, where the target was added later and chooses among them.
    """
    supernet: Sequence[Probabilities] = ()
    """What the search's supernet found, of each seed."""
    describes_supernet: ParSupernet | None = None
    """The search whose supernet is described instead of proposing a generation."""
    owner: str = ""
    """Owner of the job: a worker computes steps of different owners in turn."""

    def compute(self, settings: Settings | None = None) -> Computed | SupernetRequest:
        """Deterministic: the same step gives the same result. `settings` locate data; by default they are read from the
        environment.
        """
        if self.describes_supernet is not None:
            return wanted_supernet(self.describes_supernet, self.snapshot, self.owner, settings or Settings())
        note = ""
        if self.number == BEFORE_SEARCH:
            depths = next_depths(self.depths, self.plan.baselines(), self.plan.problem, self.most or MOST_DEPTHS)
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
    """The proposals of a step, with their scores."""

    proposed: tuple[Proposed, ...]
    """Empty if no permitted architecture is left."""
    scorer: Scorer
    scores: Mapping[str, Scored] | None
    """Digest → score; None if workers compute them."""
    note: str = ""
    """Why nothing is proposed, if the algorithm says so."""
