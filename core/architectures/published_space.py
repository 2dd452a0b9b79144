"""Search space that is a list of published models, each with its score in the same published result table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Block
from edgefront.core.architectures.gene import Gene, Value
from edgefront.core.architectures.models.published import described_models
from edgefront.core.architectures.published import (
    PERMISSIVE,
    PublishedModel,
    ScoreName,
    is_permitted,
    published_models,
    score_named,
)
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.common.errors import SpaceError

if TYPE_CHECKING:
    from edgefront.core.architectures.operators.base import ListOperators

NAME = "published"
MODEL = "model"
"""Name of the space's only gene, whose values are Hub ids of models."""


@dataclass(frozen=True)
class PublishedSpace(SearchSpace):
    """Search space that is a list of published models with a score.

    Models of one architecture take the same time and memory, so the space has only the best-scored model of each.
    """

    score: ScoreName

    def architecture(self, genome: Genome) -> Architecture:
        return described_models()[genome[MODEL]]

    def build(self, genome: Genome, blocks: Sequence[Block]) -> Architecture:
        raise NotImplementedError("published models cannot be built from blocks")

    def contains(self, architecture: Architecture) -> bool:
        return architecture.digest in self.by_digest

    def size(self) -> int:
        return len(self.ids)

    def enumerate(self) -> Iterator[Genome]:
        for id_ in self.ids:
            yield {MODEL: id_}

    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """Returns no baselines, because there is no stock model."""
        return ()

    @property
    def example(self) -> Architecture:
        return described_models()[self.ids[0]]

    def make_operators(self) -> ListOperators:
        # Imported here: the command line names the space without numpy.
        from edgefront.core.architectures.operators.base import ListOperators

        return ListOperators(self)

    def values_with(self, name: str, d_model: int) -> tuple[Value, ...]:
        return self.gene(name).values

    def _consistent(self) -> PublishedSpace:
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """Hub ids of the space's models."""
        return tuple(str(value) for value in self.gene_list[0].values)

    @cached_property
    def by_digest(self) -> Mapping[str, PublishedModel]:
        """Digest of the architecture → published model."""
        return {described_models()[id_].digest: published_models()[id_] for id_ in self.ids}

    @cached_property
    def scores(self) -> Mapping[str, float]:
        """Digest of the architecture → score of the model; higher is better."""
        scores = {digest: self.score.of(model) for digest, model in self.by_digest.items()}
        return {digest: score for digest, score in scores.items() if score is not None}


@dataclass(frozen=True)
class Filter:
    """Conditions on published models. A model without a known value for a condition does not meet the condition."""

    kind: str = "any"
    """Kind of model: base, instruct or any."""
    licence: str | None = None
    """Licence of the model, or `permissive`."""
    min_context: int | None = None
    """Minimum context length in tokens."""

    def passes(self, model: PublishedModel) -> bool:
        return (
            self.kind in ("any", model.kind)
            and (self.licence is None or is_permitted(model, self.licence))
            and (self.min_context is None or (model.context_length or 0) >= self.min_context)
        )

    def only(self, field: str) -> Filter:
        """The filter with this condition alone."""
        condition: dict[str, Any] = {field: self.given[field]}
        return Filter(**condition)

    @property
    def given(self) -> dict[str, str | int]:
        kind = None if self.kind == "any" else self.kind
        given = {"kind": kind, "licence": self.licence, "min_context": self.min_context}
        return {field: value for field, value in given.items() if value is not None}


def published_space(score: str, filter_: Filter = Filter()) -> PublishedSpace:
    """Space of the models with this score (`TABLE:BENCHMARK`) that pass the filter.

    Raises `InvalidInput` that names `score`, and `SpaceError` that names a filter that no model passes.
    """
    name = score_named(score, published_models())
    scored = [model for model in _models() if name.of(model) is not None]
    left = [model for model in scored if filter_.passes(model)]
    if not left:
        raise _none_left(name, scored, filter_)
    best: dict[str, PublishedModel] = {}
    for model in sorted(left, key=lambda model: (-(name.of(model) or 0.0), model.kind != "base", model.id)):
        best.setdefault(described_models()[model.id].digest, model)
    ids = tuple(sorted(model.id for model in best.values()))
    return PublishedSpace(
        NAME, f"Published models by {name}", "core/architectures/published", (Gene(MODEL, ids),), score=name
    )


def unscored(score: ScoreName, filter_: Filter) -> list[PublishedModel]:
    """Expressible models that pass the filter but do not have this score."""
    return [model for model in _models() if score.of(model) is None and filter_.passes(model)]


def same_architecture(space: PublishedSpace, filter_: Filter) -> list[PublishedModel]:
    """Scored models that pass the filter but are not in the space, because another model has the same architecture."""
    return [
        model
        for model in _models()
        if space.score.of(model) is not None
        and filter_.passes(model)
        and model.id not in space.ids
        and described_models()[model.id].digest in space.by_digest
    ]


def _none_left(score: ScoreName, scored: Sequence[PublishedModel], filter_: Filter) -> SpaceError:
    if not scored:
        return SpaceError(
            f"no model with a description has a score in {score}",
            field="score",
            value=str(score),
            allowed="a score of another table",
        )
    longest = max(model.context_length or 0 for model in scored)
    licences = sorted({model.licence for model in scored if model.licence} | {PERMISSIVE})
    *fields, last = filter_.given
    field = next((name for name in fields if not any(map(filter_.only(name).passes, scored))), last)
    value = filter_.given[field]
    allowed = {"licence": ", ".join(licences), "min_context": f"at most {longest}"}
    if field == "kind":
        others = [scores for model in _models() if filter_.passes(model) for scores in model.scores]
        tables = sorted({scores.table for scores in others if scores.weight_format is None})
        allowed["kind"] = "any" + (f", or a score of {', '.join(tables)}" if tables else "")
    asked = " and ".join(f"{name.replace('_', ' ')} {value}" for name, value in filter_.given.items())
    return SpaceError(
        f"none of the {len(scored)} models with a score in {score} has {asked}",
        field=field,
        value=value,
        allowed=allowed[field],
    )


def _models() -> list[PublishedModel]:
    """Published models whose architecture a description can express."""
    return [published_models()[id_] for id_ in described_models()]
