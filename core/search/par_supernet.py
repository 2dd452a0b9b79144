"""PAR's differentiable search (Mandava et al. 2020, §2): measures the architectures that a supernet found.

1. With a `latency_weight`: measure four calibration stacks. Least squares give the latency of one block on the target,
   ms = constant + attention · n_s + feed-forward · n_f with n_s and n_f blocks of each kind. FBNet's lookup table
   (Wu et al. 2019, §3.2) is the same additive model. The model's error on devices is a few percent.
2. A worker trains one supernet for the target (a job's search on one device; `core.training.supernet`).
3. Measure, in this order, the most probable stack of each seed, the stack of PAR's design rules at this depth, and
   samples of the final probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictFloat, StrictInt

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.embeddings_and_head import RelativePositions
from edgefront.core.architectures.pattern import expand, par_pattern
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.search.interface import (
    Algorithm,
    Answer,
    Context,
    Evaluated,
    Need,
    Probabilities,
    Snapshot,
    generator,
)
from edgefront.core.search.problem import DEFAULT_PROBLEM, Problem
from edgefront.core.search.proposals import Proposals
from edgefront.core.search.supernet_settings import (
    BLOCK_TYPES,
    LETTERS,
    LatencyTerm,
    SearchSettings,
    SupernetSettings,
)

PROBE, FOUND, RULE, SAMPLED = "probe", "supernet", "par_rule", "supernet_sample"


class ParSupernetSettings(SearchSettings):
    """Settings of the supernet's search and training, and the numbers of stacks to measure.

    The space determines the supernet's shape: the space's maximum number of layers, and the stock model's widths.
    """

    dataset: Annotated[
        Annotated[str, Field(min_length=1, max_length=200)] | None,
        Field(description="Prepared data set of the service; the recipe's own if absent."),
    ] = None
    recipe: Annotated[str, Field(max_length=64, description="Recipe of the supernet's weights.")] = "quick"
    overrides: Annotated[dict[str, Any], Field(max_length=64, description="Fields of the recipe to override.")] = Field(
        default_factory=dict
    )
    steps: Annotated[
        Annotated[StrictInt, Field(ge=4, le=1 << 40)] | None,
        Field(description="Training steps of each seed's search; the recipe's if absent."),
    ] = None
    hours: Annotated[
        Annotated[StrictFloat, Field(gt=0, le=1e6, allow_inf_nan=False)] | None,
        Field(description="Maximum hours of all searches together."),
    ] = None
    device: Annotated[
        Literal["cpu", "cuda"] | None, Field(description="Device of the training; the service's choice if absent.")
    ] = None
    samples: Annotated[
        StrictInt, Field(ge=0, le=10_000, description="Further stacks, drawn from the final probabilities.")
    ] = 20
    rule_p: Annotated[
        Annotated[StrictInt, Field(ge=1, le=512)] | None,
        Field(description="p of the PAR rule, whose stack is measured too; null: no such stack."),
    ] = 5
    latency_weight: Annotated[
        Annotated[StrictFloat, Field(gt=0, le=1e6, allow_inf_nan=False)] | None,
        Field(description="Weight of latency in the loss: nats for the latency of a stack of equal probabilities."),
    ] = None
    latency_target_ms: Annotated[
        Annotated[StrictFloat, Field(gt=0, le=1e9, allow_inf_nan=False)] | None,
        Field(description="Latency of the blocks below which there is no penalty."),
    ] = None


@dataclass(frozen=True)
class _Shape:
    """The widths, positions and norm that all stacks of a search share."""

    layers: int
    stock: Architecture
    attention: Attention
    feed_forward: FeedForward
    positions: RelativePositions
    norm: Literal["pre", "post"]


class ParSupernet(Algorithm):
    """Algorithm that proposes the stacks that a supernet found."""

    def __init__(
        self,
        settings: ParSupernetSettings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = DEFAULT_PROBLEM,
    ) -> None:
        self.settings = settings
        self._space, self._accept = space, accept
        self._shape = _shape(space)
        self._kinds = space.gene("kind").values

    @property
    def note(self) -> str:
        steps = f"{self.settings.steps:,}" if self.settings.steps else f"recipe {self.settings.recipe}'s"
        return (
            f"The training of the supernet is not in the time: {steps} steps for each of {self.settings.seeds} seeds."
        )

    @property
    def generations(self) -> int | None:
        return self._first + 1

    @property
    def _first(self) -> int:
        """Number of the generation that proposes the supernet's stacks."""
        return 0 if self.settings.latency_weight is None else 1

    def needs(self, generation: int) -> frozenset[Need]:
        return frozenset({Need.SUPERNET} if generation == self._first else ())

    def check(self, probabilities: Sequence[Probabilities]) -> None:
        """Raises `InvalidInput` if a seed's final probabilities do not match the space's layers and block types."""
        layers = self._shape.layers
        for rows in probabilities:
            if len(rows) != layers or any(len(row) != len(BLOCK_TYPES) for row in rows):
                raise InvalidInput(
                    f"the supernet's probabilities must have {layers} rows of {len(BLOCK_TYPES)} numbers", field="found"
                )

    def supernet(self, snapshot: Snapshot) -> SupernetSettings:
        """Settings of the supernet: the space's shape, this search's settings, and the measured latencies of blocks.

        Raises `InvalidInput` if too few calibration stacks could be measured.
        """
        shape, embedding = self._shape, self._shape.stock.embedding
        search = {name: getattr(self.settings, name) for name in SearchSettings.model_fields}
        return SupernetSettings(
            **search,
            layers=shape.layers,
            choices=tuple(choice for choice in BLOCK_TYPES if choice in self._kinds),
            d_model=shape.stock.d_model,
            n_head=shape.attention.n_head,
            d_head=shape.attention.d_head,
            d_inner=shape.feed_forward.d_inner,
            norm=shape.norm,
            activation=shape.stock.activation,
            clamp=shape.positions.clamp,
            cutoffs=embedding.cutoffs,
            div=embedding.div,
            latency=self._latency(snapshot),
        )

    def generation_size(self, generation: int) -> int:
        if generation < self._first:
            return len(self._probes())
        settings = self.settings
        return settings.seeds + settings.samples + (settings.rule_p is not None)

    def answer(self, context: Context) -> Answer:
        """Proposes first the calibration stacks, then the supernet's stacks, then nothing.

        A stack with too little attention for the space gets attention in the layers where the change costs the least
        probability. Raises ValueError if the context lacks the supernet's result.
        """
        generation, probabilities = context.generation, context.supernet
        rng = generator(context.seed, generation, "par-supernet")
        proposals = Proposals(self._space, self._accept, context.snapshot, rng)
        if generation < self._first:
            for letters in self._probes():
                self._offer(proposals, letters, PROBE)
            return Answer(proposals.made)
        if generation > self._first:
            return Answer(())
        if not probabilities:
            raise ValueError("the context of par-supernet lacks the supernet's result")
        for rows in probabilities:
            likeliest = "".join(LETTERS[int(np.argmax(row))] for row in rows)
            self._offer(proposals, self._permitted(likeliest, rows), FOUND)
        if self.settings.rule_p is not None:
            self._offer(proposals, self._rule(self.settings.rule_p), RULE)
        drawn = 0

        def samples(count: int) -> Iterator[tuple[Genome, tuple[str, ...]]]:
            nonlocal drawn
            for _ in range(count):
                rows = probabilities[drawn % len(probabilities)]
                drawn += 1
                letters = "".join(LETTERS[int(rng.choice(len(BLOCK_TYPES), p=_normalised(row)))] for row in rows)
                yield self._genome(self._permitted(letters, rows)), ()

        proposals.make(self.settings.samples, SAMPLED, samples)
        return Answer(proposals.made)

    def _offer(self, proposals: Proposals, letters: str | None, operator: str) -> None:
        if letters is not None and self._is_permitted(letters):
            proposals.add(self._genome(letters), operator)

    def _rule(self, p: int) -> str | None:
        return expand(par_pattern(self._shape.layers, p)) if self._shape.layers > 1 else None

    # Stacks of the space ------------------------------------------------------------------------------------------

    def _permitted(self, letters: str, rows: Probabilities) -> str:
        """Returns the letters (one for each layer), with attention added until the space permits the stack."""
        chosen = list(letters)
        others = [layer for layer, letter in enumerate(chosen) if letter != "s"]
        others.sort(key=lambda layer: _log(rows[layer][LETTERS.index(chosen[layer])]) - _log(rows[layer][0]))
        for layer in others:
            if self._is_permitted("".join(chosen)):
                break
            chosen[layer] = "s"
        return "".join(chosen)

    def _is_permitted(self, letters: str) -> bool:
        if not letters.strip("i"):
            return False
        return self._space.contains(self._space.architecture(self._genome(letters)))

    def _genome(self, letters: str) -> Genome:
        """Returns the genome of the stack with these letters, padded to the space's number of layers."""
        space, shape = self._space, self._shape
        depths = sorted(int(value) for value in space.gene("n_block").values)
        genome: Genome = {
            "n_block": next((depth for depth in depths if depth >= len(letters)), depths[-1]),
            "d_model": shape.stock.d_model,
            "n_head": shape.attention.n_head,
            "d_inner": shape.feed_forward.d_inner,
            "div": shape.stock.embedding.div,
            "min_attention_percent": min(space.gene("min_attention_percent").values),
        }
        kinds = [BLOCK_TYPES[LETTERS.index(letter)] for letter in letters]
        rest = "identity" if "identity" in self._kinds else self._kinds[0]
        genome["kind"] = kinds + [rest] * (shape.layers - len(kinds))
        return genome

    # Latency ------------------------------------------------------------------------------------------------------

    def _probes(self) -> tuple[str, ...]:
        """Letters of the calibration stacks. The stacks' latencies determine the latency of a block of each kind."""
        layers = self._shape.layers
        patterns = ["s" * layers, self._rule(5) or "s", "sf" * (layers // 2), "s" * max(1, layers // 2)]
        return tuple(dict.fromkeys(letters for letters in patterns if letters and self._is_permitted(letters)))

    def _latency(self, snapshot: Snapshot) -> LatencyTerm | None:
        if self.settings.latency_weight is None:
            return None
        attention_ms, feed_forward_ms = block_latencies(snapshot.results)
        return LatencyTerm(
            attention_ms=attention_ms,
            feed_forward_ms=feed_forward_ms,
            weight=self.settings.latency_weight,
            target_ms=self.settings.latency_target_ms,
        )


def block_latencies(results: Sequence[Evaluated]) -> tuple[float, float]:
    """Pair: milliseconds of one attention block and of one feed-forward block, by least squares over measured stacks.

    Raises `InvalidInput` if the linear system is rank-deficient, or if noise makes a latency zero or negative.
    """
    timed = []
    for r in results:
        if r.latency_ms is not None:
            kinds = r.genome["kind"][: r.genome["n_block"]]
            timed.append((r.digest, kinds.count("attention"), kinds.count("feed_forward"), float(r.latency_ms)))
    timed.sort()
    table = np.array([(1.0, attention, feed_forward) for _, attention, feed_forward, _ in timed]).reshape(-1, 3)
    if np.linalg.matrix_rank(table) < table.shape[1]:
        raise InvalidInput(
            f"the {len(timed)} measured stacks do not determine the latency of a block. The latency term needs "
            "calibration stacks that run on the target",
            field="settings.latency_weight",
            allowed="null, or a target on which the deepest stacks of attention can be measured",
        )
    solved, *_ = np.linalg.lstsq(table, np.array([ms for *_, ms in timed]), rcond=None)
    attention_ms, feed_forward_ms = (round(float(ms), 6) for ms in solved[1:])
    if min(attention_ms, feed_forward_ms) <= 0:
        raise InvalidInput(
            f"the {len(timed)} measured stacks give {attention_ms:g} ms for an attention block and "
            f"{feed_forward_ms:g} ms for a feed-forward block, but both must be positive. Other load on the device, or "
            "the rest of the model, hides the latency of blocks",
            field="settings.latency_weight",
            allowed="null, or a device without other load, with logits none in the protocol",
        )
    return attention_ms, feed_forward_ms


def _shape(space: SearchSpace) -> _Shape:
    """Returns the shape of the space's deepest stack. Raises `InvalidInput` if no supernet can represent the space."""
    if {"n_block", "min_attention_percent", "div", "kind"} <= set(space.genes()):
        kinds = set(space.gene("kind").values)
        shared = not any(gene.per_layer for gene in space.gene_list if gene.name != "kind")
        (stock,) = space.baselines((1,))
        positions = stock.positions
        attention, feed_forward = (
            next((block for block in stock.blocks if isinstance(block, kind)), None)
            for kind in (Attention, FeedForward)
        )
        fits = stock.causal and isinstance(positions, RelativePositions) and positions.shared and shared
        if fits and "attention" in kinds and len(kinds) > 1 and kinds <= set(BLOCK_TYPES):
            assert isinstance(attention, Attention)
            assert isinstance(feed_forward, FeedForward)
            assert isinstance(positions, RelativePositions)
            if stock.norm == "pre" or stock.norm == "post":
                return _Shape(space.depth, stock, attention, feed_forward, positions, stock.norm)
    raise InvalidInput(
        f"par-supernet chooses between attention and other blocks of one shape, which {space.name} does not permit",
        field="name",
        value="par-supernet",
        allowed="the space par-32, with attention and at least one other kind",
    )


def _normalised(row: Sequence[float]) -> Any:
    values = np.asarray(row, dtype=np.float64)
    return values / values.sum()


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-12))
