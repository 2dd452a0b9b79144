"""Settings (shape, two phases, latency term) and results of a supernet's search. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, ValidationError, model_validator

from edgefront.core.architectures.architecture import Activation, Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import whole_file
from edgefront.core.common.validation import invalid_input

BlockType = Literal["attention", "feed_forward", "identity"]
BLOCK_TYPES: tuple[BlockType, ...] = ("attention", "feed_forward", "identity")
"""Block types of a layer, in the order of each row of probabilities."""
LETTERS = "sfi"
"""Letter of each of `BLOCK_TYPES` in a pattern (`core.architectures.pattern`)."""

_Count = Annotated[StrictInt, Field(ge=1, le=1 << 40)]
_Width = Annotated[StrictInt, Field(ge=1, le=1 << 16)]
_Rate = Annotated[StrictFloat, Field(ge=0, le=1e6, allow_inf_nan=False)]
_Milliseconds = Annotated[StrictFloat, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Temperature = Annotated[StrictFloat, Field(gt=0, le=1e6, allow_inf_nan=False)]


class LatencyTerm(BaseModel):
    """Latency of each kind of block on a device, and the weight of the latency in the loss of the search.

    | symbol | meaning |
    | --- | --- |
    | E | expected latency: Σ over layers and blocks of probability · ms |
    | R | E at equal probabilities |

    An architecture step adds weight · E / R to the loss; with a `target_ms`, weight · max(0, E / target_ms - 1),
    without a penalty for models faster than the target. Latency is additive over layers (`docs/par-search.md`). FBNet
    (Wu et al. 2019, eq. 2) multiplies the cross-entropy by α·log(E)^β instead, which is not defined below 1 ms.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    attention_ms: _Milliseconds
    feed_forward_ms: _Milliseconds
    identity_ms: _Milliseconds = 0.0
    weight: Annotated[_Rate, Field(description="Penalty of a latency of R, in nats per token.")] = 0.1
    target_ms: Annotated[StrictFloat, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None

    @property
    def block_ms(self) -> tuple[float, float, float]:
        """Milliseconds of one block of each of `BLOCK_TYPES`."""
        return self.attention_ms, self.feed_forward_ms, self.identity_ms


class SearchSettings(BaseModel):
    """Settings of the search (PAR §2.2). Values that the paper omits default to FBNet's, because PAR follows FBNet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: Annotated[StrictInt, Field(ge=1, le=64, description="Number of consecutive searches, one per seed.")] = 1
    weight_steps: Annotated[
        Annotated[StrictInt, Field(ge=0, le=1 << 40)] | None,
        Field(description="First steps, which train weights alone; a fifth of all steps if absent."),
    ] = None
    architecture_fraction: Annotated[
        StrictFloat, Field(gt=0, lt=1, description="Share of data, and of later steps, that train the probabilities.")
    ] = 0.2
    cycle_steps: Annotated[
        Annotated[StrictInt, Field(ge=2, le=1 << 40)] | None,
        Field(
            description="Weight steps and the architecture steps after them; if absent one pass over the data, "
            "at most a tenth of the steps after the first phase."
        ),
    ] = None
    temperature: Annotated[_Temperature, Field(description="Temperature of the Gumbel-softmax at the start.")] = 5.0
    final_temperature: Annotated[
        _Temperature, Field(description="Temperature at the last step; it falls exponentially.")
    ] = 0.087
    hard: Annotated[
        StrictBool, Field(description="A forward pass uses one block per layer; straight-through gradients.")
    ] = False
    architecture_lr: Annotated[_Rate, Field(description="Learning rate of Adam for the probabilities.")] = 1e-2
    architecture_weight_decay: _Rate = 5e-4
    patience: Annotated[
        StrictFloat,
        Field(gt=0, le=1, description="Ends when no layer changed its likeliest block for this share of phase 2."),
    ] = 0.75
    records: Annotated[StrictInt, Field(ge=2, le=10_000, description="Number of stored probabilities over time.")] = 100

    @model_validator(mode="after")
    def _cools(self) -> SearchSettings:
        if self.final_temperature > self.temperature:
            raise InvalidInput(
                f"final_temperature {self.final_temperature} must be at most the temperature {self.temperature}",
                field="final_temperature",
                value=self.final_temperature,
                allowed=f"at most {self.temperature}",
            )
        return self


class SupernetSettings(SearchSettings):
    """Settings of the search and shape of the blocks; the defaults are PAR's Transformer-XL (Table A1)."""

    layers: Annotated[StrictInt, Field(ge=1, le=512)] = 32
    choices: Annotated[tuple[BlockType, ...], Field(min_length=2, max_length=3, strict=False)] = BLOCK_TYPES
    d_model: _Width = 512
    n_head: _Width = 8
    d_head: _Width | None = None
    d_inner: _Width = 2048
    norm: Literal["pre", "post"] = "post"
    activation: Activation = "relu"
    clamp: _Count | None = None
    """Maximum relative distance; larger distances are clipped to this maximum."""
    cutoffs: tuple[_Count, ...] = ()
    """Cutoffs of the adaptive embedding; cutoffs beyond the data's vocabulary are dropped."""
    div: _Width = 1
    latency: LatencyTerm | None = None

    @model_validator(mode="after")
    def _described(self) -> SupernetSettings:
        if len(set(self.choices)) < len(self.choices):
            raise InvalidInput(
                f"choices must differ, not be {', '.join(self.choices)}",
                field="choices",
                value=list(self.choices),
                allowed=f"two or three of {', '.join(BLOCK_TYPES)}",
            )
        self.architecture("sf", max((2, *(cutoff + 1 for cutoff in self.cutoffs))))
        return self

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> SupernetSettings:
        """Parses settings from a JSON object. Raises `InvalidInput`, which names the first wrong field."""
        try:
            return cls.model_validate(dict(value))
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under("supernet") from None

    def architecture(self, letters: str, vocab_size: int) -> Architecture:
        """Returns the stack with one block for each letter and this vocabulary.

        Identity blocks are dropped, as in the search spaces, so that equal functions have equal digests. A stack of
        identity blocks alone becomes one identity block. Raises `ArchitectureError` if the widths do not match.
        """
        attention = {"kind": "attention", "n_head": self.n_head, "d_head": self.d_head}
        feed_forward = {"kind": "feed_forward", "d_inner": self.d_inner}
        of = {"s": attention, "f": feed_forward}
        cutoffs = [cutoff for cutoff in self.cutoffs if cutoff < vocab_size]
        return Architecture.parse(
            {
                "d_model": self.d_model,
                "positions": {"kind": "relative", "clamp": self.clamp},
                "norm": self.norm,
                "activation": self.activation,
                "embedding": {"vocab_size": vocab_size, "cutoffs": cutoffs, "div": self.div if cutoffs else 1},
                "blocks": [of[letter] for letter in letters if letter != "i"] or [{"kind": "identity"}],
            }
        )


FILE, SUMMARY = "supernet.json", "result.json"

Row = Annotated[tuple[float, ...], Field(min_length=len(BLOCK_TYPES), max_length=len(BLOCK_TYPES))]


DISTINCT = 0.1
"""Least difference between the probabilities of a layer's likeliest block and of the next, for convergence."""


def undecided(probabilities: Sequence[Sequence[float]]) -> int:
    """Number of layers whose likeliest block is not distinct."""
    return sum(best - other < DISTINCT for *_, other, best in map(sorted, probabilities))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Record(_Part):
    """Probabilities after one step of the search: a row for each layer, a number for each of `choices`."""

    step: int
    temperature: float
    probabilities: tuple[Row, ...]


class SearchOutcome(_Part):
    """Result of a supernet's search with one seed."""

    seed: int
    pattern: str
    """The most probable block of each layer, in the grammar of `core.architectures.pattern`."""
    architecture: dict[str, Any]
    """Canonical description of the found architecture, with the data's vocabulary and without identity blocks."""
    digest: str
    converged: bool
    """Whether `patience`, instead of the steps or the budget, ended the search."""
    steps: int
    changed_at: int
    """The latest step that changed a layer's most probable block."""
    loss: float | None
    """Loss of the supernet in nats per token: mean over the final steps on the data that train the probabilities."""
    expected_ms: float | None = None
    probabilities: tuple[Row, ...]
    records: tuple[Record, ...] = ()
    """Probabilities over time; omitted from a run's `result.json`."""

    @property
    def note(self) -> str:
        """A sentence for a search that did not converge; else empty."""
        if self.converged:
            return ""
        layers = undecided(self.probabilities)
        flat = f": {layers} of {len(self.probabilities)} layers have no block that is clearly the likeliest"
        return f"The search of seed {self.seed} ended before it had converged{flat if layers else ''}."

    @property
    def letters(self) -> str:
        """Letters of the most probable block of each layer."""
        return "".join(LETTERS[max(range(len(BLOCK_TYPES)), key=row.__getitem__)] for row in self.probabilities)


class SupernetResult(_Part):
    """Content of a run's `result/supernet.json`: settings and results of a supernet's search."""

    version: int = 1
    choices: tuple[BlockType, ...] = BLOCK_TYPES
    """Block types of the columns of the probabilities."""
    settings: SupernetSettings
    searches: tuple[SearchOutcome, ...]

    @classmethod
    def parse(cls, value: Mapping[str, Any] | str | bytes) -> SupernetResult:
        """Parses the result from a JSON object or text. Raises `InvalidInput`, which names the wrong field."""
        try:
            return cls.model_validate(json.loads(value) if isinstance(value, str | bytes) else dict(value))
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under("supernet result") from None
        except ValueError as error:
            raise InvalidInput(f"the supernet's result is not JSON: {error}", allowed=f"a complete {FILE}") from None

    def summary(self) -> dict[str, Any]:
        """JSON form of the result without the probabilities over time (most of the file)."""
        return self.model_dump(mode="json", exclude={"searches": {"__all__": {"records"}}})

    def write(self, folder: Path) -> None:
        """Writes the result and the summary to `folder`, each atomically. Raises `Unavailable` if the disk is full."""
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / FILE) as file:
            file.write(self.model_dump_json(indent=1).encode())
        with whole_file(folder / SUMMARY) as file:
            file.write(json.dumps(self.summary(), indent=1).encode())
