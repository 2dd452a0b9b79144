"""A device that costs nothing to measure on: a small GPU as LTS (arXiv 2203.02094) measured one.

Latency is additive over layers, which is nearly true of measured ones (a linear model errs by 0.3 to 6 % on the paper's
frontiers): launches of kernels, heads, and arithmetic at a fixed rate. Memory is the paper's own figure, the sum of
what the layers allocate, without weights. With weights in it memory all but follows the proxy, nearly every
architecture is on the frontier, and no algorithm does much better than another (docs/decisions/0003-search.md).

This device was chosen knowing that: with true peak memory, and with latencies fitted to the paper's ARM CPU, `lts`
did not beat random search. Tests on it show that it uses a pull between the objectives where there is one, not that
every device has one.
"""

from __future__ import annotations

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward, Srupp
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.search.interface import Algorithm, Evaluated, Proposal, Snapshot, objectives
from edgefront.core.search.pareto.frontier import hypervolume, nondominated

SEQUENCE = 192
LAUNCH_MS = 0.1
HEAD_MS = 0.03
PRODUCTS_PER_MS = 4e9


def latency_ms(architecture: Architecture) -> float:
    """A launch and the products of each block, two where there is a recurrence, and each head's share."""
    width, total = architecture.d_model, LAUNCH_MS
    for block in architecture.blocks:
        if isinstance(block, Attention):
            total += LAUNCH_MS + HEAD_MS * block.n_head + SEQUENCE * 4 * width * width / PRODUCTS_PER_MS
        elif isinstance(block, FeedForward):
            total += LAUNCH_MS + SEQUENCE * 2 * width * block.d_inner / PRODUCTS_PER_MS
        elif isinstance(block, Srupp):  # a second launch for the recurrence
            products = 4 * width * block.d_attn
            if block.attends != "none":
                total += HEAD_MS * block.n_head
                products += 2 * block.d_attn**2
            total += 2 * LAUNCH_MS + SEQUENCE * products / PRODUCTS_PER_MS
    return total


def memory_bytes(architecture: Architecture) -> int:
    """Scores and weights of each head, queries, keys, values and result; inner activations twice, and the result.

    Of SRU++ the recurrence's three inputs as well, and the projection twice.
    """
    width, floats = architecture.d_model, 0
    for block in architecture.blocks:
        if isinstance(block, Attention):
            floats += SEQUENCE * (2 * SEQUENCE * block.n_head + 4 * width)
        elif isinstance(block, FeedForward):
            floats += SEQUENCE * (2 * block.d_inner + width)
        elif isinstance(block, Srupp):
            floats += SEQUENCE * (4 * width + 2 * block.d_attn)
            if block.attends != "none":
                floats += SEQUENCE * (2 * SEQUENCE * block.n_head + 3 * block.d_attn)
    return 4 * floats


def measured(proposal: Proposal, number: int, generation: int, *, limit_ms: float | None = None) -> Evaluated:
    """The proposal as its measurement would be stored."""
    latency = latency_ms(proposal.architecture)
    return Evaluated(
        id=f"cnd_{number:05d}",
        genome=proposal.genome,
        digest=proposal.architecture.digest,
        state="out_of_bounds" if limit_ms is not None and latency > limit_ms else "measured",
        proxy=float(costs(proposal.architecture).decoder_parameters),
        latency_ms=latency,
        memory_bytes=memory_bytes(proposal.architecture),
        generation=generation,
        parents=proposal.parents,
    )


def search(algorithm: Algorithm, seed: int, candidates: int, *, limit_ms: float | None = None) -> Snapshot:
    """Runs the search until so many candidates are measured or its generations or space end."""
    results: list[Evaluated] = []
    generation = 0
    while len(results) < candidates and generation != algorithm.generations:
        proposals = algorithm.ask(seed, generation, Snapshot(tuple(results)))
        if not proposals:
            break
        for proposal in proposals[: candidates - len(results)]:
            results.append(measured(proposal, len(results), generation, limit_ms=limit_ms))
        generation += 1
    return Snapshot(tuple(results))


def reference(space: SearchSpace) -> dict[str, float]:
    """The reference point that this space's baselines fix on this device."""
    scaled = space.baselines()
    return {
        "proxy": 0.0,
        "proxy_scale": float(max(costs(model).decoder_parameters for model in scaled)),
        "latency_ms": 1.1 * max(latency_ms(model) for model in scaled),
        "memory_bytes": 1.1 * max(memory_bytes(model) for model in scaled),
    }


def volume(snapshot: Snapshot, space: SearchSpace) -> float:
    """Hypervolume of the snapshot's frontier against the baselines' reference."""
    return hypervolume(objectives(snapshot.in_bounds()), reference(space))


def frontier_ids(snapshot: Snapshot) -> set[str]:
    results = snapshot.in_bounds()
    return {result.id for result, stays in zip(results, nondominated(objectives(results)), strict=True) if stays}
