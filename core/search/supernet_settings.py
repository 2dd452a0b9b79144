"""Settings of PAR's differentiable search."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt

from edgefront.core.supernet.settings import SearchSettings


class ParSupernetSettings(SearchSettings):
    """The search itself, what the supernet is trained on, and how many of its stacks are measured.

    Layers and widths are the space's: its deepest stack, and the widths of its stock model.
    """

    dataset: Annotated[
        Annotated[str, Field(min_length=1, max_length=200)] | None,
        Field(description="Prepared data set of the service; the recipe's own if absent."),
    ] = None
    recipe: Annotated[str, Field(max_length=64, description="Of the supernet's weights.")] = "quick"
    overrides: Annotated[dict[str, Any], Field(max_length=64, description="Fields of the recipe to override.")] = Field(
        default_factory=dict
    )
    steps: Annotated[
        Annotated[StrictInt, Field(ge=4, le=1 << 40)] | None,
        Field(description="Of each seed's search; the recipe's if absent."),
    ] = None
    hours: Annotated[
        Annotated[StrictFloat, Field(gt=0, le=1e6, allow_inf_nan=False)] | None,
        Field(description="Of all searches together."),
    ] = None
    device: Annotated[
        Literal["cpu", "cuda"] | None, Field(description="Of the supernet; the service's choice if absent.")
    ] = None
    samples: Annotated[
        StrictInt, Field(ge=0, le=10_000, description="Further stacks, drawn from the final probabilities.")
    ] = 20
    rule_p: Annotated[
        Annotated[StrictInt, Field(ge=1, le=512)] | None,
        Field(description="p of the PAR rule, whose stack is measured too; null: it is not."),
    ] = 5
    latency_weight: Annotated[
        Annotated[StrictFloat, Field(gt=0, le=1e6, allow_inf_nan=False)] | None,
        Field(description="Weight of latency in the loss: nats for the latency of a stack of equal probabilities."),
    ] = None
    latency_target_ms: Annotated[
        Annotated[StrictFloat, Field(gt=0, le=1e9, allow_inf_nan=False)] | None,
        Field(description="Latency of the blocks below which there is no penalty."),
    ] = None
