"""What a recipe's task asks of an architecture, and what a model can hand from one segment to the next."""

from __future__ import annotations

from collections.abc import Iterable

from edgefront.core.errors import InvalidInput
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Sru, Srupp
from edgefront.core.spaces.embeddings_and_head import (
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
)

_RELATIVE = "the attention of Transformer-XL", "transformer-xl"
_RECURRENCE = "the recurrence of SRU", "srupp"


def reads_on(architecture: Architecture) -> bool:
    """Whether the model can read a text of any length by segments, its past being kept as state.

    Models with absolute positions cannot: the keys and values of their past have other positions.
    """
    return (
        architecture.causal
        and architecture.source is None
        and not isinstance(architecture.positions, LearnedPositions | SinusoidalPositions)
    )


def has_memory(architecture: Architecture) -> bool:
    """Whether it is a model that is trained on contiguous text: Transformer-XL's attention, or SRU's recurrence."""
    return isinstance(architecture.positions, RelativePositions) or _is_recurrent(architecture)


def carries_state(architecture: Architecture, memory: int) -> bool:
    """Whether a training hands something from one segment to the next: a memory, or a recurrence's cell."""
    return reads_on(architecture) and (memory > 0 or _is_recurrent(architecture))


def _is_recurrent(architecture: Architecture) -> bool:
    return any(isinstance(block, Sru | Srupp) for block in architecture.blocks)


def check_task(architecture: Architecture, recipe: Recipe) -> None:
    """`InvalidInput`, with the recipe's field, unless this architecture can be trained by this recipe."""
    kind, needs = architecture.output.kind, None
    if recipe.task == "masked":
        if architecture.causal or kind != "masked_tokens":
            needs = "an encoder whose output is masked_tokens"
    elif recipe.task == "pairs":
        if architecture.source is None or kind != "tokens":
            needs = "a model with a source whose output is tokens"
    elif not architecture.causal or kind != "tokens" or architecture.source is not None:
        needs = "a causal model without a source whose output is tokens"
    if needs is not None:
        raise InvalidInput(
            f"recipe: {recipe.name} trains {needs}, which the architecture is not",
            field="recipe",
            value=recipe.name,
            allowed=f"a recipe whose task fits the architecture, or {needs}",
        )
    if recipe.order == "shuffled" and has_memory(architecture):
        what, family = _RECURRENCE if _is_recurrent(architecture) else _RELATIVE
        raise InvalidInput(
            f"recipe: {recipe.name} shuffles the segments of a text, and {what} reads on from one to the next",
            field="recipe",
            value=recipe.name,
            allowed=f"quick, or a recipe {family}-…: their text is contiguous",
        )
    if recipe.distil is not None and (architecture.embedding.cutoffs or _is_recurrent(architecture)):
        what = "an adaptive softmax (cutoffs)" if architecture.embedding.cutoffs else _RECURRENCE[0]
        raise InvalidInput(
            f"recipe: {recipe.name} trains with a teacher (distil), and the architecture has {what}",
            field="recipe",
            value=recipe.name,
            allowed="a recipe without distil, or a model without cutoffs whose rows follow nothing",
        )
    most, lengths = architecture.max_length, {"segment": recipe.segment}
    if recipe.task in ("streams", "sentences"):  # the others are evaluated by the rows that they are trained on
        lengths["evaluation.segment"] = recipe.evaluation.segment + recipe.evaluation.memory
    for name, length in lengths.items():
        if most is not None and length > most:
            raise InvalidInput(
                f"{name}: the recipe's segments of {length} tokens, memory included, are longer than the {most} "
                "positions of the architecture",
                field=name,
                value=length,
                allowed=f"at most {most}",
            )


MODERN, CONTIGUOUS = "modern", "quick"
DEFAULTS = (MODERN, CONTIGUOUS)
HEALING = "distil"
"""Of a model that begins with a part of another's weights."""


def default_recipe(architectures: Iterable[Architecture]) -> str:
    """`modern`; `quick`, whose text is contiguous, where one of the models has memory.

    Models that are trained together are to be compared, so they have one recipe.
    """
    return CONTIGUOUS if any(has_memory(architecture) for architecture in architectures) else MODERN
